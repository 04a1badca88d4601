// Package need ends a test when something is missing that the test cannot go on without. Package expect is for what a
// test is about. Tests of every package, and the suites and harnesses that tests run, import it; nothing else does.
package need

import (
	"os"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

// T is what need needs from a test; those of testing and of rapid have it.
type T interface {
	Helper()
	Fatal(args ...any)
}

// ending is a test that a failed expectation ends.
type ending struct{ T }

func (e ending) Error(args ...any) {
	e.Helper()
	e.Fatal(args...)
}

// OK ends the test if err is not nil.
func OK(t T, err error) {
	t.Helper()
	expect.OK(ending{t}, err)
}

// OKf is OK with a message in front of the error.
func OKf(t T, err error, format string, args ...any) {
	t.Helper()
	expect.OKf(ending{t}, err, format, args...)
}

// Got returns the value of a call that returns one with an error, for need.Got(call())(t): the test ends if the error
// is not nil.
func Got[V any](v V, err error) func(T) V {
	return func(t T) V {
		t.Helper()
		OK(t, err)
		return v
	}
}

// That ends the test unless ok.
func That(t T, ok bool, format string, args ...any) {
	t.Helper()
	expect.That(ending{t}, ok, format, args...)
}

// Equal ends the test unless got is want.
func Equal[V comparable](t T, got, want V, format string, args ...any) {
	t.Helper()
	expect.Equal(ending{t}, got, want, format, args...)
}

// Deep is Equal for what == does not compare.
func Deep[V any](t T, got, want V, format string, args ...any) {
	t.Helper()
	expect.Deep(ending{t}, got, want, format, args...)
}

// Slice is Equal for slices. An empty one equals nil.
func Slice[S ~[]E, E comparable](t T, got, want S, format string, args ...any) {
	t.Helper()
	expect.Slice(ending{t}, got, want, format, args...)
}

// ErrorIs ends the test unless errors.Is finds want in err.
func ErrorIs(t T, err, want error, format string, args ...any) {
	t.Helper()
	expect.ErrorIs(ending{t}, err, want, format, args...)
}

// ErrorSays ends the test unless err is an error whose text has the words.
func ErrorSays(t T, err error, words, format string, args ...any) {
	t.Helper()
	expect.ErrorSays(ending{t}, err, words, format, args...)
}

// Skipper is a test that can be skipped.
type Skipper interface {
	T
	Skipf(format string, args ...any)
}

// Present skips the test if the machine lacks something; with ROLLCALL_TEST_ALL=1 it ends the test. The message says
// how to get it.
func Present(t Skipper, present bool, format string, args ...any) {
	t.Helper()
	if present {
		return
	}
	That(t, os.Getenv("ROLLCALL_TEST_ALL") != "1", format, args...)
	t.Skipf(format, args...)
}
