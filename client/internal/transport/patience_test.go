package transport

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/client/internal/wait"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// trickling answers with n pieces, one after each pause.
func trickling(n int, pause time.Duration) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		left := n
		return &http.Response{StatusCode: 200, Header: make(http.Header), Body: io.NopCloser(readerFunc(func(p []byte) (int, error) {
			if left == 0 {
				return 0, io.EOF
			}
			left--
			if !wait.For(r.Context(), pause) {
				return 0, r.Context().Err()
			}
			return copy(p, " "), nil
		}))}, nil
	}
}

func TestTryIsBoundedByItsPausesAndAsAWhole(t *testing.T) {
	second := fake.Always(200, "")
	late := func(r *http.Request) (*http.Response, error) {
		if !wait.For(r.Context(), 5*time.Second-1) {
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
		{name: "it never begins", first: fake.Silent, took: 5 * time.Second, says: "no response within 5s"},
		{name: "it begins and stops", first: fake.Endless, took: 5 * time.Second, says: "nothing more of the response within 5s"},
		{name: "slow, but it goes on", first: trickling(10, 4*time.Second), took: 40 * time.Second},
		{name: "it goes on for ever", first: trickling(1000, 4*time.Second), took: 55 * time.Second, says: "no whole response within 55s"},
	} {
		fake.InBubble(t, tc.name, func(t *testing.T) {
			c := clusterOf(t, fake.Servers{"a": tc.first, "b": fake.Unreachable}, "a", "b")
			start := time.Now()
			_, err := c.do(t.Context(), &Call{method: http.MethodGet, path: []string{"v1"}})
			expect.Equal(t, time.Since(start), tc.took, "took")
			expect.That(t, (err != nil) == (tc.says != ""), "got %v, want an error: %v", err, tc.says != "")
			if tc.says != "" && (!errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), tc.says)) {
				t.Errorf("got %v, want a timeout that says %q", err, tc.says)
			}
		})
	}
}
