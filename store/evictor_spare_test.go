package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// registerOf registers an instance of another datacenter, which nobody renews.
func (g *evictionRig) registerOf(dc, id string, duration int32) registry.Key {
	g.t.Helper()
	i := instance("A", id, duration)
	g.applyFrom(registry.Origin{Kind: registry.RemoteDC, DC: dc}, registry.Register{Instance: i})
	g.clients[i.Key()] = &rigClient{}
	return i.Key()
}

// hear notes that a datacenter is heard.
func (g *evictionRig) hear(dc string) {
	g.t.Helper()
	g.applyFrom(registry.Origin{Kind: registry.RemoteDC, DC: dc}, registry.Contact{DC: dc, Cut: 15_000})
}

func TestLeasesOfOtherDatacentersStayWhileTheyAreSpared(t *testing.T) {
	inBubble(t, registry.DefaultSettings(), false, func(g *evictionRig) {
		spared := map[string]bool{"dc2": true}
		g.spares = func(dc string, _ time.Duration, _ bool) bool { return spared[dc] }
		stays, goes, own := g.registerOf("dc2", "stays", 10), g.registerOf("dc3", "goes", 10), g.register("own", 1, 10, 0)
		g.hear("dc2")
		g.pass(5 * time.Minute)
		_, gone := g.gone[stays]
		expect.That(t, !gone, "of the datacenter that is spared an instance went after %v", g.gone[stays])
		for key, at := range map[registry.Key]time.Duration{own: 10 * time.Second, goes: 40 * time.Second} {
			got, ok := g.gone[key]
			expect.That(t, ok && got > at && got <= at+time.Second+clockInterval,
				"%v went after %v (%v), want it gone within an interval after %v", key, got, ok, at)
		}
		spared["dc2"] = false
		g.pass(2 * time.Second)
		_, gone = g.gone[stays]
		expect.That(t, gone, "it is still there although nobody spares it any more")
	})
}

func TestWhatIsSparedTakesNoPartOfTheShare(t *testing.T) {
	inBubble(t, registry.DefaultSettings(), false, func(g *evictionRig) {
		g.spares = func(string, time.Duration, bool) bool { return true }
		for i := range 30 {
			g.registerOf("dc2", fmt.Sprint("r", i), 5)
		}
		g.hear("dc2")
		g.pass(time.Minute) // they have ended
		var own []registry.Key
		for i := range 4 {
			own = append(own, g.register(fmt.Sprint("own", i), 1, 5, 0))
		}
		g.pass(5*time.Second + time.Second + 2*clockInterval)
		expect.That(t, len(g.gone) == len(own), "%d went in one interval, want the %d of the own datacenter: their share is 6", len(g.gone), len(own))
	})
}

func TestThePolicyIsToldHowLongADatacenterIsSilent(t *testing.T) {
	inBubble(t, registry.DefaultSettings(), false, func(g *evictionRig) {
		type asked struct {
			heard time.Duration
			ok    bool
		}
		last := map[string]asked{}
		times := 0
		g.spares = func(dc string, heard time.Duration, ok bool) bool {
			last[dc] = asked{heard, ok}
			times++
			return true
		}
		for i := range 5 {
			g.registerOf("dc2", fmt.Sprint("a", i), 5)
			g.registerOf("never", fmt.Sprint("b", i), 5)
		}
		g.hear("dc2")
		g.pass(time.Minute)
		got := last["dc2"]
		expect.That(t, got.ok && got.heard >= 59*time.Second && got.heard <= time.Minute, "of a datacenter that was heard a minute ago it was told %+v", got)
		expect.Equal(t, last["never"], (asked{}), "of a datacenter that was never heard it was told")
		times = 0
		g.pass(10 * time.Second)
		expect.That(t, times == 2*10, "it was asked %d times in 10 rounds about 2 datacenters", times)
	})
}
