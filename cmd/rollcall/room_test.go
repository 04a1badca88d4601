package main

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// call makes a request and returns what was answered.
func call(t *testing.T, method, url, body string) (status int, text string) {
	t.Helper()
	r := need.Got(http.NewRequest(method, url, strings.NewReader(body)))(t)
	r.Header.Set("Content-Type", "application/json")
	resp := need.Got(http.DefaultClient.Do(r))(t)
	defer resp.Body.Close()
	b := need.Got(io.ReadAll(resp.Body))(t)
	return resp.StatusCode, string(b)
}

func TestANodeWhoseDiskIsNearlyFullRefusesWhatAddsAndNothingElse(t *testing.T) {
	c := oneNode(t)
	n := need.Got(openNode(c, quiet))(t)
	var free atomic.Int64
	free.Store(int64(c.MinFree))
	n.room.free = func(string) (int64, error) { return free.Load(), nil }
	defer started(t, n)()
	url := "http://" + n.listeners[0].Addr().String()
	awaitReady(t, url)
	const instance = `{"instance":{"instanceId":"i","app":"A","hostName":"h","ipAddr":"10.0.0.1","status":"UP","dataCenterInfo":{"name":"MyOwn"}}}`
	if status, text := call(t, "POST", url+"/eureka/apps/A", instance); status != http.StatusNoContent {
		t.Fatalf("register: %d %s", status, text)
	}
	if status, text := call(t, "PUT", url+"/v1/kv/k", "v"); status != http.StatusOK {
		t.Fatalf("put: %d %s", status, text)
	}
	free.Store(int64(c.MinFree) - 1)
	n.room.look()
	for _, tt := range []struct {
		method, path, body string
		want               int
	}{
		{"POST", "/eureka/apps/A", instance, http.StatusInsufficientStorage},
		{"PUT", "/v1/kv/other", "v", http.StatusInsufficientStorage},
		{"PUT", "/v1/session/create", "{}", http.StatusInsufficientStorage},
		{"PUT", "/eureka/apps/A/i", "", http.StatusOK},
		{"GET", "/eureka/apps/A/i", "", http.StatusOK},
		{"GET", "/v1/kv/k", "", http.StatusOK},
		{"GET", "/readyz", "", http.StatusOK},
		{"DELETE", "/v1/kv/k", "", http.StatusOK},
		{"DELETE", "/eureka/apps/A/i", "", http.StatusOK},
	} {
		status, text := call(t, tt.method, url+tt.path, tt.body)
		if status != tt.want || tt.want == http.StatusInsufficientStorage && strings.HasPrefix(tt.path, "/v1") && !strings.Contains(text, "data.min-free") {
			t.Errorf("%s %s: %d %q, want %d", tt.method, tt.path, status, text, tt.want)
		}
	}
	free.Store(int64(c.MinFree))
	n.room.look()
	if status, text := call(t, "POST", url+"/eureka/apps/A", instance); status != http.StatusNoContent {
		t.Errorf("register, when there is room again: %d %s", status, text)
	}
}

func TestWhatAddsIsToldFromWhatDoesNot(t *testing.T) {
	write, remove := kv.KeyOp{Verb: kv.Set}, kv.KeyOp{Verb: kv.DeleteTree}
	for _, tt := range []struct {
		op   kv.Op
		want bool
	}{
		{write, true}, {kv.KeyOp{Verb: kv.CAS}, true}, {kv.KeyOp{Verb: kv.Acquire}, true}, {kv.CreateSession{}, true},
		{kv.Txn{Ops: []kv.KeyOp{remove, write}}, true}, {kv.Once{Op: write}, true},
		{remove, false}, {kv.KeyOp{Verb: kv.Release}, false}, {kv.Txn{Ops: []kv.KeyOp{remove}}, false},
		{kv.RenewSession{}, false}, {kv.DestroySession{}, false}, {kv.ReleasePermit{}, false}, {kv.Once{Op: remove}, false},
	} {
		expect.Equal(t, addsKeys(tt.op), tt.want, "%+v adds:", tt.op)
	}
	adds := func(op registry.Op) bool { return addsToRegistry(registry.FromClient, op) }
	expect.That(t, !adds(registry.Renew{}) && !adds(registry.Cancel{}) && adds(registry.Register{}), "registrations add, renewals and cancels do not")
	for _, low := range []func(*room) *atomic.Bool{
		func(r *room) *atomic.Bool { return &r.low }, func(r *room) *atomic.Bool { return &r.leaderLow },
	} {
		r := &room{least: 1}
		low(r).Store(true)
		expect.ErrorIs(t, r.check(true), registry.ErrFull, "got")
	}
}

func TestWhatOtherServersTellIsTakenThoughTheDiskIsNearlyFull(t *testing.T) {
	r := &room{least: 1}
	r.low.Store(true)
	expect.OKf(t, r.check(addsToRegistry(registry.FromEureka, registry.Register{})),
		"a Eureka server's batch with renewals and one registration is refused")
}

// blockedWriter takes nothing until it is opened.
type blockedWriter struct {
	opened chan struct{}

	mu    sync.Mutex
	lines []string
}

func (w *blockedWriter) Write(line []byte) (int, error) {
	<-w.opened
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, string(line))
	return len(line), nil
}

func TestALogThatBlocksKeepsNobodyWaitingAndWhatDoesNotFitIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &blockedWriter{opened: make(chan struct{})}
		q := newLogQueue(w)
		log := slog.New(slog.NewTextHandler(q, nil))
		began := time.Now()
		const lines = 300
		for i := range lines {
			log.Info("a line", "number", i, "pad", strings.Repeat("x", logQueueBytes/lines))
		}
		q.flush(logFlushLimit)
		took := time.Since(began)
		expect.That(t, took <= logFlushLimit, "%d lines and a flush took %v, want %v at most", lines, took, logFlushLimit)
		dropped := int(testutil.ToFloat64(q.dropped))
		expect.That(t, dropped != 0 && dropped <= lines/2, "%d of %d lines were dropped, want those that are above the bound", dropped, lines)

		close(w.opened)
		q.flush(time.Hour)
		for i, line := range w.lines {
			need.That(t, strings.Contains(line, fmt.Sprintf("number=%d ", i)), "line %d is %.60s, want the lines in their order", i, line)
		}
		got := len(w.lines)
		expect.That(t, got == lines-dropped, "%d lines were written after the end of the block, want %d", got, lines-dropped)
		log.Info("the last one")
		q.flush(time.Hour)
		last := w.lines[len(w.lines)-1]
		expect.That(t, strings.Contains(last, "the last one"), "the last line is %q after a flush", last)
	})
}
