// Package expect checks what a test is about: a failed expectation is an error of the test, which goes on and finds
// the others. Every function reports whether the expectation holds. Package need is for what a test cannot go on
// without. It is imported by tests of every package, by the suites and harnesses that tests run, and by need, but by
// nothing else.
package expect

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// T is what expect needs from a test; those of testing and of rapid have it.
type T interface {
	Helper()
	Error(args ...any)
}

// That expects ok; the message is all that the test says if it is false.
func That(t T, ok bool, format string, args ...any) bool {
	t.Helper()
	if !ok {
		t.Error(fmt.Sprintf(format, args...))
	}
	return ok
}

// Equal expects got to be want. The message precedes the value, as in "the end took 5s, want 7s".
func Equal[V comparable](t T, got, want V, format string, args ...any) bool {
	t.Helper()
	return That(t, got == want, "%s %s, want %s", message{format, args}, show{got}, show{want})
}

// Deep is Equal for what == does not compare.
func Deep[V any](t T, got, want V, format string, args ...any) bool {
	t.Helper()
	return That(t, reflect.DeepEqual(got, want), "%s %s, want %s", message{format, args}, show{got}, show{want})
}

// Slice is Equal for slices. An empty one equals nil.
func Slice[S ~[]E, E comparable](t T, got, want S, format string, args ...any) bool {
	t.Helper()
	return That(t, slices.Equal(got, want), "%s %s, want %s", message{format, args}, show{got}, show{want})
}

// ErrorIs expects an error that errors.Is finds want in.
func ErrorIs(t T, err, want error, format string, args ...any) bool {
	t.Helper()
	return That(t, errors.Is(err, want), "%s %v, want %v", message{format, args}, err, want)
}

// ErrorSays expects an error whose text has the words.
func ErrorSays(t T, err error, words, format string, args ...any) bool {
	t.Helper()
	return That(t, err != nil && strings.Contains(err.Error(), words), "%s %v, want an error with %q", message{format, args}, err, words)
}

// OK expects no error.
func OK(t T, err error) bool {
	t.Helper()
	return That(t, err == nil, "%v", err)
}

// OKf is OK with a message in front of the error.
func OKf(t T, err error, format string, args ...any) bool {
	t.Helper()
	return That(t, err == nil, "%s: %v", message{format, args}, err)
}

// Err returns the error of a call whose value the test ignores.
func Err[V any](_ V, err error) error { return err }

// message is formatted only when an expectation has failed: most hold, and many are checked in loops.
type message struct {
	format string
	args   []any
}

func (m message) String() string { return fmt.Sprintf(m.format, m.args...) }

// show quotes texts, where spaces matter, and shows anything else with its fields' names.
type show struct{ value any }

func (s show) String() string {
	switch v := s.value.(type) {
	case string:
		return fmt.Sprintf("%q", v)
	case []string:
		return fmt.Sprintf("%q", v)
	case []byte:
		return fmt.Sprintf("%q", v)
	}
	return fmt.Sprintf("%+v", s.value)
}
