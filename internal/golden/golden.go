// Package golden compares what is written to disks and peers with golden bytes, in files with a section of hex digits
// for each, and what pages show of the code with the code: parts that are made of it, and the commands of programs.
// Only tests import it. go test ./PACKAGE -update rewrites the bytes and the parts.
package golden

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

var update = flag.Bool("update", false, "write the golden files, and what pages show of the code, anew")

// Part fails the test if a page has something else between two marks than it should.
func Part(t *testing.T, page, from, to, want string) {
	t.Helper()
	text := string(need.Got(os.ReadFile(page))(t))
	before, rest, ok := strings.Cut(text, from)
	_, after, ok2 := strings.Cut(rest, to)
	need.That(t, ok && ok2, "%s has no %q and %q", page, from, to)
	Page(t, page, before+from+want+to+after)
}

// Page fails the test if a page is not as it should be.
func Page(t *testing.T, page, want string) {
	t.Helper()
	got := string(need.Got(os.ReadFile(page))(t))
	if *update && got != want {
		need.OK(t, os.WriteFile(page, []byte(want), 0o644))
		return
	}
	expect.That(t, got == want, "%s does not show what the code has; run this test with -update, and see what it changes", page)
}

// File is the path of a file in the form of txtar.
type File string

// Check fails the test if bytes differ from those of a section.
func (f File) Check(t *testing.T, section string, got []byte) {
	t.Helper()
	if *update {
		f.write(t, section, got)
	}
	want := f.Sections(t, section)[section]
	expect.That(t, bytes.Equal(got, want), "%s: the format has changed\ngot  %x\nwant %x", section, got, want)
}

func (f File) write(t *testing.T, section string, b []byte) {
	all := need.Got(txtar.ParseFile(string(f)))(t)
	all.Files = slices.DeleteFunc(all.Files, func(s txtar.File) bool { return s.Name == section })
	var lines bytes.Buffer
	for line := range slices.Chunk(b, 32) {
		fmt.Fprintf(&lines, "%x\n", line)
	}
	all.Files = append(all.Files, txtar.File{Name: section, Data: lines.Bytes()})
	slices.SortFunc(all.Files, func(a, b txtar.File) int { return strings.Compare(a.Name, b.Name) })
	need.OK(t, os.WriteFile(string(f), txtar.Format(all), 0o644))
}

// Sections returns the bytes of the sections whose names begin with prefix; there must be at least one.
func (f File) Sections(t testing.TB, prefix string) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	for _, s := range need.Got(txtar.ParseFile(string(f)))(t).Files {
		if strings.HasPrefix(s.Name, prefix) {
			found[s.Name] = need.Got(hex.DecodeString(strings.Join(strings.Fields(string(s.Data)), "")))(t)
		}
	}
	need.That(t, len(found) > 0, "%s has nothing named %s (-update writes it)", f, prefix)
	return found
}
