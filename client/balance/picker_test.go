package balance

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
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

// checkFair fails the test unless each of list was picked so many times, and nothing else.
func checkFair(t *testing.T, picked map[string]int, list []*registry.Instance, each int) {
	t.Helper()
	for _, i := range list {
		if picked[i.ID()] != each {
			t.Errorf("of %d, %s was picked %d times, want %d: %v", len(list), i.ID(), picked[i.ID()], each, picked)
		}
	}
	expect.That(t, len(picked) == len(list), "picked %v from a list of %d", picked, len(list))
}

func TestEachOfAListIsPickedEquallyOften(t *testing.T) {
	for n := 1; n <= 7; n++ {
		list := instances("ORDERS", n)
		checkFair(t, tally(RoundRobin(), list, 5*n), list, 5)
	}
}

func TestTurnsAreFairAmongManyCallers(t *testing.T) {
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

// TestListsThatAlternateDoNotShareTurns: with a common count each of two lists of an even length would see
// every other turn, and half of its instances.
func TestListsThatAlternateDoNotShareTurns(t *testing.T) {
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

// TestListsInOnePlaceAreNotPickedFromInStep: what is lost then is the exact turn, not the fairness.
func TestListsInOnePlaceAreNotPickedFromInStep(t *testing.T) {
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

// placed returns a picker that has picked from lists, which take so many places in it.
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

func TestPickersBeginWithAnyInstance(t *testing.T) {
	list := instances("ORDERS", 4)
	first := make(map[string]bool)
	for range 64 {
		first[RoundRobin().Pick(list).ID()] = true
	}
	expect.That(t, len(first) != 1, "64 pickers began with %v", first)
}

func TestTurnsGoOnFairlyWhenTheListChanges(t *testing.T) {
	all := instances("ORDERS", 4)
	p := RoundRobin()
	for _, list := range [][]*registry.Instance{all, all[:3], all[1:], slices.Delete(slices.Clone(all), 1, 2), all} {
		checkFair(t, tally(p, list, 3*len(list)), list, 3)
	}
}

func TestNothingIsPickedFromAnEmptyList(t *testing.T) {
	for name, p := range map[string]Picker{"RoundRobin": RoundRobin(), "InZone": InZone("a", nil)} {
		if i := p.Pick(nil); i != nil {
			t.Errorf("%s picked %s", name, i.Key())
		}
	}
}

// last picks the last of a list.
type last struct{}

func (last) Pick(list []*registry.Instance) *registry.Instance { return list[len(list)-1] }

func TestInstancesOfTheZoneAreCalledWhileThereIsOne(t *testing.T) {
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
			if got, want := InZone(test.zone, last{}).Pick(test.list), test.want[len(test.want)-1]; got != want {
				t.Errorf("the given picker chose %s, want it to choose %s", got.ID(), want.ID())
			}
		})
	}
}
