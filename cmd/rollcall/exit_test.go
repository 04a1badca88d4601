package main

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
		{nil, exitOK},
		{plain, exitError},
		{usageError{plain}, exitUsage},
		{fmt.Errorf("while: %w", usageError{plain}), exitUsage},
		{fatalError{plain}, exitFatal},
		{fmt.Errorf("while: %w", fatalError{plain}), exitFatal},
	} {
		if got := exitCode(io.Discard, tc.err); got != tc.want {
			t.Errorf("exitCode(%T) = %d, want %d", tc.err, got, tc.want)
		}
	}
}
