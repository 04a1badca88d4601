package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

// trickling answers with n pieces, one after each pause.
func trickling(n int, pause time.Duration) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		left := n
		return &http.Response{StatusCode: 200, Header: make(http.Header), Body: io.NopCloser(readerFunc(func(p []byte) (int, error) {
			if left == 0 {
				return 0, io.EOF
			}
			left--
			if !wait(r.Context(), pause) {
				return 0, r.Context().Err()
			}
			return copy(p, " "), nil
		}))}, nil
	}
}

func TestATryIsBoundedByItsPausesAndAsAWhole(t *testing.T) {
	second := always(200, "")
	late := func(r *http.Request) (*http.Response, error) {
		if !wait(r.Context(), 5*time.Second-1) {
			return nil, r.Context().Err()
		}
		return trickling(1, 5*time.Second-1)(r)
	}
	for _, tc := range []struct {
		name  string
		first func(*http.Request) (*http.Response, error)
		took  time.Duration
		says  string // of the first server's failure; "": it answers
	}{
		{name: "at once", first: second, took: 0},
		{name: "it begins late and pauses long", first: late, took: 10*time.Second - 2},
		{name: "it never begins", first: silent, took: 5 * time.Second, says: "no answer within 5s"},
		{name: "it begins and stops", first: endless, took: 5 * time.Second, says: "nothing more of the answer within 5s"},
		{name: "slow, but it goes on", first: trickling(10, 4*time.Second), took: 40 * time.Second},
		{name: "it goes on for ever", first: trickling(1000, 4*time.Second), took: 55 * time.Second, says: "no whole answer within 55s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := servers{"a": tc.first, "b": unreachable}.client(t, "a", "b")
				start := time.Now()
				_, err := c.do(t.Context(), call{method: http.MethodGet, path: []string{"v1"}})
				expect.Equal(t, time.Since(start), tc.took, "took")
				expect.That(t, (err != nil) == (tc.says != ""), "got %v, want an error: %v", err, tc.says != "")
				if tc.says != "" && (!errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), tc.says)) {
					t.Errorf("got %v, want a timeout that says %q", err, tc.says)
				}
			})
		})
	}
}

func TestAnAnswerThatIsTooLongIsNotRead(t *testing.T) {
	for length, want := range map[int]bool{9: true, 10: true, 11: false} {
		got, err := readBounded(strings.NewReader(strings.Repeat("x", length)), 10)
		if (err == nil) != want || want && len(got) != length {
			t.Errorf("of %d bytes where 10 are allowed: %d bytes, %v", length, len(got), err)
		}
		if err != nil && !errors.As(err, new(conclusive)) {
			t.Errorf("%v does not end the call, although other servers would send as much", err)
		}
	}
}
