package cli

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestExitCodeOfWrappedErrors(t *testing.T) {
	plain := errors.New("x")
	for _, tc := range []struct {
		err  error
		want int
	}{
		{nil, ExitOK},
		{plain, ExitError},
		{usageError{plain}, ExitUsage},
		{fmt.Errorf("while: %w", usageError{plain}), ExitUsage},
		{fatalError{plain}, ExitFatal},
		{fmt.Errorf("while: %w", fatalError{plain}), ExitFatal},
	} {
		got := ExitCode(io.Discard, "rollcall", tc.err)
		expect.That(t, got == tc.want, "ExitCode(%T) = %d, want %d", tc.err, got, tc.want)
	}
}
