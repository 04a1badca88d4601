package dashboard

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestContainsAsciiInWhateverCase(t *testing.T) {
	for _, row := range []struct {
		s, lower string
		want     bool
	}{
		{"ORDERS", "rder", true}, {"orders-1.Example", "example", true}, {"ORDERS", "", true}, {"", "a", false}, {"AB", "abc", false}, {"GRÜN", "grün", false}, {"grün", "ün", true},
	} {
		expect.Equal(t, contains(row.s, row.lower), row.want, "%q in %q", row.lower, row.s)
	}
}

func TestSearchFindsApplicationsInWhateverCase(t *testing.T) {
	l := &registry.Lease{Instance: &registry.Instance{App: "GRÜN", InstanceID: "grün-1"}}
	for word, want := range map[string]bool{"grün": true, "GRÜN": true, "Grün": true, "ün-1": true, "blau": false} {
		s := search{terms: []term{termOf(word)}}
		expect.Equal(t, s.finds(l, ""), want, "%q finds it", word)
	}
}

func FuzzContains(f *testing.F) {
	f.Add("Orders-1", "ers")
	f.Fuzz(func(t *testing.T, s, term string) {
		if !utf8.ValidString(s+term) || strings.ContainsFunc(s+term, func(r rune) bool { return r >= utf8.RuneSelf }) {
			return
		}
		expect.Equal(t, contains(s, lower(term)), strings.Contains(strings.ToLower(s), strings.ToLower(term)), "%q in %q", term, s)
	})
}

func TestPageBeyondTheLastIsTheLast(t *testing.T) {
	for _, row := range []struct {
		number             uint64
		rows               int
		want, first, until int
	}{
		{0, 0, 1, 0, 0}, {1, 120, 1, 0, 50}, {3, 120, 3, 100, 120}, {1 << 63, 120, 3, 100, 120}, {2, 50, 1, 0, 50},
	} {
		p := pageOf(row.number, row.rows)
		expect.That(t, p.number == row.want && p.first == row.first && p.end == row.until, "page %d of %d rows: got %+v", row.number, row.rows, p)
	}
}

func TestLocalPathsOnly(t *testing.T) {
	for path, want := range map[string]string{
		"/ui/apps?q=a": "/ui/apps?q=a", "": "/", "https://evil.example/": "/", "//evil.example/": "/", `/\evil.example`: "/", "/a\r\nSet-Cookie: x": "/", "ui": "/", "javascript:alert(1)": "/",
	} {
		expect.Equal(t, local(path), want, "%q leads to", path)
	}
}

func TestCommandLineIsQuoted(t *testing.T) {
	dashed := commandLine("http://n", command{verb: "kv put", names: []string{"-k", "v"}, flags: []string{"--cas", "1"}})
	expect.Equal(t, dashed, "rollcall kv put --cas 1 --addr http://n -- -k v", "a name that begins like a flag: got")
	got := commandLine("http://127.0.0.1:8761", command{verb: "drain", names: []string{"A/b c"}, flags: []string{"--reason", `it's $HOME; rm`}})
	expect.Equal(t, got, `rollcall drain 'A/b c' --reason 'it'\''s $HOME; rm' --addr http://127.0.0.1:8761`, "the command line")
}
