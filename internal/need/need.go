// Package need ends a test at the first error of what the test needs and does not examine. Tests of every package import
// it; nothing else does.
package need

// T is what need wants of a test: that of testing and that of rapid have it.
type T interface {
	Helper()
	Fatal(args ...any)
}

// OK ends the test if err is not nil.
func OK(t T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Got is the value of a call that returns one with an error, for need.Got(call())(t): the test ends if the error is not nil.
func Got[V any](v V, err error) func(T) V {
	return func(t T) V {
		t.Helper()
		OK(t, err)
		return v
	}
}
