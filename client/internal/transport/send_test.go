package transport

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestCloseCutsOffCallsThatAreUnderWay(t *testing.T) {
	for name, server := range map[string]func(*http.Request) (*http.Response, error){"before the response": fake.Silent, "within the response": fake.Endless} {
		fake.InBubble(t, name, func(t *testing.T) {
			j := fake.NewJournal()
			c := clusterOf(t, fake.Servers{"a": j.Around(server), "b": j.Around(fake.Always(200, ""))}, "a", "b")
			result := make(chan error)
			go func() { result <- c.cancelLease(context.Background()) }()
			synctest.Wait()
			c.Close()
			err := <-result
			expect.That(t, errors.Is(err, ErrClosed) && errors.Is(err, ErrUnknownOutcome),
				"a write that was under way: %v, want that the client is closed and the outcome unknown", err)
			if err := c.renew(t.Context()); !errors.Is(err, ErrClosed) || errors.Is(err, ErrUnknownOutcome) {
				t.Errorf("a write after it: %v, want that the client is closed, and no more", err)
			}
			expect.Equal(t, len(j.Times()), 1, "requests until and after Close:")
			expect.Equal(t, c.Quarantined(), 0, "servers in quarantine because of Close:")
		})
	}
}

func TestStreamEndsWithTheClientAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watch := &Call{method: http.MethodGet, path: []string{"v1", "rollcall", "watch"}, Accept: "text/event-stream"}
		c := clusterOf(t, fake.Servers{"a": func(r *http.Request) (*http.Response, error) {
			expect.Equal(t, r.Header.Get("Accept"), watch.Accept, "Accept:")
			return fake.Endless(r)
		}}, "a")
		body, _, err := c.OpenStream(t.Context(), serverAt("a"), watch)
		need.OK(t, err)
		defer body.Close()
		result := make(chan error)
		go func() {
			_, err := body.Read(make([]byte, 1))
			result <- err
		}()
		time.Sleep(time.Hour) // nothing but its caller and the client bounds it
		c.Close()
		expect.ErrorIs(t, <-result, ErrClosed, "the stream ended with")
		_, _, err = c.OpenStream(t.Context(), serverAt("a"), watch)
		expect.ErrorIs(t, err, ErrClosed, "another one:")
	})
}

func TestAuthThatFailsEndsTheCall(t *testing.T) {
	j := fake.NewJournal()
	s := fake.Servers{"a": j.Around(fake.Always(200, "")), "b": j.Around(fake.Always(200, ""))}
	broken := errors.New("no token")
	c := newCluster(Config{Servers: urlsOf("a", "b"), HTTPClient: &http.Client{Transport: s},
		Auth: func(*http.Request) error { return broken }})
	err := c.renew(t.Context())
	expect.That(t, errors.Is(err, broken) && !errors.Is(err, ErrUnknownOutcome) && strings.Count(err.Error(), "no token") == 1,
		"got %v, want the error once, and that nothing happened", err)
	expect.That(t, len(j.Times()) == 0 && c.Quarantined() == 0,
		"%d requests were sent and %d servers put in quarantine, want none", len(j.Times()), c.Quarantined())
}

func TestErrorsShowNoPassword(t *testing.T) {
	for name, server := range map[string]func(*http.Request) (*http.Response, error){
		"unreachable": fake.Unreachable, "cut off": fake.CutOff, "refused": fake.Always(400, "no"), "no leader": fake.Always(503, ""), "foreign": fake.Always(404, "<html>"),
	} {
		c := newCluster(Config{Servers: []string{"http://user:secret@a"}, HTTPClient: &http.Client{Transport: fake.Servers{"a": server}}})
		_, err := c.status(t.Context())
		expect.That(t, err != nil && !strings.Contains(err.Error(), "secret") && !strings.Contains(err.Error(), "user"),
			"%s: %v, want an error without user and password", name, err)
	}
}

func TestResponsesAreAskedForInGzip(t *testing.T) {
	const text = `{"applications":{}}`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		expect.Equal(t, r.Header.Get("Accept-Encoding"), "gzip", "Accept-Encoding:")
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		fmt.Fprint(z, text)
		z.Close()
	}))
	defer s.Close()
	a, err := connected(t, Config{Servers: []string{s.URL}}).fetch(t.Context(), "apps")
	expect.That(t, err == nil && string(a.Body) == text, "got %s, %v, want %s and no error", a.Body, err, text)
}
