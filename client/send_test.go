package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// contextWithin ends after d; with 0 it is canceled after a second.
func contextWithin(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	if d > 0 {
		return context.WithTimeout(t.Context(), d)
	}
	ctx, cancel := context.WithCancel(t.Context())
	timer := time.AfterFunc(time.Second, cancel)
	return ctx, func() {
		timer.Stop()
		cancel()
	}
}

// endless is an answer that begins, and then says nothing until its request ends.
func endless(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: make(http.Header), Body: io.NopCloser(readerFunc(func([]byte) (int, error) {
		<-r.Context().Done()
		return 0, r.Context().Err()
	}))}, nil
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestCloseCutsOffCallsThatAreUnderWay(t *testing.T) {
	for name, server := range map[string]func(*http.Request) (*http.Response, error){"before the answer": silent, "within the answer": endless} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJournal()
				c := servers{"a": j.around(server), "b": j.around(always(200, ""))}.client(t, "a", "b")
				result := make(chan error)
				go func() { result <- c.Cancel(context.Background(), key) }()
				synctest.Wait()
				need.OK(t, c.Close(t.Context()))
				err := <-result
				expect.That(t, errors.Is(err, ErrClosed) && errors.Is(err, ErrUnknownOutcome),
					"a write that was under way: %v, want that the client is closed and the outcome unknown", err)
				if err := c.Renew(t.Context(), key, 0); !errors.Is(err, ErrClosed) || errors.Is(err, ErrUnknownOutcome) {
					t.Errorf("a write after it: %v, want that the client is closed, and no more", err)
				}
				got := len(j.lines)
				expect.That(t, got == 1, "%d requests were sent, want none after Close", got)
				n := c.servers.quarantined()
				expect.That(t, n == 0, "%d servers are in quarantine because of Close", n)
			})
		})
	}
}

func TestWhatShowsThatTheClientWasClosedIsNotTheReason(t *testing.T) {
	life, end := context.WithCancelCause(context.Background())
	end(ErrClosed)
	shown := &url.Error{Op: "Get", URL: "http://a/", Err: net.ErrClosed}
	got := withCause(shown, t.Context(), life)
	expect.That(t, errors.Is(got, ErrClosed) && !errors.Is(got, net.ErrClosed) && strings.Contains(got.Error(), "http://a/"),
		"got %v, want that the client was closed while it asked http://a/", got)
	if got := withCause(shown, t.Context()); got != error(shown) {
		t.Errorf("while nothing has ended: %v, want the error as it is", got)
	}
}

func TestAStreamEndsWithTheClientAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watch := call{method: http.MethodGet, path: []string{"v1", "rollcall", "watch"}, accept: "text/event-stream"}
		c := servers{"a": func(r *http.Request) (*http.Response, error) {
			expect.Equal(t, r.Header.Get("Accept"), watch.accept, "Accept:")
			return endless(r)
		}}.client(t, "a")
		resp, done, err := c.send(t.Context(), serverAt("a"), watch)
		need.OK(t, err)
		defer done()
		result := make(chan error)
		go func() {
			_, err := resp.Body.Read(make([]byte, 1))
			result <- err
		}()
		time.Sleep(time.Hour) // nothing but its caller and the client bounds it
		need.OK(t, c.Close(t.Context()))
		if err := <-result; !errors.Is(err, ErrClosed) {
			t.Errorf("the stream ended with %v, want that the client is closed", err)
		}
		if _, _, err := c.send(t.Context(), serverAt("a"), watch); !errors.Is(err, ErrClosed) {
			t.Errorf("another one: %v, want that the client is closed", err)
		}
	})
}

func TestAnErrorOfAuthEndsTheCall(t *testing.T) {
	j := newJournal()
	s := servers{"a": j.around(always(200, "")), "b": j.around(always(200, ""))}
	broken := errors.New("no token")
	c, err := New(Config{Servers: urlsOf("a", "b"), HTTPClient: &http.Client{Transport: s},
		Auth: BearerAuth(func(context.Context) (string, error) { return "", broken })})
	need.OK(t, err)
	err = c.Renew(t.Context(), key, 0)
	expect.That(t, errors.Is(err, broken) && !errors.Is(err, ErrUnknownOutcome) && strings.Count(err.Error(), "no token") == 1,
		"got %v, want the error once, and that nothing happened", err)
	if len(j.lines) != 0 || c.servers.quarantined() != 0 {
		t.Errorf("%d requests were sent and %d servers put in quarantine, want none", len(j.lines), c.servers.quarantined())
	}
}

func TestAuthOfTheConfigurationStandsAboveTheURLs(t *testing.T) {
	for name, tc := range map[string]struct {
		auth Auth
		want string
	}{
		"of the URL": {nil, "Basic dTpw"},
		"basic":      {BasicAuth("v", "q"), "Basic djpx"},
		"bearer":     {BearerAuth(func(context.Context) (string, error) { return "t0ken", nil }), "Bearer t0ken"},
	} {
		var got string
		s := servers{"a": func(r *http.Request) (*http.Response, error) {
			got = r.Header.Get("Authorization")
			return answered(200, "")
		}}
		c := need.Got(New(Config{Servers: []string{"http://u:p@a"}, HTTPClient: &http.Client{Transport: s}, Auth: tc.auth}))(t)
		need.OK(t, c.Renew(t.Context(), key, 0))
		expect.Equal(t, got, tc.want, "%s: signed with", name)
	}
}

func TestNoErrorShowsAPassword(t *testing.T) {
	for name, server := range map[string]func(*http.Request) (*http.Response, error){
		"unreachable": unreachable, "cut off": cutOff, "refused": always(400, "no"), "no leader": always(503, ""), "foreign": always(404, "<html>"),
	} {
		c := need.Got(New(Config{Servers: []string{"http://user:secret@a"}, HTTPClient: &http.Client{Transport: servers{"a": server}}}))(t)
		_, err := c.Status(t.Context())
		expect.That(t, err != nil && !strings.Contains(err.Error(), "secret") && !strings.Contains(err.Error(), "user"),
			"%s: %v, want an error without user and password", name, err)
	}
}
