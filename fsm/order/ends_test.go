package order_test

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/order"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// Renewals do not touch the heap, but it must still find what has ended.
func TestEndsFindsTheSlotsWhoseTrueEndHasPassed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var e order.Ends
		ends := map[uint32]int64{}
		trueEnd := func(slot uint32) int64 { return ends[slot] }
		end := rapid.Int64Range(0, 100)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				slot := rapid.Uint32Range(0, 20).Draw(t, "slot")
				if e.Has(slot) {
					ends[slot] = end.Draw(t, "end")
					e.Move(slot, ends[slot])
					return
				}
				ends[slot] = end.Draw(t, "end")
				e.Add(slot, ends[slot])
			},
			"renew": func(t *rapid.T) {
				for _, slot := range slices.Sorted(maps.Keys(ends)) {
					ends[slot] += rapid.Int64Range(0, 5).Draw(t, "longer")
				}
			},
			"shorten all": func(t *rapid.T) {
				for slot := range ends {
					ends[slot] /= 2
				}
				e.Reorder(trueEnd)
			},
			"remove": func(t *rapid.T) {
				slot := rapid.Uint32Range(0, 20).Draw(t, "slot")
				if e.Has(slot) {
					e.Remove(slot)
					delete(ends, slot)
				}
			},
			"": func(t *rapid.T) {
				now := end.Draw(t, "now")
				var want []uint32
				for slot, end := range ends {
					if end < now {
						want = append(want, slot)
					}
				}
				got := slices.Sorted(slices.Values(e.Ended(now, trueEnd)))
				if slices.Sort(want); !slices.Equal(got, want) || e.Len() != len(ends) {
					t.Fatalf("ended before %d are %v of %d, want %v of %v", now, got, e.Len(), want, ends)
				}
				for _, slot := range got {
					need.Equal(t, e.Known(slot), ends[slot], "slot %d ends at", slot)
				}
			},
		})
	})
}

func TestScheduleYieldsWhatIsDueInOrder(t *testing.T) {
	s := order.NewSchedule(strings.Compare)
	for key, at := range map[string]int64{"a": 5, "b": 3, "c": 5, "d": 6, "gone": 1} {
		s.Set(at, key)
	}
	before := s.Copy()
	s.Delete(1, "gone")
	var got []string
	for _, key := range s.Due(5) {
		got = append(got, key)
	}
	expect.That(t, slices.Equal(got, []string{"b", "a", "c"}) && s.Len() == 4 && before.Len() == 5,
		"due at 5 are %v of %d, of %d in the copy; want b, a, c of 4, of 5", got, s.Len(), before.Len())
	at, key, _ := s.First()
	last, ok := s.Last()
	expect.That(t, at == 3 && key == "b" && last == 6 && ok && s.Has(6, "d") && !s.Has(5, "d"),
		"the first is %q at %d, the last at %d; want b at 3, and 6", key, at, last)
}

func TestLaterStaysWithinTheClock(t *testing.T) {
	for ms, want := range map[int64]int64{5: 15, math.MaxInt64: math.MaxInt64, math.MaxInt64 - 10: math.MaxInt64} {
		expect.Equal(t, order.Later(10, ms), want, "%d ms later is", ms)
	}
}
