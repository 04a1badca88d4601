package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func newShared(most int64) *sharedDocuments {
	s := newSharedDocuments(prometheus.NewRegistry())
	s.most.Store(most)
	return s
}

// sizeOf returns the size of documents with a total of bytes of names and bodies.
func sizeOf(documents, bytes int) int { return documents*sharedOverhead + bytes }

// text returns a build function for a document.
func text(body string) func() (encoded, error) {
	return func() (encoded, error) { return encoded{body: []byte(body)}, nil }
}

// wants reads a document.
func (s *sharedDocuments) wants(t *testing.T, what string, version any, build func() (encoded, error), body string) {
	t.Helper()
	expect.Equal(t, string(need.Got(s.get(t.Context(), sharedKey{what: what}, version, build))(t).body), body, what)
}

func TestSharedDocumentIsMadeOnceForAllThatWaitForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared(1 << 20)
		slow := func() (encoded, error) {
			time.Sleep(time.Second)
			return encoded{body: []byte("one")}, nil
		}
		var all sync.WaitGroup
		for range 1000 {
			all.Go(func() { s.wants(t, "list", 1, slow, "one") })
		}
		all.Wait()
		expect.Equal(t, testutil.ToFloat64(s.built), 1, "documents made for a thousand requests")
		s.wants(t, "list", 2, text("two"), "two")
		s.wants(t, "other", 1, text("three"), "three")
		s.wants(t, "list", 2, text("not asked for"), "two")
		expect.Equal(t, int(s.kept()), sizeOf(2, len("list"+"two"+"other"+"three")), "bytes kept")
	})
}

func TestSharedDocumentsThatWereNotUsedForLongestGo(t *testing.T) {
	s := newShared(int64(sizeOf(2, 11)))
	for i := range 3 {
		s.wants(t, fmt.Sprint(i), 1, text("1234"), "1234")
		s.wants(t, "0", 1, text("again"), "1234")
	}
	expect.Equal(t, int(s.kept()), sizeOf(2, 10), "bytes of two of three documents")
	s.wants(t, "1", 1, text("anew"), "anew")
	s.wants(t, "0", 1, text("again"), "1234")
	s.wants(t, "large", 1, text(strings.Repeat("x", 1000)), strings.Repeat("x", 1000))
	expect.Equal(t, int(s.kept()), sizeOf(2, 10), "bytes after a document that has no place")
}

// A newer version may be requested while an older one is being made: each gets its own.
func TestSharedDocumentOfANewerVersionDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared(1000)
		go s.wants(t, "list", 1, func() (encoded, error) {
			time.Sleep(time.Minute)
			return encoded{body: []byte("old")}, nil
		}, "old")
		synctest.Wait()
		began := time.Now()
		s.wants(t, "list", 2, text("new"), "new")
		expect.Equal(t, time.Since(began), 0, "waited")
		time.Sleep(time.Hour)
		s.wants(t, "list", 2, text("made again"), "new")
		expect.Equal(t, int(s.kept()), sizeOf(1, len("list"+"new")), "bytes kept")
	})
}

