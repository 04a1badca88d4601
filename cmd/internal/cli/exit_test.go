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
		expect.Equal(t, ExitCode(io.Discard, "rollcall", tc.err), tc.want, "ExitCode(%T) =", tc.err)
	}
}
