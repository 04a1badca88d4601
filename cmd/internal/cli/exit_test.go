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

// TestUnitRestartsAfterNoEndThatItCannotMend reads the exit codes that systemd does not restart after.
func TestUnitRestartsAfterNoEndThatItCannotMend(t *testing.T) {
	unit := string(need.Got(os.ReadFile("../../../deploy/systemd/rollcall.service"))(t))
	line := fmt.Sprintf("\nRestartPreventExitStatus=%d %d\n", ExitUsage, ExitFatal)
	expect.That(t, strings.Contains(unit, line), "the unit has no line %q", line)
}
