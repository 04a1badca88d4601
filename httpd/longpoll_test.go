package httpd_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func (n *bubbled) poll(t *testing.T, query string) api.Changes {
	t.Helper()
	got := n.get(t, "/v1/rollcall/watch"+query)
	var p api.Changes
	err := strictly(got.body, &p)
	need.That(t, err == nil && got.status == 200 && p.Changes != nil && got.header.Get("X-Rollcall-Index") == p.Index,
		"%s: %d %s, %v", query, got.status, got.body, err)
	return p
}

func TestALongPollAnswersAtOnceWhatChangedAlready(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newBubbled(t, httpd.Config{})
		n.Perform(t, registry.Register{Instance: newInstance("A", "1")}, registry.Register{Instance: newInstance("B", "2")})
		for _, wait := range []string{"0s", "10m"} {
			begun := time.Now()
			p := n.poll(t, "?index=test-0&app=a&wait="+wait)
			expect.That(t, p.Index == "test-2" && len(p.Changes) == 1 && p.Changes[0].ID == "1" && p.Changes[0].Index == "test-1", "got %+v", p)
			expect.Equal(t, time.Since(begun), 0, "it took")
		}
	})
}

func TestALongPollAnswersWhenSomethingChanges(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newBubbled(t, httpd.Config{})
		begun := time.Now()
		time.AfterFunc(9*time.Minute, func() { n.Perform(t, registry.Register{Instance: newInstance("A", "1")}) })
		p := n.poll(t, "?index=test-0&wait=10m")
		took := time.Since(begun)
		expect.That(t, p.Index == "test-1" && len(p.Changes) == 1 && took == 9*time.Minute, "got %+v after %v", p, took)
	})
}

func TestALongPollEndsInTimeAndSaysWhereToGoOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newBubbled(t, httpd.Config{})
		begun := time.Now()
		time.AfterFunc(time.Second, func() { n.Perform(t, registry.Register{Instance: newInstance("OTHER", "1")}) })
		p := n.poll(t, "?index=test-0&app=A&wait=10m")
		took := time.Since(begun)
		expect.That(t, p.Index == "test-1" && len(p.Changes) == 0 && took == 10*time.Minute, "got %+v after %v", p, took)
		if p := n.poll(t, "?wait=0s"); p.Index != "test-1" || len(p.Changes) != 0 {
			t.Errorf("without an index: got %+v, want where it is now", p)
		}
	})
}

func TestManyChangesAreReadInParts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newBubbled(t, httpd.Config{})
		const many = 5000
		for i := range many {
			n.Perform(t, registry.Register{Instance: newInstance("A", fmt.Sprint(i))})
		}
		at, next := "test-0", 0
		for range 3 {
			p := n.poll(t, "?wait=1m&index="+at)
			for _, c := range p.Changes {
				need.That(t, c.ID == fmt.Sprint(next), "got %+v, want %d", c, next)
				next++
			}
			at = p.Index
		}
		expect.That(t, next == many && at == fmt.Sprintf("test-%d", many), "three polls got %d changes up to %s", next, at)
		s := n.watch(t, "?index=test-0")
		for i := range many {
			e := s.want("change")
			if e.data.ID != fmt.Sprint(i) || !e.at.Equal(s.start.at) {
				t.Fatalf("got %s after %v, want %d at once", e.text, e.at.Sub(s.start.at), i)
			}
		}
	})
}
