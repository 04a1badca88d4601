package cli

import (
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestPrintableHidesWhatCannotBeSeen(t *testing.T) {
	for _, tc := range []struct{ name, cell, want string }{
		{"nothing", "", "-"},
		{"words of all scripts", "Größe … 名前 שם", "Größe … 名前 שם"},
		{"escape sequence", "a\x1b[2Jb", "a?[2Jb"},
		{"C1 control", "a\u009b2Jb", "a?2Jb"},
		{"line ends and tabs", "a\r\n\tb\u2028c", "a???b?c"},
		{"direction", "a\u202eb\u2066c\u200fd", "a?b?c?d"},
		{"no width", "a\u200bb\ufeffc\u00add", "a?b?c?d"},
		{"no UTF-8", "a\xffb", "a\ufffdb"},
	} {
		expect.Equal(t, Printable(tc.cell), tc.want, "%s:", tc.name)
	}
}
