package balance

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// instances returns n instances of an application, in zones that take turns.
func instances(app string, n int, zones ...string) []*registry.Instance {
	var list []*registry.Instance
	for k := range n {
		i := &registry.Instance{
			App: app, InstanceID: fmt.Sprintf("%s-%02d", strings.ToLower(app), k), HostName: fmt.Sprintf("h%d", k),
			IPAddr: fmt.Sprintf("10.0.0.%d", k), Status: registry.Up, Port: registry.Port{Number: 8080, Enabled: true},
		}
		if len(zones) > 0 {
			i.Metadata = []registry.Pair{{Key: "zone", Value: zones[k%len(zones)]}}
		}
		list = append(list, i)
	}
	return list
}

// tally counts what was picked.
func tally(p Picker, list []*registry.Instance, times int) map[string]int {
	picked := make(map[string]int)
	for range times {
		picked[p.Pick(list).ID()]++
	}
	return picked
}

// checkFair fails the test unless each instance of list was picked each times, and nothing else.
func checkFair(t *testing.T, picked map[string]int, list []*registry.Instance, each int) {
	t.Helper()
	for _, i := range list {
		expect.That(t, picked[i.ID()] == each, "of %d, %s was picked %d times, want %d: %v", len(list), i.ID(), picked[i.ID()], each, picked)
	}
	expect.That(t, len(picked) == len(list), "picked %v from a list of %d", picked, len(list))
}

func TestRoundRobinPicksEachInstanceEquallyOften(t *testing.T) {
	for n := 1; n <= 7; n++ {
		list := instances("ORDERS", n)
		checkFair(t, tally(RoundRobin(), list, 5*n), list, 5)
	}
}

func TestRoundRobinIsFairAmongManyCallers(t *testing.T) {
	const callers, rounds = 10, 500
	list := instances("ORDERS", 5)
	p := RoundRobin()
	picked := make([]map[string]int, callers)
	var g sync.WaitGroup
	for c := range callers {
		g.Go(func() { picked[c] = tally(p, list, len(list)*rounds/callers) })
	}
	g.Wait()
	sum := make(map[string]int)
	for _, one := range picked {
		for id, times := range one {
			sum[id] += times
		}
	}
	checkFair(t, sum, list, rounds)
}

// With a common count, each of two lists of an even length would see every other turn, and half of its instances.
func TestRoundRobinOfAlternatingListsSharesNoTurns(t *testing.T) {
	orders, stock := instances("ORDERS", 4), instances("STOCK", 2)
	p := placed(t, 2, orders, stock)
	ofOrders, ofStock := make(map[string]int), make(map[string]int)
	for range 12 {
		ofOrders[p.Pick(orders).ID()]++
		ofStock[p.Pick(stock).ID()]++
	}
	checkFair(t, ofOrders, orders, 3)
	checkFair(t, ofStock, stock, 6)
}

// They lose the exact turn, not the fairness.
func TestRoundRobinOfListsInOnePlaceIsNotInStep(t *testing.T) {
	orders, stock := instances("ORDERS", 2), instances("STOCK", 2)
	p := placed(t, 1, orders, stock)
	picked := make(map[string]int)
	for range 1000 {
		p.Pick(orders)
		picked[p.Pick(stock).ID()]++
	}
	for _, i := range stock {
		if picked[i.ID()] < 350 { // the odds against it are above 10 to the 20th
			t.Errorf("picked %v of 1000, want about half each", picked)
		}
	}
}

// placed returns a picker that has picked from lists which occupy the given number of places in it.
func placed(t *testing.T, places int, lists ...[]*registry.Instance) Picker {
	t.Helper()
	for range 100_000 {
		r := RoundRobin().(*roundRobin)
		for _, list := range lists {
			r.Pick(list)
		}
		taken := 0
		for i := range r.places {
			if r.places[i].Load() != nil {
				taken++
			}
		}
		if taken == places {
			return r
		}
	}
	t.Fatalf("no picker has %d places for %d lists", places, len(lists))
	return nil
}

func TestRoundRobinBeginsWithAnyInstance(t *testing.T) {
	list := instances("ORDERS", 4)
	first := make(map[string]bool)
	for range 64 {
		first[RoundRobin().Pick(list).ID()] = true
	}
	expect.That(t, len(first) != 1, "64 pickers began with %v", first)
}

func TestRoundRobinGoesOnFairlyWhenTheListChanges(t *testing.T) {
	all := instances("ORDERS", 4)
	p := RoundRobin()
	for _, list := range [][]*registry.Instance{all, all[:3], all[1:], slices.Delete(slices.Clone(all), 1, 2), all} {
		checkFair(t, tally(p, list, 3*len(list)), list, 3)
	}
}

