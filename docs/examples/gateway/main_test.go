package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// semaphores is the part of Rollcall that a gateway needs, in memory.
type semaphores struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each release
	made    int
	holders map[string][]string // sessions by semaphore
	queued  chan string         // receives the semaphore's name for each request that has to wait
}

func startSemaphores(t *testing.T) (*semaphores, *client.Client) {
	t.Helper()
	s := &semaphores{changed: make(chan struct{}), holders: make(map[string][]string), queued: make(chan string, 10)}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	c, err := client.New(client.Config{Servers: []string{server.URL}})
	need.OK(t, err)
	return s, c
}

func (s *semaphores) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, isSemaphore := strings.CutPrefix(r.URL.Path, "/v1/rollcall/semaphores/")
	session := r.URL.Query().Get("session")
	switch {
	case r.Method == http.MethodPost && r.URL.Path == "/v1/rollcall/sessions":
		s.mu.Lock()
		defer s.mu.Unlock()
		s.made++
		fmt.Fprintf(w, `{"id":"s%d"}`, s.made)
	case r.Method == http.MethodPut && isSemaphore:
		s.acquire(w, r, name, session)
	case r.Method == http.MethodDelete && isSemaphore:
		s.mu.Lock()
		defer s.mu.Unlock()
		held := len(s.holders[name])
		s.holders[name] = slices.DeleteFunc(s.holders[name], func(h string) bool { return h == session })
		close(s.changed)
		s.changed = make(chan struct{})
		fmt.Fprintf(w, `{"released":%v}`, len(s.holders[name]) < held)
	case strings.HasPrefix(r.URL.Path, "/v1/rollcall/sessions/"):
		fmt.Fprint(w, `{}`)
	default:
		http.Error(w, r.URL.Path, http.StatusBadRequest)
	}
}

func (s *semaphores) acquire(w http.ResponseWriter, r *http.Request, name, session string) {
	var limit int
	fmt.Sscan(r.URL.Query().Get("limit"), &limit)
	patience, _ := time.ParseDuration(r.URL.Query().Get("wait"))
	over := time.After(patience)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.holders[name]) >= limit {
		s.queued <- name
	}
	for len(s.holders[name]) >= limit {
		changed := s.changed
		s.mu.Unlock()
		late := false
		select {
		case <-changed:
		case <-over:
			late = true
		case <-r.Context().Done():
			late = true
		}
		s.mu.Lock()
		if late {
			fmt.Fprint(w, `{"acquired":false}`)
			return
		}
	}
	s.holders[name] = append(s.holders[name], session)
	fmt.Fprintf(w, `{"acquired":true,"fence":%d}`, s.made)
}

// backend counts the calls under way, and holds each until it is released.
type backend struct {
	entered chan struct{}
	let     chan struct{}
	mu      sync.Mutex
	now     int
	most    int
}

func (b *backend) ServeHTTP(http.ResponseWriter, *http.Request) {
	b.add(1)
	b.entered <- struct{}{}
	<-b.let
	b.add(-1)
}

func (b *backend) add(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now += n
	b.most = max(b.most, b.now)
}

// startGateway returns the URL of a gateway with two routes, of limit 2 each, and their backends.
func startGateway(t *testing.T, c *client.Client, patience time.Duration) (string, map[string]*backend) {
	t.Helper()
	g := &gateway{client: c, patience: patience}
	backends := make(map[string]*backend)
	for _, path := range []string{"/reports", "/search"} {
		b := &backend{entered: make(chan struct{}, 10), let: make(chan struct{})}
		server := httptest.NewServer(b)
		t.Cleanup(server.Close)
		need.OK(t, g.routes.Set(path+"="+server.URL+",2"))
		backends[path] = b
	}
	front := httptest.NewServer(g)
	t.Cleanup(front.Close)
	return front.URL, backends
}

// get returns the status of an answer, or 0 without one.
func get(url string) (int, http.Header) {
	resp, err := http.Get(url)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header
}

func TestNeverMoreThanTheLimitAreUnderWay(t *testing.T) {
	s, c := startSemaphores(t)
	front, backends := startGateway(t, c, time.Minute)
	var calls sync.WaitGroup
	for path := range backends {
		for range 5 {
			calls.Go(func() {
				status, _ := get(front + path + "/1")
				expect.That(t, status == http.StatusOK, "%s answered %d, want 200", path, status)
			})
		}
	}
	for _, b := range backends {
		<-b.entered
		<-b.entered
	}
	waiting := make(map[string]int)
	limit := time.After(time.Minute)
	for late, n := false, 0; n < 6 && !late; n++ {
		select {
		case name := <-s.queued:
			waiting[name]++
		case <-limit:
			late = true
		}
	}
	for path := range backends {
		n := waiting["gateway"+path]
		expect.That(t, n == 3, "%d requests of %s wait, want 3", n, path)
	}
	for _, b := range backends {
		close(b.let)
	}
	calls.Wait()
	for path, b := range backends {
		expect.That(t, b.most == 2, "%d requests of %s were under way at a time, want 2", b.most, path)
	}
}

func TestARequestWhoseTurnDoesNotComeIsToldToComeAgain(t *testing.T) {
	_, c := startSemaphores(t)
	front, backends := startGateway(t, c, 2*time.Second) // far longer than the first two take
	b := backends["/reports"]
	var calls sync.WaitGroup
	for range 2 {
		calls.Go(func() { get(front + "/reports") })
		<-b.entered
	}
	status, header := get(front + "/reports")
	expect.That(t, status == http.StatusServiceUnavailable && header.Get("Retry-After") != "",
		"the third got %d, %v, want 503 with Retry-After", status, header)
	close(b.let)
	calls.Wait()
}

func TestRoutesAreWrittenOut(t *testing.T) {
	for _, text := range []string{"", "/a", "a=http://b,1", "/a=http://b", "/a=http://b,0", "/a=http://b,x", "/a=:,1"} {
		err := new(routeList).Set(text)
		expect.That(t, err != nil, "%q was taken", text)
	}
}
