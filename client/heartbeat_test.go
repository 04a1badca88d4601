package client

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// cluster is a server that knows at most one instance.
type cluster struct {
	mu     sync.Mutex
	dirty  []string // lastDirtyTimestamp of each registration
	known  bool
	refuse int // status of the next answers; 0: none
}

func (s *cluster) answer(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.refuse != 0:
		return answered(s.refuse, "")
	case r.Method == http.MethodPost:
		s.known = true
		return answered(204, "")
	case !s.known:
		return answered(404, "")
	case r.Method == http.MethodDelete:
		s.known = false
	case r.Method == http.MethodPut:
		s.dirty = append(s.dirty, r.URL.Query().Get("lastDirtyTimestamp"))
	}
	return answered(200, "")
}

// is changes the cluster from another goroutine.
func (s *cluster) is(refuse int, known bool) func() {
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.refuse, s.known = refuse, known
	}
}

func instance() *registry.Instance {
	return &registry.Instance{
		InstanceID: "orders-1", HostName: "h", App: "ORDERS", IPAddr: "10.0.0.1", Status: registry.Up,
		DataCenter: registry.DataCenter{Name: registry.MyOwn}, RenewalInterval: 10, Duration: 30,
	}
}

// methods is the journal without paths: the order of what was done.
func (j *journal) methods() string {
	var m []string
	for line := range strings.Lines(j.String()) {
		method, _, _ := strings.Cut(line, " ")
		m = append(m, method)
	}
	return strings.Join(m, " ")
}

// live runs a heartbeat for a time, calling each step at its time, and returns its result.
func live(t *testing.T, c *Client, d time.Duration, steps map[time.Duration]func()) error {
	t.Helper()
	for at, step := range steps {
		time.AfterFunc(at, step)
	}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return c.Heartbeat(ctx, instance())
}

func TestHeartbeatRegistersRenewsAndCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, j := &cluster{}, newJournal()
		if err := live(t, servers{"a": j.around(s.answer)}.client(t, "a"), 35*time.Second, nil); err != nil {
			t.Fatal(err)
		}
		if got, want := j.methods(), "POST PUT PUT PUT DELETE"; got != want {
			t.Errorf("did %s, want %s", got, want)
		}
		if want := []time.Duration{0, 10 * time.Second, 20 * time.Second, 30 * time.Second, 35 * time.Second}; !slices.Equal(j.times, want) {
			t.Errorf("at %v, want %v", j.times, want)
		}
		if s.known {
			t.Error("the instance is still registered")
		}
	})
}

func TestHeartbeatRegistersAgainAsANewStateWhenTheClusterForgotIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, j := &cluster{}, newJournal()
		forget := map[time.Duration]func(){15 * time.Second: s.is(0, false)}
		if err := live(t, servers{"a": j.around(s.answer)}.client(t, "a"), 35*time.Second, forget); err != nil {
			t.Fatal(err)
		}
		if got, want := j.methods(), "POST PUT PUT POST PUT DELETE"; got != want {
			t.Errorf("did %s, want %s", got, want)
		}
		if len(s.dirty) != 2 || s.dirty[0] >= s.dirty[1] {
			t.Errorf("lastDirtyTimestamps of the renewals: %v, want a later one after the second registration", s.dirty)
		}
	})
}

func TestHeartbeatTriesTenTimesAsOftenWhileItFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, j := &cluster{}, newJournal()
		outage := map[time.Duration]func(){
			5 * time.Second:          s.is(503, true),
			12500 * time.Millisecond: s.is(0, true),
		}
		if err := live(t, servers{"a": j.around(s.answer)}.client(t, "a"), 20*time.Second, outage); err != nil {
			t.Fatal(err)
		}
		want := []time.Duration{0, 10 * time.Second, 11 * time.Second, 12 * time.Second, 13 * time.Second, 20 * time.Second}
		if !slices.Equal(j.times, want) {
			t.Errorf("requests at %v, want %v", j.times, want)
		}
	})
}

func TestHeartbeatEndsWhenItsFirstRegistrationIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, j := &cluster{refuse: 400}, newJournal()
		err := live(t, servers{"a": j.around(s.answer)}.client(t, "a"), time.Hour, nil)
		var status *StatusError
		if !errors.As(err, &status) || status.Status != 400 {
			t.Errorf("got %v, want the refusal", err)
		}
		if got := j.methods(); got != "POST" {
			t.Errorf("did %s, want one POST", got)
		}
	})
}

func TestHeartbeatOutlivesRefusalsOnceItWasRegistered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &cluster{}
		forbidden := map[time.Duration]func(){
			5 * time.Second:  s.is(403, true),
			15 * time.Second: s.is(0, true),
		}
		if err := live(t, servers{"a": s.answer}.client(t, "a"), 25*time.Second, forbidden); err != nil {
			t.Errorf("got %v, want a heartbeat that went on", err)
		}
	})
}

func TestHeartbeatWithoutServersEndsWithItsContextAndSaysThatItCouldNotCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if err := live(t, servers{"a": unreachable}.client(t, "a"), 25*time.Second, nil); err == nil {
			t.Error("no error, although nobody could be told of the end")
		}
	})
}

func TestHeartbeatLeavesTheGivenInstanceAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		given := instance()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := (servers{"a": (&cluster{}).answer}).client(t, "a").Heartbeat(ctx, given); err != nil {
			t.Fatal(err)
		}
		if given.LastDirty != 0 {
			t.Errorf("its lastDirtyTimestamp is %d now, want it untouched", given.LastDirty)
		}
	})
}
