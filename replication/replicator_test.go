package replication

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/link"
)

func TestSetPeersGoesOnAtTheCursorAndLeavesOthersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := registrytest.New()
		m.Perform(t, registers(0, 10)...)
		fars := map[string]*fakePeer{"dc2": newFakePeer(), "dc3": newFakePeer(), "dc4": newFakePeer()}
		dc2, dc3, dc4 := datacenter("dc2"), datacenter("dc3"), datacenter("dc4")
		r := replicate(t, m, fars, dc2, dc3)
		defer r.stop()
		elapse(3 * time.Second)
		wantSame(t, m, fars["dc2"])
		wantSame(t, m, fars["dc3"])
		before, runs := len(fars["dc2"].got().tasks), fars["dc3"].got().runs

		dc2.URLs = []string{"http://u:p@dc2:8761"}
		need.OK(t, r.SetPeers([]link.PeerConfig{dc2, dc3, dc4}))
		m.Perform(t, registers(10, 12)...)
		elapse(3 * time.Second)
		for _, far := range fars {
			wantSame(t, m, far)
		}
		expect.Equal(t, len(fars["dc2"].got().tasks)-before, 2, "tasks for the changed peer")
		expect.Equal(t, fars["dc3"].got().runs, runs, "links to the peer that is the same")
		expect.Equal(t, r.Status()[0].URL, dc2.URLs[0], "the changed peer's URL")

		need.OK(t, r.SetPeers([]link.PeerConfig{dc4}))
		elapse(time.Second)
		calls := fars["dc2"].got().calls + fars["dc3"].got().calls
		m.Perform(t, registers(12, 14)...)
		elapse(3 * time.Second)
		wantSame(t, m, fars["dc4"])
		expect.Equal(t, fars["dc2"].got().calls+fars["dc3"].got().calls, calls, "calls to peers that are gone")
		expect.Equal(t, r.only().Name, "dc4", "the peer")
		expect.That(t, r.config.Remote("dc2") == nil && r.config.Remote("dc4") != nil, "dc2 is a peer still, or dc4 none")

		dc2.URLs = nil
		err := r.SetPeers([]link.PeerConfig{dc4, dc2})
		expect.That(t, err != nil, "a peer without a URL")
		expect.Equal(t, r.only().Name, "dc4", "the peer after a mistake")
	})
}

func TestSetPeersKeepsHowLongAPeerWasSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := registrytest.New()
		node := link.PeerConfig{Name: "10.0.0.2:8761", Kind: link.Node, URLs: []string{"http://10.0.0.2:8761"}}
		r := replicateAs(t, Config{Side: link.Side{Service: m}}, map[string]*fakePeer{node.Name: newFakePeer()}, node)
		defer r.stop()
		elapse(time.Minute)
		before := r.Age()
		node.BatchSize = 9
		need.OK(t, r.SetPeers([]link.PeerConfig{node}))
		expect.Equal(t, r.Age(), before, "the age of what this node has")
	})
}
