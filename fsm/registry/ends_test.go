package registry

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// A lease ends strictly after one duration since its last renewal, and not before the epoch's grace, min(duration,
// renewal interval + 5 s), but never later than one grace after its duration.
func TestExpiredListsALeaseAfterItsLastMillisecond(t *testing.T) {
	tests := []struct {
		name               string
		interval, duration int32
		renewed            []int64 // ms after the registration
		established        int64   // ms after the registration; 0: before it
		end                int64   // the last ms of the lease, after the registration
	}{
		{"never renewed", 30, 90, nil, 0, 90_000},
		{"renewed: one duration, not two", 30, 90, []int64{30_000, 60_000}, 0, 150_000},
		{"own duration", 2, 10, []int64{4000}, 0, 14_000},
		{"renewed later than the grace", 30, 90, []int64{50_000}, 1000, 140_000},
		{"grace is the interval and 5 s", 30, 90, nil, 85_000, 120_000},
		{"grace is at most the duration", 30, 10, nil, 8000, 18_000},
		{"established right after the end", 2, 10, nil, 11_000, 17_000},
		{"established after the end and one grace", 2, 10, nil, 20_000, 17_000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			in := instance(orders1, Up, 100)
			in.RenewalInterval, in.Duration = tt.interval, tt.duration
			start := g.now.Lease
			h := g.register(in).Handle
			for _, at := range tt.renewed {
				g.now.Lease = start + at
				got := g.Expired(g.now.Lease-1, 1)
				expect.That(t, len(got) == 0, "expired before the renewal at %d: %v", at, got)
				g.client(Renew{Handle: h})
			}
			if tt.established > 0 {
				g.Advance(Stamp{Lease: start + tt.established})
				g.Establish(Epoch{Term: 1, Index: 1}, "c")
			}
			expect.Slice(t, g.Expired(start+tt.end, 1), nil, "at its end:")
			want := []EvictItem{{Handle: h, Registered: 1, RenewedAt: g.View().LastRenewal(g.lease(orders1)).Lease}}
			for range 2 {
				got := g.Expired(start+tt.end+1, 1)
				expect.That(t, slices.Equal(got, want), "after its end: %v, want %v, each time", got, want)
			}
		})
	}
}

func TestExpiredListsTheOldestEndFirst(t *testing.T) {
	g := newRig(t)
	register := func(id string, duration int32) Handle {
		in := instance(Key{App: "ORDERS", ID: id}, Up, 100)
		in.Duration = duration
		return g.register(in).Handle
	}
	a, b, c, d := register("a", 20), register("b", 10), register("c", 30), register("d", 10)
	handles := func(items []EvictItem) (hs []Handle) {
		for _, item := range items {
			hs = append(hs, item.Handle)
		}
		return hs
	}
	got, want := handles(g.Expired(g.now.Lease+11_000, 10)), []Handle{b, d}
	expect.That(t, slices.Equal(got, want), "two that end together: got %v, want %v, by slot", got, want)
	g.pass(5000)
	g.client(Renew{Handle: b}) // ends between d and a
	expect.Slice(t, handles(g.Expired(g.now.Lease+16_000, 10)), []Handle{d, b, a}, "got")
	expect.Slice(t, handles(g.Expired(g.now.Lease+26_000, 2)), []Handle{d, b}, "two of them: got")
	g.client(Cancel{Key{App: "ORDERS", ID: "b"}})
	expect.Slice(t, handles(g.Expired(g.now.Lease+26_000, 10)), []Handle{d, a, c}, "after a cancel: got")
	expect.Slice(t, g.Expired(g.now.Lease+26_000, 0), nil, "none of them: got")
}

// The heap finds what a walk over all leases finds, so no living lease is ever offered for eviction.
func TestExpiredIsWhatAWalkFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := New()
		now := Stamp{Lease: 1000, Wall: startOfWall}
		for _, s := range drawSteps.Draw(t, "steps") {
			now.Lease, now.Wall = now.Lease+s.pass, now.Wall+s.pass
			s.apply(r, now)
			v := r.View()
			due := map[Handle]bool{}
			for _, l := range r.handles.leases {
				if l == nil || l.Permanent {
					continue
				}
				renewed := v.LastRenewal(l).Lease
				grace := min(int64(l.Duration)*1000, int64(l.Interval)*1000+5000)
				doubled := int64(0)
				if r.settings.DoubledLease && renewed > l.StartedLease {
					doubled = int64(l.Duration) * 1000
				}
				additional := doubled
				since := int64(math.MinInt64) // the link was heard
				if l.Owner != "" {
					additional += 30_000
					if link, ok := v.Link(l.Owner); ok {
						since = link.Since + int64(l.Duration)*1000
					}
				}
				resumed := r.resumed
				if r.settings.Expectation {
					resumed = 0
				}
				passed := func(additional int64) bool { return now.Lease > renewed+int64(l.Duration)*1000+additional }
				inGrace := now.Lease <= r.established+grace && !passed(doubled+grace) ||
					now.Lease <= resumed+grace
				ended := passed(additional) && !inGrace && now.Lease > since
				if ended {
					due[l.Handle] = true
				}
				ends := v.Ends(l)
				need.That(t, ended == (now.Lease > ends), "at %d: %s ends at %d by its view; ended: %t", now.Lease, l.Key(), ends, ended)
			}
			got := r.Expired(now.Lease, 100)
			for _, item := range got {
				need.That(t, due[item.Handle], "at %d: %v is offered and lives", now.Lease, item)
			}
			need.That(t, len(got) == len(due), "at %d: got %v, want %v", now.Lease, got, due)
		}
	})
}

