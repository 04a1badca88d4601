package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

var commitTime = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

func TestVersionsAreNumberedAsPackagesOrderThem(t *testing.T) {
	for version, want := range map[string]string{
		"v0.1.0":                   "0.1.0",
		"v0.1.0-rc.1":              "0.1.0~rc.1",
		"v0.1.0-dirty":             "0.1.0.dirty",
		"v0.1.0-5-g3876fce4":       "0.1.0+5.g3876fce4",
		"v0.1.0-rc.1-5-g3876fce4":  "0.1.0~rc.1+5.g3876fce4",
		"3876fce4":                 "0.0.0+20261127120000.g3876fce4",
		"v0.1.0-5-g3876fce4-dirty": "0.1.0+5.g3876fce4.dirty",
		"":                         "",
		"the newest":               "",
		"v0.1.0 -o /etc/passwd":    "",
	} {
		r := release{version: version, commit: commitTime}
		got, err := r.numbered()
		expect.That(t, got == want && (err == nil) == (want != ""), "%q: %q, %v; want %q", version, got, err, want)
	}
}

func TestModuleWithoutAKnownLicenceIsAnError(t *testing.T) {
	dir := t.TempDir()
	_, err := readLicence("example.org/m", "v1.0.0", dir, nil)
	expect.That(t, err != nil && strings.Contains(err.Error(), "example.org/m v1.0.0"), "without a file: %v", err)
	need.OK(t, os.WriteFile(filepath.Join(dir, "LICENSE"), []byte("All rights reserved."), 0o600))
	_, err = readLicence("example.org/m", "v1.0.0", dir, nil)
	expect.That(t, err != nil, "a text that is no licence was one")
	ours := need.Got(os.ReadFile("../LICENSE"))(t)
	need.OK(t, os.WriteFile(filepath.Join(dir, "LICENSE"), ours, 0o600))
	l, err := readLicence("example.org/m", "v1.0.0", dir, nil)
	expect.That(t, err == nil && l.expression() == "Apache-2.0", "%q, %v", l.expression(), err)
	text := licences{"example.org/m": l}.text()
	expect.That(t, bytes.Contains(text, []byte("example.org/m  v1.0.0  Apache-2.0\n")) && bytes.Contains(text, bytes.TrimSpace(ours)), "the text is\n%.300s", text)
}

func TestArchivesOfTheSameFilesHaveTheSameBytes(t *testing.T) {
	files := []file{plain("a/b", []byte("1")), plain("a/c", []byte("2")), {name: "a/", mode: 0o700, owner: imageUser}}
	turned := slices.Clone(files)
	slices.Reverse(turned)
	for name, pack := range map[string]func([]file, time.Time) ([]byte, error){"tar": tarred, "zip": zipped} {
		one, other := need.Got(pack(files, commitTime))(t), need.Got(pack(turned, commitTime))(t)
		expect.That(t, bytes.Equal(gzipped(one), gzipped(other)), "%s: other bytes in another order", name)
	}
}

func TestManPagesHaveEveryCommandAndFlag(t *testing.T) {
	tree := `{"use":"rollcall","short":"A registry","commands":[{"use":"ls [APP]","short":"List","long":"Lists all.",
		"example":"  rollcall ls","flags":[{"name":"output","shorthand":"o","type":"string","default":"table","usage":"form of the output"}]}]}`
	pages := need.Got(manPages([]byte(tree), commitTime, "v0.1.0"))(t)
	need.That(t, len(pages) == 3 && pages[0].name == "man/rollcall.1" && pages[2].name == "man/rollcall-ls.1", "%d pages, want those of rollcall, help and ls", len(pages))
	for _, part := range []string{"Lists all.", "--output", `"table"`, "form of the output", "Nov 2026", "v0.1.0"} {
		expect.That(t, bytes.Contains(pages[2].data, []byte(part)), "no %q in\n%s", part, pages[2].data)
	}
}

func TestCostsSumUpToTheFile(t *testing.T) {
	symbols := []symbol{{"github.com/a/b.F", 1000}, {"github.com/a/b/c.(*T).m", 500}, {"github.com/a/bc.F", 70}, {"gopkg%2ein/x.G[...]", 200},
		{"runtime.main", 300}, {"runtime.pclntab", 40}}
	modules := []*debug.Module{{Path: "github.com/a/b"}, {Path: "github.com/a/bc"}, {Path: "gopkg.in/x"}, {Path: "github.com/main"}}
	all := costsOf(symbols, modules, 5000)
	var sum int64
	got := map[string]int64{}
	for _, c := range all {
		sum += c.bytes
		got[c.part] = c.bytes
	}
	expect.Equal(t, sum, 5000, "bytes in all")
	for part, want := range map[string]int64{"github.com/a/b": 1500, "github.com/a/bc": 70, "gopkg.in/x": 200, costOfStd: 300, costOfRest: 2930} {
		expect.Equal(t, got[part], want, part)
	}
}

// A program has memory that its file has not.
func TestSymbolsAreThoseOfTheFile(t *testing.T) {
	dir := t.TempDir()
	source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	need.OK(t, os.WriteFile(source, []byte("package main\n\nvar zeroed [64 << 20]byte\n\nfunc main() { zeroed[1]++; println(zeroed[0]) }\n"), 0o600))
	cmd := exec.Command("go", "build", "-o", program, source)
	cmd.Env = append(os.Environ(), "GOOS=linux")
	out, err := cmd.CombinedOutput()
	need.That(t, err == nil, "%v\n%s", err, out)
	var sum int64
	for _, s := range need.Got(symbolsOf(program))(t) {
		sum += s.bytes
	}
	size := need.Got(os.Stat(program))(t).Size()
	expect.That(t, sum > size/10 && sum < size, "symbols of %d bytes in a file of %d", sum, size)
}

func TestScriptsOfPackagesAreOfAShell(t *testing.T) {
	for _, name := range []string{"postinst", "prerm", "postrm"} {
		text := need.Got(os.ReadFile(filepath.Join("package", name)))(t)
		expect.That(t, bytes.HasPrefix(text, []byte("#!/bin/sh\n")), "%s begins with %.20q", name, text)
		expect.That(t, bytes.Contains(text, []byte("\nset -e\n")), "%s goes on after errors", name)
	}
}
