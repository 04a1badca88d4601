package replication

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/peertest"
)

func TestCursorStaysBelowWhatWaits(t *testing.T) {
	c := newCursor(10, true)
	at, _ := c.reading()
	c.add(12, 0)
	c.add(15, 0)
	c.read(at, 20, 1, true)
	for _, step := range []struct {
		done, want registry.Index
	}{{15, 11}, {12, 20}} {
		c.done(step.done)
		expect.Equal(t, c.reached(), step.want, "with %d transmitted: at", step.done)
	}
}

func TestCursorCountsReadingOnlyWhenItHasCaughtUp(t *testing.T) {
	c := newCursor(10, true)
	at, _ := c.reading()
	c.read(at, 17, 1, false)
	expect.Equal(t, c.reached(), 10, "in the middle of the list: at")
	if at, _ = c.reading(); at.upto != 17 || at.after != 10 {
		t.Errorf("goes on at %d with what is after %d, want 17 and 10", at.upto, at.after)
	}
	c.read(at, 30, 1, true)
	expect.Equal(t, c.reached(), 30, "at the end of the list: at")
}

func TestCursorGoesBackToBeforeWhatIsGivenUp(t *testing.T) {
	c := newCursor(10, true)
	at, _ := c.reading()
	c.add(12, 0)
	c.add(15, 0)
	c.read(at, 20, 7, true)
	at, _ = c.reading()
	c.giveUp(15)
	c.read(at, 30, 8, true) // was under way
	at, _ = c.reading()
	expect.That(t, at.after == 14 && at.upto == 14 && at.clock == 0,
		"goes on at %d with what is after %d (clock %d), want 14, 14 and 0", at.upto, at.after, at.clock)
	expect.Equal(t, c.reached(), 11, "at")
	c.done(12)
	expect.Equal(t, c.reached(), 14, "at")
}

func TestCursorIsUnknownUntilARepairIsTransmitted(t *testing.T) {
	m := registrytest.New()
	m.Perform(t, registry.Register{Instance: peertest.Instance("A", "1", 1)}, registry.Register{Instance: peertest.Instance("A", "2", 1)})
	m.Pass(time.Minute)
	m.Perform(t, registry.Register{Instance: peertest.Instance("A", "young", 1)}) // which a comparison leaves out
	c := newCursor(0, false)
	_, known := c.reading()
	need.That(t, !known, "known from the beginning")
	repair := func() {
		c.add(everything, 0)
		c.add(everything, 0)
		c.compared(m.Newest())
	}
	repair()
	if at, known := c.reading(); !known || at.after != 2 {
		t.Errorf("reads after %d (known %v), want 2", at.after, known)
	}
	c.done(everything)
	expect.Equal(t, c.reached(), 0, "with half of the repair transmitted: at")
	c.giveUp(everything)
	_, known = c.reading()
	expect.That(t, !known, "a part of the repair was given up, and the cursor is known")
	repair()
	c.done(everything)
	c.done(everything)
	expect.Equal(t, c.reached(), 2, "repaired: at")
}

// The test queues, merges, transmits and gives up tasks in any order: no change is waiting, or to
// be read again, below the cursor.
func TestCursorNeverPassesWhatThePeerDoesNotKnow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCursor(5, true)
		newest := registry.Index(5)
		missing := map[registry.Index]bool{} // changes that the peer does not know
		var queued []registry.Index
		pick := func() (at registry.Index) {
			i := rapid.IntRange(0, len(queued)-1).Draw(t, "task")
			at = queued[i]
			queued = append(queued[:i], queued[i+1:]...)
			return at
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch action := rapid.IntRange(0, 3).Draw(t, "action"); {
			case action == 0:
				newest++
				missing[newest] = true
			case action == 1: // read up to some index
				at, _ := c.reading()
				if at.upto >= newest {
					break
				}
				upto := registry.Index(rapid.Uint64Range(uint64(at.upto)+1, uint64(newest)).Draw(t, "upto"))
				for i := at.upto + 1; i <= upto; i++ {
					if missing[i] {
						c.add(i, 0)
						queued = append(queued, i)
					}
				}
				c.read(at, upto, 0, upto == newest)
			case action == 2 && len(queued) > 0:
				at := pick()
				delete(missing, at)
				c.done(at)
			case action == 3 && len(queued) > 0:
				c.giveUp(pick())
			}
			for i := range missing {
				need.That(t, i > c.reached(), "the cursor is at %d, and %d was not transmitted", c.reached(), i)
			}
		}
	})
}