func TestPickersPickNothingFromAnEmptyList(t *testing.T) {
	for name, p := range map[string]Picker{"RoundRobin": RoundRobin(), "InZone": InZone("a", nil)} {
		expect.That(t, p.Pick(nil) == nil, "%s picked an instance", name)
	}
}

// last picks the last of a list.
type last struct{}

func (last) Pick(list []*registry.Instance) *registry.Instance { return list[len(list)-1] }

func TestInZonePicksInstancesOfTheZoneWhileThereIsOne(t *testing.T) {
	list := instances("ORDERS", 6, "a", "b", "c")
	tests := []struct {
		name string
		zone string
		list []*registry.Instance
		want []*registry.Instance
	}{
		{name: "two in the zone", zone: "b", list: list, want: []*registry.Instance{list[1], list[4]}},
		{name: "one is left in the zone", zone: "b", list: list[:4], want: list[1:2]},
		{name: "none in the zone", zone: "d", list: list, want: list},
		{name: "no zone", zone: "", list: list, want: list},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			checkFair(t, tally(InZone(test.zone, nil), test.list, 2*len(test.want)), test.want, 2)
			got, want := InZone(test.zone, last{}).Pick(test.list), test.want[len(test.want)-1]
			expect.That(t, got == want, "the given picker chose %s, want it to choose %s", got.ID(), want.ID())
		})
	}
}

// From the call that finds it dead until the time is over.
func TestAvoidedInstanceIsPassedOverForATime(t *testing.T) {
	tests := []struct {
		name  string
		avoid time.Duration
		want  map[time.Duration][]string // the instances that are asked, by time since the first call
	}{
		{name: "by default", want: map[time.Duration][]string{
			0:                            {"h0:8080", "h1:8080"},
			time.Millisecond:             {"h1:8080"},
			DefaultAvoid - 1:             {"h1:8080"},
			DefaultAvoid:                 {"h0:8080", "h1:8080"},
			DefaultAvoid + 1:             {"h1:8080"},
			2*DefaultAvoid + time.Second: {"h0:8080", "h1:8080"},
		}},
		{name: "as configured", avoid: time.Minute, want: map[time.Duration][]string{
			0:               {"h0:8080", "h1:8080"},
			time.Minute - 1: {"h1:8080"},
			time.Minute:     {"h0:8080", "h1:8080"},
		}},
		{name: "never", avoid: -1, want: map[time.Duration][]string{
			0: {"h0:8080", "h1:8080"},
			1: {"h0:8080", "h1:8080"},
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &network{hosts: map[string]func(*http.Request) (*http.Response, error){"h1:8080": ok}}
				transport := list(instances("ORDERS", 2)...).transport(t, Config{Base: n, Picker: inTurn{}, Avoid: test.avoid})
				start := time.Now()
				for _, after := range sortedKeys(test.want) {
					time.Sleep(time.Until(start.Add(after)))
					expect.OKf(t, expect.Err(get(t, transport, "http://orders/")), "after %v", after)
					expect.Slice(t, n.took(), test.want[after], "after %v asked", after)
				}
			})
		})
	}
}

func sortedKeys(m map[time.Duration][]string) []time.Duration {
	var keys []time.Duration
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// None is worse than another, and the first that is back is used again at once, also by others.
func TestAvoidedInstancesAreTriedWhenAllAreAvoided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{hosts: map[string]func(*http.Request) (*http.Response, error){}}
		transport := list(instances("ORDERS", 2)...).transport(t, Config{Base: n, Picker: inTurn{}})
		for range 2 {
			need.That(t, expect.Err(get(t, transport, "http://orders/")) != nil, "no error")
			expect.Slice(t, n.took(), []string{"h0:8080", "h1:8080"}, "asked")
		}
		n.hosts["h1:8080"] = ok
		for _, want := range [][]string{{"h0:8080", "h1:8080"}, {"h1:8080"}} {
			expect.OK(t, expect.Err(get(t, transport, "http://orders/")))
			expect.Slice(t, n.took(), want, "asked")
		}
	})
}

// It registers at another address, or again at the same.
func TestAvoidedInstanceThatRegistersAgainIsCalled(t *testing.T) {
	for name, start := range map[string]func(i *registry.Instance) (at string){
		"elsewhere":         func(i *registry.Instance) string { i.Port.Number = 8081; return "h0:8081" },
		"at the same place": func(i *registry.Instance) string { i.LastDirty++; return "h0:8080" },
	} {
		t.Run(name, func(t *testing.T) {
			n := &network{hosts: map[string]func(*http.Request) (*http.Response, error){"h1:8080": ok}}
			all := instances("ORDERS", 2)
			l := list(all...)
			transport := l.transport(t, Config{Base: n, Picker: inTurn{}})
			need.Got(get(t, transport, "http://orders/"))(t)
			n.took()
			restarted := *all[0]
			at := start(&restarted)
			n.hosts[at] = ok
			all = slices.Clone(all)
			all[0] = &restarted
			l.Store(&all)
			need.Got(get(t, transport, "http://orders/"))(t)
			expect.Slice(t, n.took(), []string{at}, "where it is now is to be asked: asked")
		})
	}
}

