package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

// fakeLocks is a server of locks and semaphores that are free, or that another session holds.
type fakeLocks struct {
	*httptest.Server
	heldByAnother bool // another session holds every lock
	sessionEnds   bool // a session has ended when it is renewed

	mu    sync.Mutex
	calls []string // METHOD path, for locks and semaphores with the query
	value string   // of the last acquisition
}

func newFakeLocks(t *testing.T, f *fakeLocks) *fakeLocks {
	t.Helper()
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fakeLocks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	call := r.Method + " " + strings.TrimPrefix(r.URL.Path, "/v1/rollcall")
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, call)
	switch {
	case call == "POST /sessions":
		fmt.Fprint(w, `{"id":"s1"}`)
	case call == "PUT /sessions/s1/renew" && f.sessionEnds:
		http.Error(w, `{"error":"no such session"}`, http.StatusNotFound)
	case call == "PUT /sessions/s1/renew", call == "DELETE /sessions/s1":
		fmt.Fprint(w, `{}`)
	case r.Method == http.MethodPut && f.heldByAnother:
		fmt.Fprint(w, `{"acquired":false,"holders":[{"session":"s0","fence":41,"value":"YW5uYQ=="}]}`)
	case r.Method == http.MethodPut:
		f.value = r.URL.RawQuery
		fmt.Fprint(w, `{"acquired":true,"fence":42}`)
	case r.Method == http.MethodDelete:
		json.NewEncoder(w).Encode(map[string]bool{"released": r.URL.Query().Get("fence") == "42"})
	default:
		http.Error(w, call, http.StatusBadRequest)
	}
}

// called returns the calls without renewals.
func (f *fakeLocks) called() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.calls), func(c string) bool { return strings.HasSuffix(c, "/renew") })
}

func TestLockRunsTheCommandWhileItHolds(t *testing.T) {
	for _, tc := range []struct {
		name   string
		args   []string
		code   int
		prints string
	}{
		{name: "lock", args: []string{"lock", "demo", "--", "sh", "-c", "echo $ROLLCALL_LOCK $ROLLCALL_FENCE $ROLLCALL_SESSION"}, prints: "demo 42 s1\n"},
		{name: "semaphore", args: []string{"semaphore", "demo", "--limit", "3", "--", "sh", "-c", "echo $ROLLCALL_SEMAPHORE $ROLLCALL_FENCE"}, prints: "demo 42\n"},
		{name: "arguments that look like flags", args: []string{"lock", "demo", "--", "echo", "--try", "--", "-x"}, prints: "--try -- -x\n"},
		{name: "a command that fails", args: []string{"lock", "demo", "--", "sh", "-c", "exit 7"}, code: 7},
		{name: "a command that a signal ends", args: []string{"lock", "demo", "--", "sh", "-c", "kill -KILL $$"}, code: exitSignal + 9},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFakeLocks(t, new(fakeLocks))
			stdout, stderr, code := rollcall(t, slices.Insert(tc.args, 2, "--addr", f.URL)...)
			expect.That(t, code == tc.code && stdout == tc.prints && stderr == "",
				"exit %d, printed %q and %q, want exit %d and %q", code, stdout, stderr, tc.code, tc.prints)
			things := "/" + tc.args[0] + "s/demo"
			want := []string{"POST /sessions", "PUT " + things, "DELETE " + things, "DELETE /sessions/s1"}
			expect.That(t, slices.Equal(f.called(), want), "called %q, want %q", f.called(), want)
		})
	}
}

func TestLockDoesNotRunTheCommandUnlessItHolds(t *testing.T) {
	ap := newFakeServer(t, http.StatusNotImplemented, `{"error":"locks need consensus"}`)
	for _, tc := range []struct {
		name string
		args []string
		free bool
		addr string // of the server; "" for one of locks
		code int
		says string
	}{
		{name: "held", args: []string{"--try", "--", "echo", "run"}, code: exitNotAcquired, says: "not acquired: held by anna"},
		{name: "held for long", args: []string{"--timeout", "2s", "--", "echo", "run"}, code: exitNotAcquired, says: "deadline exceeded"},
		{name: "no server", args: []string{"--try", "--", "echo", "run"}, addr: "http://127.0.0.1:1", code: exitRollcall, says: "connection refused"},
		{name: "no consensus", args: []string{"--", "echo", "run"}, addr: ap.URL, code: exitRollcall, says: "locks need consensus"},
		{name: "no such command", args: []string{"--", "no-such-command"}, free: true, code: exitNoCommand, says: "not found"},
		{name: "no such file", args: []string{"--", "./no-such-command"}, free: true, code: exitNoCommand, says: "no such file"},
		{name: "no program", args: []string{"--", "./lock_test.go"}, free: true, code: exitCannotRun, says: "permission denied"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFakeLocks(t, &fakeLocks{heldByAnother: !tc.free})
			if tc.addr == "" {
				tc.addr = f.URL
			}
			stdout, stderr, code := rollcall(t, append([]string{"lock", "demo", "--addr", tc.addr}, tc.args...)...)
			expect.That(t, code == tc.code && stdout == "" && strings.Contains(stderr, tc.says),
				"exit %d, printed %q and said %q, want exit %d and %q", code, stdout, stderr, tc.code, tc.says)
			calls := f.called()
			expect.That(t, len(calls) == 0 || calls[len(calls)-1] == "DELETE /sessions/s1", "called %q, want the session ended at last", calls)
		})
	}
}

func TestLockEndsTheCommandWhenTheLockIsLost(t *testing.T) {
	for _, tc := range []struct {
		name    string
		command string
	}{
		{name: "a command that obeys SIGTERM", command: "exec sleep 600"},
		{name: "a command that ignores SIGTERM", command: `trap "" TERM; while :; do sleep 600; done`},
		{name: "a command that ends with success", command: `trap "exit 0" TERM; sleep 600 & wait`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFakeLocks(t, &fakeLocks{sessionEnds: true})
			_, stderr, code := rollcall(t, "lock", "demo", "--addr", f.URL, "--ttl", "1s", "--grace", "100ms", "--", "sh", "-c", tc.command)
			expect.That(t, code == exitLost && strings.Contains(stderr, "lost"), "exit %d, said %q, want exit %d", code, stderr, exitLost)
		})
	}
}
