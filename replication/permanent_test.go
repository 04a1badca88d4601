package replication

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// web is a service that was registered through Consul's API, with a check.
func web(id string) registry.RegisterCatalog {
	return registry.RegisterCatalog{
		Service:  &catalog.Service{Name: "web", ID: id},
		Instance: instance("WEB", id, 0),
		Checks:   []*catalog.Check{{ID: "check-" + id, Service: id}},
	}
}

func webKey(id string) registry.Key { return registry.NewKey("WEB", id) }

func TestAnInstanceWithoutALeaseIsToldToOtherDatacenters(t *testing.T) {
	a, b := runPair(t, Datacenter)
	a.Perform(t, web("web-1"), registry.SetOverride{Key: webKey("web-1"), Status: registry.OutOfService})
	eventually(t, "the peer has it", func() bool { return b.Newest().Total() == 1 && same(a, b) })
	l, _ := b.Newest().Find(webKey("web-1"))
	expect.That(t, l.Permanent && l.Service == nil && l.Owner == "dc1" && l.Instance.Status == registry.OutOfService,
		"told as %+v of %+v, want one of dc1 without a lease", l, l.Instance)
	a.Perform(t, registry.DeleteOverride{Key: webKey("web-1")}, registry.SetCheck{Check: "check-web-1", Status: catalog.Critical})
	eventually(t, "its check's state is told", func() bool {
		l, ok := b.Newest().Find(webKey("web-1"))
		return ok && l.Instance.Status == registry.Down && same(a, b)
	})
	both(a, b, 24*time.Hour)
	a.Evict()
	b.Evict()
	if a.Newest().Total() != 1 || b.Newest().Total() != 1 {
		t.Errorf("after a day %d and %d are left, want it on both sides", a.Newest().Total(), b.Newest().Total())
	}
	for range 2 {
		d, err := a.Repair(t.Context(), "dc2")
		expect.That(t, err == nil && d.Apps == 0, "compared: %+v, %v; want no difference", d, err)
	}
	a.Perform(t, registry.DeregisterCatalog{Service: "web-1"})
	eventually(t, "it is gone there", func() bool { return b.Newest().Total() == 0 })
}

// A Eureka server gives every instance a lease, which somebody must renew.
func TestAEurekaServerHearsInstancesWithoutALeaseEvery30Seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := registrytest.New()
		m.Perform(t, web("web-1"), web("web-2"))
		m.Perform(t, registers(0, 1)...)
		applyAs(t, m, registry.Origin{Kind: registry.RemoteDC, DC: "dc2"}, registry.Replica{Instance: instance("WEB", "theirs", 1), Life: 1, Permanent: true})
		fars := map[string]*far{"old": known(t, m, "old"), "dc2": known(t, m, "dc2")}
		old := PeerConfig{Name: "old", Kind: Eureka, URLs: []string{"http://old:8761/eureka"}}
		r := replicate(t, m, fars, old, datacenter("dc2"))
		defer r.stop()
		elapse(time.Second)
		for beats := 1; beats <= 4; beats++ {
			want := map[registry.Key]int{webKey("web-1"): beats, webKey("web-2"): beats}
			got := fars["old"].heard().beats
			expect.That(t, maps.Equal(got, want), "after %d intervals the Eureka server heard %v, want %v", beats-1, got, want)
			elapse(30 * time.Second)
		}
		if got := fars["dc2"].heard().beats; len(got) > 0 {
			t.Errorf("another Rollcall datacenter heard %v, which never end there", got)
		}
	})
}

// It may have been started anew meanwhile, and know nothing.
func TestAEurekaServerThatLacksAnInstanceWithoutALeaseGetsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := registrytest.New()
		m.Perform(t, web("web-1"))
		f := known(t, m, "old")
		r := replicate(t, m, map[string]*far{"old": f}, PeerConfig{Name: "old", Kind: Eureka, URLs: []string{"http://old:8761/eureka"}})
		defer r.stop()
		elapse(time.Second)
		f.set(func(f *far) { clear(f.has) })
		elapse(31 * time.Second)
		wantSame(t, m, f)
	})
}