// Addresses that will never come back must not pile up.
func TestAvoidedInstancesAreRemovedWhenTheirTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &avoided{time: time.Second}
		for port := range uint16(100) {
			a.add(listed{address: address{"h", port}})
			time.Sleep(100 * time.Millisecond)
			n := len(*a.until.Load())
			need.That(t, n <= 10, "%d addresses are remembered, want those of the last second", n)
		}
		time.Sleep(time.Second)
		now := a.now()
		expect.That(t, now == nil && a.until.Load() == nil, "%v are remembered, want none", now)
	})
}

// discover returns a list of instances as a Eureka server shows it.
func discover(t *testing.T, instances ...*registry.Instance) *client.Discovery {
	t.Helper()
	var leases []*registry.Lease
	for _, i := range instances {
		leases = append(leases, &registry.Lease{Instance: i})
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write(eureka.AppendApplications(nil, eureka.Format{}, eureka.FullVersion, "", slices.Values(leases)))
	}))
	t.Cleanup(server.Close)
	c := need.Got(client.New(client.Config{Servers: []string{server.URL}}))(t)
	t.Cleanup(func() { c.Close(t.Context()) })
	d := need.Got(c.StartDiscovery(client.DiscoveryConfig{Mode: client.RefreshFull}))(t)
	need.OK(t, d.Ready(t.Context()))
	return d
}

func TestTransportFindsAnApplicationOrAVIPAddressByURL(t *testing.T) {
	orders := instances("ORDERS", 3)
	secure := registry.Port{Number: 8443, Enabled: true}
	for _, i := range orders {
		i.SecurePort, i.DataCenter.Name = secure, registry.MyOwn
	}
	orders[0].VIP, orders[0].SecureVIP = "shop,shop:7001", "safe"
	orders[1].VIP, orders[1].SecureVIP = "shop", "shop"
	orders[2].Status = registry.OutOfService
	d := discover(t, orders...)
	tests := []struct {
		name   string
		lookup func(*client.Snapshot, string, string) []*registry.Instance
		url    string
		want   []string // empty for ErrNoInstance
	}{
		{name: "an application", url: "http://orders/", want: []string{"h0:8080", "h1:8080"}},
		{name: "in any case", url: "http://Orders/", want: []string{"h0:8080", "h1:8080"}},
		{name: "its secure port", url: "https://orders/", want: []string{"h0:8443", "h1:8443"}},
		{name: "another application", url: "http://stock/"},
		{name: "a port is no part of an application's name", url: "http://orders:8080/"},
		{name: "a VIP address is no application", url: "http://shop/"},
		{name: "a VIP address", lookup: ByVIP, url: "http://shop/", want: []string{"h0:8080", "h1:8080"}},
		{name: "a VIP address with a port", lookup: ByVIP, url: "http://shop:7001/", want: []string{"h0:8080"}},
		{name: "a secure VIP address", lookup: ByVIP, url: "https://shop/", want: []string{"h1:8443"}},
		{name: "a secure VIP address without https", lookup: ByVIP, url: "http://safe/"},
		{name: "an application is no VIP address", lookup: ByVIP, url: "http://orders/"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := &network{hosts: map[string]func(*http.Request) (*http.Response, error){}}
			for _, host := range []string{"h0:8080", "h1:8080", "h2:8080", "h0:8443", "h1:8443", "h2:8443"} {
				n.hosts[host] = ok
			}
			transport := need.Got(New(Config{List: d, Lookup: test.lookup, Base: n}))(t)
			var err error
			for range max(1, len(test.want)) {
				_, err = get(t, transport, test.url)
			}
			asked := n.took()
			slices.Sort(asked)
			expect.That(t, slices.Equal(asked, test.want), "asked %v (%v), want %v", asked, err, test.want)
			expect.That(t, len(test.want) != 0 || errors.Is(err, ErrNoInstance) && strings.Contains(err.Error(), "none is UP"),
				"got %v, want ErrNoInstance because none is UP", err)
		})
	}
}

func TestTransportErrorSaysThatTheListIsEmpty(t *testing.T) {
	transport := need.Got(New(Config{List: discover(t)}))(t)
	_, err := get(t, transport, "http://orders/")
	expect.That(t, errors.Is(err, ErrNoInstance) && strings.Contains(err.Error(), "Ready"), "got %v, want ErrNoInstance that says what to wait for", err)
}
