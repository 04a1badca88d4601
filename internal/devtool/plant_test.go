package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// Each kept fault names text that occurs once in the code it changes.
func TestKeptFaultsCanBePlanted(t *testing.T) {
	t.Chdir("../..")
	paths := need.Got(filepath.Glob(faultsDir + "/*"))(t)
	need.That(t, len(paths) >= 20, "%s has %d faults, want 20 or more", faultsDir, len(paths))
	for _, path := range paths {
		_, err := readFault(path)
		expect.OK(t, err)
	}
}

func TestMistakesOfAFault(t *testing.T) {
	t.Chdir(t.TempDir())
	need.OK(t, os.WriteFile("a.go", []byte("package a\n\nvar x = 1 + 1 + 1\n"), 0o600))
	for text, says := range map[string]string{
		"by: seeds\n":                                      "want a line by: and places",
		"file: a.go\n<<<<\nvar\n====\n>>>>\n":              "want a line by: and places",
		"by: seeds\nfile: a.go\n<<<<\n+ 1\n====\n>>>>\n":   "occurs 2 times in a.go",
		"by: seeds\nfile: a.go\n<<<<\nnone\n====\n>>>>\n":  "occurs 0 times in a.go",
		"by: seeds\nfile: b.go\n<<<<\nvar x\n====\n>>>>\n": "open b.go",
	} {
		need.OK(t, os.WriteFile("fault", []byte(text), 0o600))
		_, err := readFault("fault")
		expect.ErrorSays(t, err, says, "%q:", text)
	}
}

// It draws all mutants of a file, writes them as lines, and finds them again.
func TestMutantsChangeOneOperator(t *testing.T) {
	t.Chdir(t.TempDir())
	need.OK(t, os.WriteFile("a.go", []byte("package a\n\nfunc (x *T[K]) F(a, b int) bool {\n\ta++\n\treturn !(a == b && a < b)\n}\n"), 0o600))
	changed := map[string]bool{}
	lines := ""
	all := need.Got(drawMutants(1, []string{"."}))(t)
	for _, m := range all {
		lines += m.String() + " survived\n"
		changed[string(need.Got(m.changed())(t))] = true
	}
	expect.Equal(t, len(changed), 5, "changed files of ++, !, ==, && and <")
	expect.That(t, changed["package a\n\nfunc (x *T[K]) F(a, b int) bool {\n\ta++\n\treturn (a == b && a < b)\n}\n"], "the mutant of ! is not there: %v", changed)
	need.OK(t, os.WriteFile("list", []byte(lines+"# 0 of 5 killed\n"), 0o600))
	expect.Slice(t, need.Got(readMutants("list"))(t), all, "mutants read from their lines")
}
