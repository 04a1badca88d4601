package batcher

import (
	"slices"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestAcceptorIsWokenByWhatCameWhileItWorked(t *testing.T) {
	for _, row := range []struct {
		name     string
		patience int // that it goes to sleep with
		want     bool
	}{
		{"enough", 2, true},
		{"too little", 3, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newInbox[string, string]()
			b.publish(Stats{}, 0, 5)
			b.accept(&holder[string, string]{id: "a"})
			b.accept(&holder[string, string]{id: "b"})
			b.publish(Stats{}, 0, row.patience)
			expect.Equal(t, len(b.wake) == 1, row.want, "it is woken:")
		})
	}
}

func TestInboxKeepsNothingThatWasTaken(t *testing.T) {
	for _, row := range []struct {
		name  string
		tasks int
		reuse bool
	}{
		{"a usual load", 10, true},
		{"a burst", 10 * maxReused, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newInbox[string, string]()
			for range row.tasks {
				b.accept(&holder[string, string]{id: "a"})
			}
			m := b.take(mail[string, string]{})
			b.take(m)
			expect.Equal(t, cap(b.left.accepted) > 0, row.reuse, "the slice is used again:")
			kept := b.left.accepted[:cap(b.left.accepted)]
			expect.That(t, !slices.ContainsFunc(kept, func(h *holder[string, string]) bool { return h != nil }), "tasks that were taken are still referred to")
		})
	}
}
