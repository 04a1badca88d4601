package kv

import (
	"slices"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

// fences returns a rig where a holds key "k" by 102, lock "l" by 103 and a permit of semaphore "s" by
// 104, of which b holds another by 105.
func fences(t *testing.T) *rig {
	r := newRig(t)
	r.session(s1) // 100
	r.session(s2)
	r.yes(acquire("k", s1))
	r.yes(AcquirePermit{Kind: Lock, Name: "l", Session: s1})
	r.yes(AcquirePermit{Kind: Semaphore, Name: "s", Session: s1, Limit: 3})
	r.yes(AcquirePermit{Kind: Semaphore, Name: "s", Session: s2, Limit: 3})
	return r
}

func TestFenceHoldsWhileItsAcquisitionLasts(t *testing.T) {
	for _, c := range []struct {
		name    string
		fence   Fence
		session string
		holds   bool
		now     Index
	}{
		{"key", Fence{Key, "k", 102}, "", true, 102},
		{"key, by its holder", Fence{Key, "k", 102}, strings.ToUpper(s1), true, 102},
		{"key, by another", Fence{Key, "k", 102}, s2, false, 102},
		{"key, other token", Fence{Key, "k", 101}, s1, false, 102},
		{"absent key", Fence{Key, "none", 102}, "", false, 0},
		{"no token", Fence{Key, "none", 0}, "", false, 0},
		{"lock", Fence{Lock, "l", 103}, "", true, 103},
		{"lock, by its holder", Fence{Lock, "l", 103}, strings.ToUpper(s1), true, 103},
		{"lock, by another", Fence{Lock, "l", 103}, s2, false, 103},
		{"lock, other token", Fence{Lock, "l", 102}, "", false, 103},
		{"absent lock", Fence{Lock, "none", 103}, "", false, 0},
		{"semaphore", Fence{Semaphore, "s", 105}, "", true, 105},
		{"semaphore, by its holder", Fence{Semaphore, "s", 105}, strings.ToUpper(s2), true, 105},
		{"semaphore, by another holder", Fence{Semaphore, "s", 105}, s1, false, 104},
		{"semaphore, other token", Fence{Semaphore, "s", 103}, "", false, 0},
		{"semaphore, other session", Fence{Semaphore, "s", 105}, s3, false, 0},
		{"a lock is no semaphore", Fence{Semaphore, "l", 103}, "", false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			holds, now := fences(t).View().Holds(c.fence, c.session)
			expect.That(t, holds == c.holds && now == c.now, "%+v by %q: holds %t, now %d; want %t, %d", c.fence, c.session, holds, now, c.holds, c.now)
		})
	}
}

func TestWaitingIsNoFence(t *testing.T) {
	r := inLine(t)
	holds, now := r.View().Holds(Fence{Lock, "x", 0}, s2)
	expect.That(t, !holds && now == 104, "holds %t, now %d; want the holder's token 104 only", holds, now)
	r.yes(DestroySession{ID: s1})
	holds, now = r.View().Holds(Fence{Lock, "x", 104}, "")
	expect.That(t, !holds && now == 107, "holds %t, now %d; want b's token 107 only", holds, now)
}

// What is written is often not what was locked.
func TestWritesFencedByWhatIsHeldElsewhere(t *testing.T) {
	for _, c := range []struct {
		name  string
		fence Fence
		lose  Op // afterwards the fence holds no more
		now   Index
	}{
		{"key", Fence{Key, "k", 102}, release("k", s1), 0},
		{"key that another acquired", Fence{Key, "k", 102}, DestroySession{ID: s1}, 0},
		{"lock", Fence{Lock, "l", 103}, ReleasePermit{Kind: Lock, Name: "l", Session: s1}, 0},
		{"semaphore", Fence{Semaphore, "s", 104}, ReleasePermit{Kind: Semaphore, Name: "s", Session: s1}, 0},
		{"lock that went on", Fence{Lock, "l", 103}, LeaveQueue{Kind: Lock, Name: "l", Session: s1, Release: true}, 108},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := fences(t)
			write := set("data", "1")
			write.Fence = &c.fence
			r.yes(write) // 106
			if c.now != 0 {
				r.do(AcquirePermit{Kind: c.fence.Kind, Name: c.fence.Name, Session: s2, Wait: 1000}) // 107
			}
			r.do(c.lose)
			write.Value = []byte("2")
			expect.Equal(t, r.no(write).Fence, c.now, "refused with token")
			e := r.entry("data")
			expect.That(t, string(e.Value) == "1", "the value is %q, want 1", e.Value)
		})
	}
}

func TestHeldListsKeysLocksAndSemaphores(t *testing.T) {
	r := fences(t)
	r.yes(acquire("a", s1))                                                 // 106
	r.yes(AcquirePermit{Kind: Lock, Name: "a", Session: s1})                // 107
	r.do(AcquirePermit{Kind: Lock, Name: "l", Session: s2, Wait: 1000})     // b waits only
	r.yes(AcquirePermit{Kind: Semaphore, Name: "t", Session: s2, Limit: 1}) // 109
	want := []Fence{{Key, "a", 106}, {Key, "k", 102}, {Lock, "a", 107}, {Lock, "l", 103}, {Semaphore, "s", 104}}
	expect.Slice(t, slices.Collect(r.View().Held(strings.ToUpper(s1))), want, "a holds")
	expect.Slice(t, slices.Collect(r.View().Held(s2)), []Fence{{Semaphore, "s", 105}, {Semaphore, "t", 109}}, "b holds")
	for n := range len(want) {
		for range r.View().Held(s1) {
			if n--; n < 0 {
				break // must not panic
			}
		}
	}
	got := slices.Collect(r.View().Held(s3))
	expect.That(t, len(got) == 0, "c holds %+v, want nothing", got)
}
