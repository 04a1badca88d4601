package cli

import (
	"errors"
	"fmt"
	"io"
	"testing"
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
		if got := ExitCode(io.Discard, "rollcall", tc.err); got != tc.want {
			t.Errorf("ExitCode(%T) = %d, want %d", tc.err, got, tc.want)
		}
	}
}