// Upstream's Lease.renew adds the duration once more, so that a renewed lease lives two durations: 180 s by default.
// A lease that was only registered lives one.
func TestDoubledLeaseLastsTwoDurationsOnceRenewed(t *testing.T) {
	const whole = 90_000
	tests := []struct {
		name    string
		after   []Op  // each 10 s after the one before; the first follows the registration
		renewed int64 // true time of the last renewal, after the registration
		lives   int64 // after that
	}{
		{"never renewed", nil, 0, whole},
		{"renewed", []Op{Renew{Key: orders1}}, 10_000, 2 * whole},
		{"renewed twice: not three durations", []Op{Renew{Key: orders1}, Renew{Key: orders1}}, 20_000, 2 * whole},
		{"renewed by an override", []Op{SetOverride{Key: orders1, Status: Up}}, 10_000, 2 * whole},
		{"registered again after its renewal", []Op{Renew{Key: orders1}, Register{instance(orders1, Up, 200)}}, 20_000, whole},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			s := DefaultSettings()
			s.DoubledLease = true
			g.Configure(s)
			start := g.now.Lease
			g.register(instance(orders1, Up, 100))
			for _, op := range tt.after {
				g.pass(10_000)
				g.client(op)
			}
			l, v := g.lease(orders1), g.View()
			got := v.LastRenewal(l).Lease - start
			expect.That(t, got == tt.renewed, "last renewal after %d ms, want the true %d", got, tt.renewed)
			want := tt.renewed + tt.lives
			expect.Equal(t, v.Ends(l)-start, want, "ms after which it ends:")
			expect.Slice(t, g.Expired(start+want, 1), nil, "at its end:")
			if got := g.Expired(start+want+1, 1); len(got) != 1 {
				t.Errorf("after its end: %v, want the lease", got)
			}
		})
	}
}

func TestDoubledLeaseSwitchedOffEndsLeasesEarlierAtOnce(t *testing.T) {
	g := newRig(t)
	s := DefaultSettings()
	s.DoubledLease = true
	g.Configure(s)
	keys := []Key{orders1, orders2, billing1}
	for _, key := range keys {
		g.register(instance(key, Up, 100))
	}
	g.pass(1000)
	for _, key := range keys {
		g.client(Renew{Key: key})
	}
	end := g.now.Lease + 90_000
	got := g.Expired(end+1, 10)
	need.That(t, len(got) == 0, "doubled: %v, want none", got)
	got = g.Expired(end+90_001, 10)
	need.That(t, len(got) == 3, "doubled, after two durations: %v, want all", got)
	g.Configure(DefaultSettings())
	got = g.Expired(end+1, 10)
	expect.That(t, len(got) == 3, "one duration again: %v, want all", got)
}

func TestNeedsClockWhileSomethingHasAnEnd(t *testing.T) {
	reaped := checkOf("web-1", "a", catalog.Critical)
	reaped.ReapAfter = 60_000
	for _, tt := range []struct {
		name string
		ops  []Op
		want bool
	}{
		{"nothing", nil, false},
		{"a lease", []Op{Register{instance(orders1, Up, 100)}}, true},
		{"a lease that went", []Op{Register{instance(orders1, Up, 100)}, Cancel{orders1}}, false},
		{"no lease", []Op{service("web", "web-1", checkOf("web-1", "a", catalog.Critical))}, false},
		{"a TTL", []Op{service("web", "web-1", withTTL("a", 1000))}, true},
		{"a TTL that has passed", []Op{service("web", "web-1", withTTL("a", 1000)), SetCheck{Check: "a", Status: catalog.Critical}}, false},
		{"a service to be reaped", []Op{service("web", "web-1", reaped)}, true},
		{"an override without end", []Op{service("web", "web-1"), SetOverride{Key: web1, Status: Down}}, false},
		{"an override with an end", []Op{service("web", "web-1"), SetOverride{Key: web1, Status: Down, For: 1000}}, true},
		{"a quarantine", []Op{service("web", "web-1"), Quarantine{Key: web1, For: 1000}}, true},
		{"held evictions", []Op{SelfPreservation{To: PreservationHeld, For: 1000, By: Act{Author: "ann"}}}, true},
	} {
		g := newRig(t)
		for _, op := range tt.ops {
			g.client(op)
		}
		expect.Equal(t, g.NeedsClock(), tt.want, "%s:", tt.name)
	}
}
