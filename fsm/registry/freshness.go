package registry

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// AppFreshness is one application's part of Freshness.
type AppFreshness struct {
	App                             string
	Leases, Counted, Fresh, Expired uint32
	// Overdue holds counted leases that are not fresh, longest silence first, at most overdueShown.
	Overdue []Overdue
}

// Overdue is a lease that is not fresh.
type Overdue struct {
	Key    Key
	Silent int64 // ms of lease clock since the last renewal
	Ends   int64 // ms of lease clock until it ends; negative: how long ago it ended
}

const overdueShown = 20

// Freshness counts, at a moment of the lease clock (ms), what self-preservation goes by, over the leases of this
// datacenter, including quarantined and excluding permanent ones:
//
//   - counted: the life is older than min(renewal interval, duration/3);
//   - fresh: counted, and renewed within min(2·interval, ⅔·duration), or within the duration
//     if 2·interval exceeds it.
//
// It walks all leases, without a lock; renewal times are live.
func (v *View) Freshness(now int64) Figures {
	f := Figures{
		Renewals:  v.expectation.renewals(now),
		Threshold: renewalThreshold(v.settings, v.expectation.Clients),
	}
	for l := range v.renewable() {
		s := v.sight(l, now)
		f.Leases++
		f.Counted += one(s.counted)
		f.Fresh += one(s.fresh)
		f.Expired += one(s.ends < 0)
	}
	return f
}

// FreshnessByApp returns Freshness per application, sorted by name.
func (v *View) FreshnessByApp(now int64) []AppFreshness {
	at := make(map[string]int)
	var apps []AppFreshness
	for l := range v.renewable() {
		key := l.Key()
		i, ok := at[key.App]
		if !ok {
			i = len(apps)
			at[key.App] = i
			apps = append(apps, AppFreshness{App: key.App})
		}
		apps[i].add(key, v.sight(l, now))
	}
	for i := range apps {
		overdue := apps[i].Overdue
		slices.SortFunc(overdue, func(x, y Overdue) int {
			return cmp.Or(cmp.Compare(y.Silent, x.Silent), x.Key.Compare(y.Key))
		})
		apps[i].Overdue = slices.Clip(overdue[:min(len(overdue), overdueShown)])
	}
	slices.SortFunc(apps, func(a, b AppFreshness) int { return strings.Compare(a.App, b.App) })
	return apps
}

func (a *AppFreshness) add(key Key, s sight) {
	a.Leases++
	a.Counted += one(s.counted)
	a.Fresh += one(s.fresh)
	a.Expired += one(s.ends < 0)
	if s.counted && !s.fresh {
		a.Overdue = append(a.Overdue, Overdue{Key: key, Silent: s.silent, Ends: s.ends})
	}
}

// renewable yields the live leases of this datacenter that clients must renew, listed or not, in the order of their
// changes.
func (v *View) renewable() iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		v.tables.live.Scan(func(_ Index, l *Lease) bool { return !l.Local() || l.Permanent || yield(l) })
	}
}

// sight is one lease as self-preservation sees it.
type sight struct {
	counted, fresh bool
	silent, ends   int64 // ms: since the last renewal, until the end
}

func (v *View) sight(l *Lease, now int64) sight {
	renewed := v.LastRenewal(l).Lease
	s := sight{
		counted: now-l.BeganLease > youth(l),
		silent:  now - renewed,
		ends:    localEnd(l, renewed, v.graces, v.settings.DoubledLease) - now,
	}
	s.fresh = s.counted && s.silent <= freshFor(l)
	return s
}

// youth returns how long (ms) a new life does not count: it proves nothing until its client should have renewed it
// once. An interval that is long for the duration is not believed.
func youth(l *Lease) int64 {
	return min(int64(l.Interval)*1000, int64(l.Duration)*1000/3)
}

// freshFor returns how long (ms) after a renewal a lease is fresh. A client that intends to renew less than twice per
// duration gets all of it.
func freshFor(l *Lease) int64 {
	two, duration := 2*int64(l.Interval)*1000, int64(l.Duration)*1000
	if two > duration {
		return duration
	}
	return min(two, duration*2/3)
}