func TestSharedDocumentThatFailsIsNotKept(t *testing.T) {
	broken := errors.New("broken")
	fails := func() (encoded, error) {
		time.Sleep(time.Second)
		return encoded{}, broken
	}
	synctest.Test(t, func(t *testing.T) {
		s := newShared(1000)
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				_, err := s.get(t.Context(), sharedKey{what: "list"}, 1, fails)
				expect.That(t, errors.Is(err, broken), "an error is %v", err)
			})
		}
		all.Wait()
		expect.Equal(t, testutil.ToFloat64(s.built), 1, "tries for ten requests")
		s.wants(t, "list", 1, text("well"), "well")
	})
	synctest.Test(t, func(t *testing.T) { // a client that goes away says nothing about the document
		s := newShared(1000)
		ctx, leave := context.WithCancel(t.Context())
		go func() {
			_, err := s.get(ctx, sharedKey{what: "list"}, 1, func() (encoded, error) { <-ctx.Done(); return encoded{}, ctx.Err() })
			expect.That(t, errors.Is(err, context.Canceled), "the error of who left is %v", err)
		}()
		synctest.Wait()
		go s.wants(t, "list", 1, text("well"), "well")
		synctest.Wait()
		leave()
		synctest.Wait()
		expect.Equal(t, int(s.kept()), sizeOf(1, len("list"+"well")), "bytes kept")
	})
	t.Run("a build that panics", func(t *testing.T) {
		s := newShared(1000)
		func() {
			defer func() { expect.That(t, recover() != nil, "the panic is gone") }()
			_, _ = s.get(t.Context(), sharedKey{what: "list"}, 1, func() (encoded, error) { panic("a fault") })
		}()
		s.wants(t, "list", 1, text("well"), "well")
	})
}

// An act missing from the list would be counted from 1 on, which no rate shows.
func TestActsThatAreRecordedAreCountedFromTheBeginning(t *testing.T) {
	named := regexp.MustCompile(`(?:\.Did\(|\badd\(|\bdoes :?= )"([a-z_]+)"`)
	files := append(need.Got(filepath.Glob("../own/*.go"))(t), "audit.go")
	found := 0
	for _, file := range files {
		for _, m := range named.FindAllStringSubmatch(string(need.Got(os.ReadFile(file))(t)), -1) {
			found++
			expect.That(t, slices.Contains(acts, m[1]) || strings.HasPrefix(m[1], "catalog_"), "%s records the act %s, which acts lacks", file, m[1])
		}
	}
	need.That(t, found > 15, "%d acts were found", found)
}

// FuzzCredential reads credentials from arbitrary headers and queries: a credential that is found occurs in the
// request, and no error repeats it.
func FuzzCredential(f *testing.F) {
	f.Add("", "Basic b3JkZXJzOnJjdF94", "", "token=rct_x", true)
	f.Add("rct_x", "Bearer rct_x", "bearer rct_y", "", false)
	f.Add("\xff", "Basic ?", "Negotiate", "token=%zz&token=rct_x", true)
	f.Fuzz(func(t *testing.T, token, first, second, query string, inQuery bool) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL.RawQuery = query
		r.Header["X-Consul-Token"] = []string{token}
		r.Header["Authorization"] = []string{first, second}
		text, err := credentialOf(r, inQuery)
		if err != nil {
			expect.That(t, len(token) < 24 || !strings.Contains(err.Error(), token), "the error repeats %q: %v", token, err)
			return
		}
		again, err := credentialOf(r, inQuery)
		expect.That(t, err == nil && again == text, "got %q, and again %q, %v", text, again, err)
		expect.That(t, token == "" || text == token, "got %q, and the header has %q", text, token)
		if text == "" {
			return
		}
		r.Header["X-Consul-Token"] = []string{text + "a"}
		_, err = credentialOf(r, inQuery)
		expect.That(t, token != "" || err != nil, "beside another one %q is taken", text)
	})
}

// TestLoginCookieOverTLSIsOfThisHostAlone: browsers protect cookies of this name from other hosts (RFC 6265bis,
// 4.1.3.2).
func TestLoginCookieOverTLSIsOfThisHostAlone(t *testing.T) {
	for from, want := range map[string]string{"http://node/": "rollcall-login", "https://node/": "__Host-rollcall-login"} {
		expect.Equal(t, LoginCookie(httptest.NewRequest(http.MethodGet, from, nil)), want, "the cookie of a login at %s:", from)
	}
}

func TestUptimeHasTheFormOfUpstream(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "00:00", 187 * time.Minute: "03:07", 27*time.Hour + 7*time.Minute: "1 day 03:07", 49 * time.Hour: "2 days 01:00",
	} {
		expect.Equal(t, Uptime(d), want, "%v is", d)
	}
}
