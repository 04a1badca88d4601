package load

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// ended is a load on a cluster that has run and is stopped.
func ended(t *testing.T, c *fakeCluster) *Load {
	t.Helper()
	l := newLoad(t, Config{Nodes: c.addrs(), Load: scenario.Load{
		Instances: 10, Heartbeat: scenario.Span(time.Second), Lease: scenario.Span(3 * time.Second),
		Registers: 50, Writes: 50, OwnKeys: 3, SharedKeys: 2,
	}, Timeout: 10 * time.Second})
	need.OK(t, l.Register(t.Context()))
	run(t, l, 200*time.Millisecond)
	l.Stop()
	return l
}

func TestALoadThatLeavesCancelsEverythingWhereItWasRegistered(t *testing.T) {
	c := newFakeCluster(t, 3)
	l := ended(t, c)
	if l.fleet.came.Load() == 0 {
		t.Fatal("no instance came that would have gone later")
	}
	if err := l.Leave(t.Context()); err != nil || c.registered() != 0 {
		t.Errorf("%d are still registered, %v, want none", c.registered(), err)
	}
	for _, s := range c.requests(http.MethodDelete, "") {
		if strings.HasPrefix(s.id, "own-") || strings.HasPrefix(s.id, "shared-") {
			continue // they are canceled everywhere
		}
		if told := c.requests(http.MethodPost, s.id)[0].node; s.node != told {
			t.Errorf("%s was registered at node %d and canceled at %d", s.id, told, s.node)
		}
	}
}

func TestALoadThatLeavesCancelsAgainWhatComesBack(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := ended(t, c)
	ignored := 0
	c.decide(func(s seen) int {
		if s.method == http.MethodDelete && s.id == "shared-0" && ignored < 4 {
			ignored++
			return http.StatusOK
		}
		return 0
	})
	if err := l.Leave(t.Context()); err != nil || c.registered() != 0 {
		t.Errorf("%d are still registered, %v, want none", c.registered(), err)
	}
}

func TestALoadThatCannotLeaveSaysHowManyStay(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := ended(t, c)
	refused := l.fleet.lasting[7].id
	c.decide(func(s seen) int {
		if s.id == refused {
			return http.StatusServiceUnavailable
		}
		return 0
	})
	err := l.Leave(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "1 of ") || c.registered() != 1 {
		t.Errorf("%d are still registered, %v, want one and an error", c.registered(), err)
	}
}