// Condition reports whether self-preservation should be on, given the figures that Freshness counted: the one
// function behind the decision and every metric and answer. reason is a sentence with the numbers.
//
// Upstream's gate lets evictions through while there are more renewals than the threshold; this is the trigger, its
// complement, so it holds at equality.
func (v *View) Condition(f Figures) (holds bool, reason string) {
	s := v.settings
	switch {
	case !s.SelfPreservation:
		return false, "self-preservation is switched off; " + freshShare(f)
	case s.Expectation:
		return !upstreamAllows(f), upstreamReason(f)
	case f.Counted == 0:
		return false, "no lease is older than one renewal interval"
	case f.Counted < s.Population:
		return false, fmt.Sprintf("%s, too few for self-preservation, which needs %d", freshShare(f), s.Population)
	case uint64(f.Fresh)*uint64(Whole) <= uint64(f.Counted)*uint64(s.Threshold):
		return true, fmt.Sprintf("%s, not above the threshold of %s", freshShare(f), s.Threshold)
	default:
		return false, fmt.Sprintf("%s, above the threshold of %s", freshShare(f), s.Threshold)
	}
}

// freshShare says how many of the counted leases are fresh.
func freshShare(f Figures) string {
	return fmt.Sprintf("%d of %d leases were renewed in time", f.Fresh, f.Counted)
}

// upstreamReason says what upstream's formula concludes from the renewals.
func upstreamReason(f Figures) string {
	if f.Threshold == 0 {
		return "by upstream's formula, nothing is evicted under a threshold of 0 renewals per minute"
	}
	than := "not more"
	if upstreamAllows(f) {
		than = "more"
	}
	return fmt.Sprintf("by upstream's formula, %d renewals in the last minute are %s than the threshold of %d", f.Renewals, than, f.Threshold)
}

// RoundLimit returns how many more leases may be evicted in an eviction interval after taken evictions. Together they
// may be n - threshold·n, where n is the number of leases at its beginning. Permanent ones do not count.
// Source: AbstractInstanceRegistry.evict.
func (v *View) RoundLimit(taken int) int {
	n := v.Total() - v.tables.permanent + taken
	return max(0, n-keptShare(v.settings).of(n)-taken)
}

// Victims draws limit of the due leases, or all if there are fewer, at random by a partial Knuth shuffle; draw(k)
// returns a number in [0, k). due is reordered.
func Victims(due []EvictItem, limit int, draw func(k int) int) []EvictItem {
	victims := min(len(due), limit)
	for i := range victims {
		next := i + draw(len(due)-i)
		due[i], due[next] = due[next], due[i]
	}
	return due[:victims]
}

// keptShare returns the share of the registry that one eviction round leaves alone. A threshold of 0 asks for no
// self-preservation by numbers; it lets a round take everything only if self-preservation is switched off too.
func keptShare(s Settings) Share {
	if s.Threshold == 0 && s.SelfPreservation {
		return DefaultSettings().Threshold
	}
	return s.Threshold
}

// Expectation is upstream's bookkeeping at the view's moment.
// Source: AbstractInstanceRegistry.updateRenewsPerMinThreshold, MeasuredRate.
type Expectation struct {
	Clients   uint32 // expectedNumberOfClientsSendingRenews
	Threshold uint32 // numberOfRenewsPerMinThreshold
	Renewals  uint32 // of the last complete minute (renewsLastMin)
	Sliding   uint32 // of the last 60 s, estimated from the two buckets
	Allows    bool   // upstream would evict: Threshold > 0 and Renewals > Threshold
}

// Expectation returns upstream's figures, which decide only under Settings.Expectation.
func (v *View) Expectation() Expectation {
	now := v.stamp.Lease
	f := Figures{Renewals: v.expectation.renewals(now), Threshold: renewalThreshold(v.settings, v.expectation.Clients)}
	return Expectation{
		Clients:   v.expectation.Clients,
		Threshold: f.Threshold,
		Renewals:  f.Renewals,
		Sliding:   v.expectation.sliding(now),
		Allows:    upstreamAllows(f),
	}
}

// NextPreservation returns the transition of self-preservation that is due at a moment of the lease clock, given the
// figures that Freshness counted; ok is false if none is due. The caller fills in the epoch.
func (v *View) NextPreservation(now int64, f Figures) (op SelfPreservation, ok bool) {
	holds, _ := v.Condition(f)
	p := v.Preservation()
	next := nextState(p, now, holds)
	if next == p.State {
		return SelfPreservation{}, false
	}
	return SelfPreservation{From: p.State, To: next, Figures: f}, true
}
