package expect

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

// recorder is a test that keeps its errors.
type recorder string

func (h *recorder) Helper()           {}
func (h *recorder) Error(args ...any) { *h += recorder(fmt.Sprint(args...)) }

func TestAnExpectationSaysWhatItGotAndWhatItWants(t *testing.T) {
	wrapped := fmt.Errorf("read: %w", io.EOF)
	for _, row := range []struct {
		name string
		do   func(h *recorder) bool
		says string // "" if the expectation holds
	}{
		{"true", func(h *recorder) bool { return That(h, true, "%d", 1) }, ""},
		{"false", func(h *recorder) bool { return That(h, false, "100%% of %d", 1) }, "100% of 1"},
		{"equal", func(h *recorder) bool { return Equal(h, 5, 5, "took") }, ""},
		{"not equal", func(h *recorder) bool { return Equal(h, 5, 7, "%s took", "a") }, "a took 5, want 7"},
		{"texts", func(h *recorder) bool { return Equal(h, "a", "a ", "got") }, `got "a", want "a "`},
		{"deep", func(h *recorder) bool { return Deep(h, []any{1}, []any{1}, "got") }, ""},
		{"nil, not empty", func(h *recorder) bool { return Deep(h, nil, []int{}, "got") }, "got [], want []"},
		{"slices", func(h *recorder) bool { return Slice(h, nil, []int{}, "got") }, ""},
		{"other slices", func(h *recorder) bool { return Slice(h, []string{"a"}, []string{"b"}, "got") }, `got ["a"], want ["b"]`},
		{"an error in another", func(h *recorder) bool { return ErrorIs(h, wrapped, io.EOF, "got") }, ""},
		{"another error", func(h *recorder) bool { return ErrorIs(h, nil, io.EOF, "got") }, "got <nil>, want EOF"},
		{"words of an error", func(h *recorder) bool { return ErrorSays(h, wrapped, "read", "got") }, ""},
		{"other words", func(h *recorder) bool { return ErrorSays(h, wrapped, "write", "got") }, `got read: EOF, want an error with "write"`},
		{"no error to have words", func(h *recorder) bool { return ErrorSays(h, nil, "", "got") }, `got <nil>, want an error with ""`},
		{"no error", func(h *recorder) bool { return OK(h, nil) && OKf(h, nil, "a") }, ""},
		{"an error", func(h *recorder) bool { return OK(h, io.EOF) }, "EOF"},
		{"an error of what", func(h *recorder) bool { return OKf(h, Err(1, errors.ErrUnsupported), "%d", 1) }, "1: unsupported operation"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var h recorder
			if held := row.do(&h); held != (row.says == "") || string(h) != row.says {
				t.Errorf("held: %t, said %q, want %q", held, h, row.says)
			}
		})
	}
}
