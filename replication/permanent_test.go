package replication

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/replication/link"
	"github.com/seed-20419f34/rollcall/replication/peertest"
)

func webKey(id string) registry.Key { return registry.NewKey("WEB", id) }

// A Eureka server gives every instance a lease, which this node must renew.
func TestPermanentInstanceIsRenewedAtAEurekaServerEvery30Seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := registrytest.New()
		m.Perform(t, peertest.Web("web-1"), peertest.Web("web-2"))
		m.Perform(t, registers(0, 1)...)
		applyAs(t, m, registry.Origin{Kind: registry.RemoteDC, DC: "dc2"}, registry.Replica{Instance: peertest.Instance("WEB", "theirs", 1), Life: 1, Permanent: true})
		fars := map[string]*fakePeer{"old": known(t, m, "old"), "dc2": known(t, m, "dc2")}
		old := link.PeerConfig{Name: "old", Kind: link.Eureka, URLs: []string{"http://old:8761/eureka"}}
		r := replicate(t, m, fars, old, datacenter("dc2"))
		defer r.stop()
		elapse(time.Second)
		for beats := 1; beats <= 4; beats++ {
			want := map[registry.Key]int{webKey("web-1"): beats, webKey("web-2"): beats}
			got := fars["old"].got().beats
			expect.That(t, maps.Equal(got, want), "after %d intervals the Eureka server heard %v, want %v", beats-1, got, want)
			elapse(30 * time.Second)
		}
		if got := fars["dc2"].got().beats; len(got) > 0 {
			t.Errorf("another Rollcall datacenter heard %v, which never end there", got)
		}
	})
}

// It may have been started anew meanwhile, and know nothing.
func TestPermanentInstanceThatAEurekaServerLacksIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := registrytest.New()
		m.Perform(t, peertest.Web("web-1"))
		f := known(t, m, "old")
		r := replicate(t, m, map[string]*fakePeer{"old": f}, link.PeerConfig{Name: "old", Kind: link.Eureka, URLs: []string{"http://old:8761/eureka"}})
		defer r.stop()
		elapse(time.Second)
		f.set(func(f *fakePeer) { clear(f.has) })
		elapse(31 * time.Second)
		wantSame(t, m, f)
	})
}
