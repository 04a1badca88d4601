package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
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
		{"no width, and no format character", "a\ufe0fb\u034fc\u3164d\U000e0100e", "a?b?c?d?e"},
		{"no UTF-8", "a\xffb", "a\ufffdb"},
	} {
		expect.Equal(t, Printable(tc.cell), tc.want, "%s:", tc.name)
	}
}

func TestExitCodeOfWrappedErrors(t *testing.T) {
	plain := errors.New("x")
	for _, tc := range []struct {
		err  error
		want int
	}{
		{nil, ExitOK},
		{plain, ExitError},
		{Usage(plain), ExitUsage},
		{fmt.Errorf("while: %w", Usage(plain)), ExitUsage},
		{Fatal(plain), ExitFatal},
		{fmt.Errorf("while: %w", Fatal(plain)), ExitFatal},
	} {
		expect.Equal(t, ExitCode(io.Discard, "rollcall", tc.err), tc.want, "ExitCode(%T) =", tc.err)
	}
}

// It reads the exit codes after which systemd does not restart the server.
func TestUnitRestartsAfterNoEndThatItCannotMend(t *testing.T) {
	unit := string(need.Got(os.ReadFile("../../../deploy/systemd/rollcall.service"))(t))
	line := fmt.Sprintf("\nRestartPreventExitStatus=%d %d\n", ExitUsage, ExitFatal)
	expect.That(t, strings.Contains(unit, line), "the unit has no line %q", line)
}
