package registry

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// seeded draws as a proposer does, the same in every run.
func seeded(seed uint64) func(k int) int { return rand.New(rand.NewPCG(seed, 0)).IntN }

// halfDead is a rig with 20 leases, 10 of which have ended.
func halfDead(t *testing.T, s Settings) *rig {
	g := newRig(t)
	g.Configure(s)
	for i := range 20 {
		g.register(instance(Key{"ORDERS", fmt.Sprintf("orders-%02d", i)}, Up, 100))
	}
	g.pass(45_000)
	for i := range 10 {
		g.client(Renew{Key: Key{"ORDERS", fmt.Sprintf("orders-%02d", 2*i)}})
	}
	g.pass(50_000)
	return g
}

// round evicts what one round may take, and says how many went.
func (g *rig) round(draw func(k int) int) int {
	victims := Victims(g.Expired(g.now.Lease, 1000), g.View().RoundLimit(0), draw)
	return g.client(Evict{Epoch: g.Epoch(), Items: victims}).Count
}

// The worked example that the literature prints, with upstream's numbers: limit = n - (int) (n * 0.85).
func TestRoundsTakeTheirShare(t *testing.T) {
	tests := []struct {
		name             string
		threshold        Share
		selfPreservation bool
		evicted, left    []int
	}{
		{"the worked example", 850_000, false, []int{3, 3, 3, 1, 0}, []int{17, 14, 11, 10, 10}},
		{"threshold 0: all at once", 0, false, []int{10, 0}, []int{10, 10}},
		{"threshold 0 with self-preservation: the default share", 0, true, []int{3, 3, 3, 1, 0}, []int{17, 14, 11, 10, 10}},
		{"threshold 1: none ever", Whole, false, []int{0, 0}, []int{20, 20}},
		{"half", 500_000, false, []int{10, 0}, []int{10, 10}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := DefaultSettings()
			s.Threshold, s.SelfPreservation = tt.threshold, tt.selfPreservation
			g := halfDead(t, s)
			draw := seeded(1)
			var evicted, left []int
			for range tt.evicted {
				evicted = append(evicted, g.round(draw))
				left = append(left, g.View().Len())
			}
			expect.That(t, slices.Equal(evicted, tt.evicted) && slices.Equal(left, tt.left),
				"rounds evict %v and leave %v, want %v and %v", evicted, left, tt.evicted, tt.left)
		})
	}
}

// With upstream's defaults the worked example cannot happen: 10 of 20 are below the threshold.
func TestTheWorkedExampleNeedsSelfPreservationOff(t *testing.T) {
	for _, expectation := range []bool{false, true} {
		s := DefaultSettings()
		s.Expectation = expectation
		g := halfDead(t, s)
		v := g.View()
		op, ok := v.NextPreservation(g.now.Lease, v.Freshness(g.now.Lease))
		expect.That(t, ok && op.To == PreservationOn, "expectation %t: got %+v %t, want self-preservation on", expectation, op, ok)
	}
}

func TestVictimsAreDifferentOnesOfTheDue(t *testing.T) {
	g := halfDead(t, DefaultSettings())
	due := g.Expired(g.now.Lease, 1000)
	known := slices.Clone(due)
	var asked []int
	draw := seeded(7)
	victims := Victims(due, g.View().RoundLimit(0), func(k int) int {
		asked = append(asked, k)
		return draw(k)
	})
	want := []int{10, 9, 8}
	expect.That(t, slices.Equal(asked, want), "drawn from %v, want %v: a partial Knuth shuffle", asked, want)
	seen := map[Handle]bool{}
	for _, item := range victims {
		expect.That(t, !seen[item.Handle] && slices.Contains(known, item), "victim %v is there twice, or is not due", item)
		seen[item.Handle] = true
	}
}

// Over many rounds each application loses in proportion to what it has among the due, whatever the
// order in which they ended.
func TestNoApplicationLosesMoreThanItsShareOnAverage(t *testing.T) {
	const rounds = 3000
	sizes := map[string]int{"LARGE": 60, "MIDDLE": 30, "SMALL": 10}
	g := newRig(t)
	app := map[Handle]string{}
	for _, name := range []string{"LARGE", "MIDDLE", "SMALL"} {
		for i := range sizes[name] {
			app[g.register(instance(Key{name, fmt.Sprint(i)}, Up, 100)).Handle] = name
			g.pass(1)
		}
	}
	g.pass(200_000)
	v := g.View()
	lost := map[string]int{}
	for seed := range uint64(rounds) {
		victims := Victims(g.Expired(g.now.Lease, 1000), v.RoundLimit(0), seeded(seed))
		need.That(t, len(victims) == 15, "%d victims, want 15 of 100", len(victims))
		for _, item := range victims {
			lost[app[item.Handle]]++
		}
	}
	for name, size := range sizes {
		share := float64(size) / 100
		got := float64(lost[name]) / (15 * rounds)
		expect.That(t, got >= share-0.01 && got <= share+0.01, "%s lost %.3f of all, want its share of %.2f", name, got, share)
	}
}
