package need

import (
	"fmt"
	"io"
	"testing"
)

// ended is a test that keeps what ended it.
type ended string

func (e *ended) Helper() {}

func (e *ended) Fatal(args ...any) {
	*e = ended(fmt.Sprint(args...))
	panic(e)
}

func (e *ended) Skipf(format string, args ...any) {
	*e = ended("skipped: " + fmt.Sprintf(format, args...))
	panic(e)
}

func TestAnUnmetNeedEndsTheTest(t *testing.T) {
	t.Setenv("ROLLCALL_TEST_ALL", "")
	for says, do := range map[string]func(*ended){
		"": func(e *ended) {
			Equal(e, Got(1, nil)(e), 1, "got")
			OK(e, nil)
			That(e, true, "")
			Present(e, true, "")
		},
		"EOF":                                func(e *ended) { Got(1, io.EOF)(e) },
		"read: EOF":                          func(e *ended) { OKf(e, io.EOF, "read") },
		"none of 1":                          func(e *ended) { That(e, false, "none of %d", 1) },
		"skipped: get it":                    func(e *ended) { Present(e, false, "get %s", "it") },
		"has 1, want 2":                      func(e *ended) { Equal(e, 1, 2, "has") },
		"has [1], want []":                   func(e *ended) { Deep(e, []int{1}, nil, "has") },
		"is [1], want []":                    func(e *ended) { Slice(e, []int{1}, nil, "is") },
		"got EOF, want unexpected EOF":       func(e *ended) { ErrorIs(e, io.EOF, io.ErrUnexpectedEOF, "got") },
		`got EOF, want an error with "read"`: func(e *ended) { ErrorSays(e, io.EOF, "read", "got") },
	} {
		var e ended
		func() {
			defer func() {
				if r := recover(); r != nil && r != &e {
					t.Error(r)
				}
			}()
			do(&e)
		}()
		if string(e) != says {
			t.Errorf("ended by %q, want %q", e, says)
		}
	}
}

func TestNothingIsSkippedWhereAllTestsMustRun(t *testing.T) {
	t.Setenv("ROLLCALL_TEST_ALL", "1")
	var e ended
	defer func() {
		if r := recover(); r != &e || e != "get it" {
			t.Errorf("%v: ended by %q", r, e)
		}
	}()
	Present(&e, false, "get it")
}
