package verdict

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestGhostsAndMissingAreInInstanceSeconds(t *testing.T) {
	list := func(node int, at trial.Micros, ghosts int) trial.List {
		return trial.List{Node: node, Asked: at * ms, Ghosts: ghosts}
	}
	for _, c := range []struct {
		name  string
		lists []trial.List
		want  float64
	}{
		{"none without lists", nil, 0},
		{"counts times the time since the list before", []trial.List{list(0, 0, 9), list(0, 100, 2), list(0, 300, 1)}, 0.4},
		{"the mean of the nodes", []trial.List{list(0, 0, 0), list(0, 100, 2), list(1, 0, 0), list(1, 100, 4)}, 0.3},
		{"a failed list stands as any other", []trial.List{list(0, 0, 0), {Node: 0, Asked: 100 * ms, Failed: true}, list(0, 200, 1)}, 0.1},
		{"a list stands for so long at most", []trial.List{list(0, 0, 0), list(0, 5000, 3)}, 7.5},
		{"in any order", []trial.List{list(0, 300, 1), list(0, 0, 9), list(0, 100, 2)}, 0.4},
		{"not before the load", []trial.List{list(0, -300, 0), list(0, -100, 5), list(0, 100, 2)}, 0.2},
		{"not after the load, however long lists are asked for", []trial.List{list(0, 9900, 0), list(0, 10_100, 2), list(0, 10_200, 9), list(0, 11_000, 9)}, 0.2},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := integral(byNode(c.lists), 10_000*ms, func(l trial.List) int { return l.Ghosts })
			expect.That(t, math.Abs(got-c.want) <= 1e-9, "%v instance-seconds, want %v", got, c.want)
		})
	}
}

func TestHealingIsOfTheSlowestNode(t *testing.T) {
	list := func(node int, at trial.Micros, unhealed int) trial.List {
		return trial.List{Node: node, Asked: at * ms, Unhealed: unhealed}
	}
	cut := trial.Fault{Kind: scenario.Isolate, From: 500 * ms, To: 1000 * ms}
	for _, c := range []struct {
		name   string
		faults []trial.Fault
		lists  []trial.List
		want   []Healing
	}{
		{"the first whole list after the end", []trial.Fault{cut},
			[]trial.List{list(0, 900, 0), list(0, 1100, 3), list(0, 1300, 0), list(1, 1000, 0)}, []Healing{{0, 0.3}}},
		{"not within the trial", []trial.Fault{cut}, []trial.List{list(0, 1100, 0), list(1, 1100, 2)}, []Healing{{0, -1}}},
		{"not if a node gives no list after the end", []trial.Fault{cut},
			[]trial.List{list(0, 1100, 0), list(1, 900, 0), {Node: 1, Asked: 1100 * ms, Failed: true}}, []Healing{{0, -1}}},
		{"not if a node was never asked", []trial.Fault{cut}, []trial.List{list(0, 1100, 0)}, []Healing{{0, -1}}},
		{"a lost node is not expected to", []trial.Fault{cut, {Kind: scenario.Lose, Nodes: []int{1}, From: 500 * ms, To: 500 * ms}},
			[]trial.List{list(0, 1100, 0), {Node: 1, Asked: 1100 * ms, Failed: true}}, []Healing{{0, 0.1}}},
		{"unknown if none gives a list", []trial.Fault{cut}, nil, []Healing{{0, -1}}},
		{"a fault without an end does not heal", []trial.Fault{{Kind: scenario.Die, From: 500 * ms, To: 500 * ms}}, []trial.List{list(0, 1100, 0)}, nil},
		{"lists after the next fault's end tell of that one", []trial.Fault{cut, {From: 1500 * ms, To: 2000 * ms}},
			[]trial.List{list(0, 1100, 1), list(1, 1100, 0), list(0, 2100, 0), list(1, 2050, 0)}, []Healing{{0, -1}, {1, 0.1}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect.Slice(t, factsOf(&trial.Trial{Nodes: three[:2], Faults: c.faults, Lists: c.lists}).healings(), c.want, "healings are")
		})
	}
}

func TestRemovalIsUntilTheLastNodeStoppedListing(t *testing.T) {
	departures := []trial.Departure{
		{ID: "a", Last: 1000 * ms, Node: 0, Gone: 4000 * ms},
		{ID: "a", Last: 1000 * ms, Node: 1, Gone: 5000 * ms},
		{ID: "b", Last: 1000 * ms, Node: 0, Gone: -1},
		{ID: "b", Last: 1000 * ms, Node: 1, Gone: 4000 * ms},
		{ID: "c", Last: 1000 * ms, Node: 0, Gone: 9000 * ms, Canceled: true},
	}
	got := Judge(&trial.Trial{Departures: departures}, cp, scenario.Scenario{}).Removal
	expect.Equal(t, got, (Spread{Count: 1, Never: 1, P50: 4, P90: 4, P99: 4, P999: 4, Max: 4}), "removal is")
}

func TestLostAndRevivedInstancesAreNamed(t *testing.T) {
	v := Judge(&trial.Trial{
		Nodes: three,
		Lists: []trial.List{{Back: []string{"x"}}},
		Ending: []trial.Ending{
			{Node: 0, Missing: []string{"b", "a"}, Revived: []string{"y"}, Dead: []string{"d"}},
			{Node: 1, Missing: []string{"b"}},
			{Node: 2, Failed: "gone", Missing: []string{"z"}},
		},
		Evictions: []trial.Eviction{{ID: "e", Alive: true}, {ID: "e", Alive: true, Node: 1}, {ID: "f"}},
	}, ap, scenario.Scenario{})
	expect.That(t, slices.Equal(v.Lost, []string{"a", "b"}) && slices.Equal(v.Revived, []string{"x", "y"}) && slices.Equal(v.Dead, []string{"d"}),
		"lost %v, revived %v, dead %v; want [a b], [x y], [d]", v.Lost, v.Revived, v.Dead)
	expect.That(t, v.FalseEvictions == 1, "%d false evictions, want 1", v.FalseEvictions)
	expect.That(t, slices.Equal(v.Converged.Differ, []string{"a", "y"}),
		"nodes differ on %v, want [a y]: both that were asked lack b", v.Converged.Differ)
}

func TestElectionsAndLeaderlessTimeAreOfEachDatacenter(t *testing.T) {
	said := func(at trial.Micros, node, leader int, term uint64) trial.Leader {
		return trial.Leader{At: at * ms, Node: node, Leader: leader, Term: term}
	}
	for _, c := range []struct {
		name       string
		said       []trial.Leader
		elections  int
		leaderless float64
	}{
		{"one leader", []trial.Leader{said(0, 0, 0, 1), said(10, 1, 0, 1)}, 0, 0},
		{"a new one after a pause", []trial.Leader{said(0, 0, 0, 1), said(0, 1, 0, 1), said(100, 0, -1, 1), said(300, 1, -1, 2), said(700, 1, 1, 3)}, 1, 0.4},
		{"the same one in a new term", []trial.Leader{said(0, 0, 0, 1), said(500, 0, 0, 2)}, 1, 0},
		{"each datacenter has a first one", []trial.Leader{said(0, 0, 0, 1), said(0, 3, 3, 2)}, 0, 0},
		{"the longest of the datacenters", []trial.Leader{said(0, 0, 0, 1), said(0, 3, -1, 0), said(200, 3, 3, 2)}, 0, 0.2},
		{"until the end", []trial.Leader{said(0, 0, 0, 1), said(400, 0, -1, 1)}, 0, 0.6},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := Judge(&trial.Trial{Nodes: six, Leaders: c.said, Ended: 1000 * ms}, cp, scenario.Scenario{})
			expect.That(t, v.Elections == c.elections && math.Abs(v.Leaderless-c.leaderless) <= 1e-9,
				"%d elections and %v s without a leader, want %d and %v s", v.Elections, v.Leaderless, c.elections, c.leaderless)
		})
	}
}

// ends returns the endings of nodes that hold some versions of own-1.
func ends(versions ...int64) []trial.Ending {
	var found []trial.Ending
	for node, v := range versions {
		e := trial.Ending{Node: node, Keys: map[string]int64{}}
		if v != 0 {
			e.Keys["own-1"] = v
		}
		found = append(found, e)
	}
	return found
}

func TestConvergenceComparesNodesWithEachOtherAndTheRule(t *testing.T) {
	for _, c := range []struct {
		name   string
		calls  []trial.Call
		ending []trial.Ending
		result Result
		differ []string
		lost   []string
		text   string
	}{
		{"all hold the last write", []trial.Call{write(1, 0, 1), write(2, 2, 3)}, ends(2, 2, 2), OK, nil, nil, ""},
		{"all lack what was canceled", []trial.Call{write(1, 0, 1), remove(2, 2, 3)}, ends(0, 0, 0), OK, nil, nil, ""},
		{"one node differs", []trial.Call{write(1, 0, 1), write(2, 2, 3)}, ends(2, 1, 2), Violated, []string{"own-1"}, nil,
			"own-1 differs: version 2 at node1, node3; version 1 at node2"},
		{"one node lacks it", []trial.Call{write(1, 0, 1)}, ends(1, 1, 0), Violated, []string{"own-1"}, nil,
			"own-1 differs: version 1 at node1, node2; version 0 at node3"},
		{"an update is lost", []trial.Call{write(1, 0, 1), write(2, 2, 3)}, ends(1, 1, 1), Violated, nil, []string{"own-1"},
			"every node holds version 1 of own-1, though version 2 had been acknowledged"},
		{"a canceled one is back", []trial.Call{write(1, 0, 1), remove(2, 2, 3)}, ends(1, 1, 1), Violated, nil, []string{"own-1"},
			"every node holds version 1 of own-1, though its cancel had been acknowledged"},
		{"the last write of unknown outcome may be there", []trial.Call{write(1, 0, 1), of(write(2, 2, 3), trial.Unknown)}, ends(2, 2, 2), OK, nil, nil, ""},
		{"or not", []trial.Call{write(1, 0, 1), of(write(2, 2, 3), trial.Unknown)}, ends(1, 1, 1), OK, nil, nil, ""},
		{"of several writers the greatest version stays", []trial.Call{write(2, 0, 1), write(1, 2, 3)}, ends(2, 2, 2), OK, nil, nil, ""},
		{"a node that cannot be asked leaves it open", []trial.Call{write(1, 0, 1)}, append(ends(1, 1), trial.Ending{Node: 2, Failed: "no answer"}),
			Undecided, nil, nil, "2 of 3 nodes gave an answer at the end"},
		{"a node that cannot be asked excuses no other", []trial.Call{write(1, 0, 1)}, append(ends(1, 0), trial.Ending{Node: 2, Failed: "no answer"}),
			Violated, []string{"own-1"}, nil, "own-1 differs: version 1 at node1; version 0 at node2"},
		{"without ends nothing is known", []trial.Call{write(1, 0, 1)}, nil, Undecided, nil, nil, "0 of 3 nodes gave an answer at the end"},
		{"another node does not hold a key that was never called", nil, []trial.Ending{{Keys: map[string]int64{"x": 1}}, {Node: 1}, {Node: 2}},
			Violated, []string{"x"}, nil, "x differs: version 1 at node1; version 0 at node2, node3"},
		{"a sealed instance in another version", nil, sealedIn(1, 2, 1), Violated, []string{"sealed-0"}, nil,
			"some nodes list the instance sealed-0, others do not, or in another version"},
		{"a sealed instance that all lack", nil, sealedIn(0, 0, 0), OK, nil, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := factsOf(&trial.Trial{Nodes: three, Ending: c.ending, Sealed: []trial.Sealed{{ID: "sealed-0"}}, History: c.calls}).convergence()
			expect.That(t, got.Result == c.result && slices.Equal(got.Differ, c.differ) && slices.Equal(got.Lost, c.lost) && got.Text == c.text,
				"got %+v, want %s, differ %v, lost %v, %q", got, c.result, c.differ, c.lost, c.text)
		})
	}
}

func TestStalenessIsJudgedByEarlierWritesAndLooks(t *testing.T) {
	for _, c := range []struct {
		name   string
		calls  []trial.Call // the last one is the look
		age    trial.Micros // in ms
		behind int
	}{
		{"the newest is fresh", []trial.Call{write(1, 0, 1), write(2, 2, 3), look(2, 4, 5)}, 0, 0},
		{"the one before is as old as the acknowledgement of the next", []trial.Call{write(1, 0, 1), write(2, 2, 3), look(1, 7, 8)}, 4, 1},
		{"of several next ones the first counts", []trial.Call{write(1, 0, 1), write(2, 2, 3), write(3, 4, 6), look(1, 13, 14)}, 10, 2},
		{"acknowledged after the call is no older", []trial.Call{write(1, 0, 1), write(2, 2, 8), look(1, 7, 9)}, 0, 0},
		{"a newer version than the acknowledged ones is fresh", []trial.Call{write(1, 0, 1), write(2, 2, 8), look(2, 4, 5)}, 0, 0},
		{"what was refused makes nothing old", []trial.Call{write(1, 0, 1), of(write(2, 2, 3), trial.Refused), look(1, 4, 5)}, 0, 0},
		{"a newer write of unknown outcome", []trial.Call{write(1, 0, 1), of(write(2, 2, 3), trial.Unknown), look(1, 4, 5)}, 0, 0},
		{"a canceled instance", []trial.Call{write(1, 0, 1), remove(2, 2, 3), look(1, 5, 6)}, 2, 1},
		{"absent after its cancel", []trial.Call{write(1, 0, 1), remove(2, 2, 3), look(0, 5, 6)}, 0, 0},
		{"absent while it is canceled", []trial.Call{write(1, 0, 1), remove(2, 2, 9), look(0, 5, 6)}, 0, 0},
		{"absent though registered again", []trial.Call{write(1, 0, 1), remove(2, 2, 3), write(3, 4, 5), look(0, 7, 8)}, 2, 1},
		{"absent though never canceled", []trial.Call{write(1, 0, 1), write(2, 2, 3), look(0, 7, 8)}, 6, 2},
		{"absent before the first registration", []trial.Call{write(1, 9, 10), look(0, 7, 8)}, 0, 0},
		{"absent by a cancel of unknown outcome", []trial.Call{write(1, 0, 1), of(remove(2, 2, 3), trial.Unknown), write(3, 4, 5), look(0, 7, 8)}, 0, 0},
		{"a cancel that found nothing removed nothing", []trial.Call{write(1, 0, 1), of(remove(2, 2, 3), trial.NotFound), look(1, 7, 8)}, 0, 0},
		{"written late, after its cancel", []trial.Call{of(write(1, 0, 1), trial.Unknown), remove(2, 2, 3), look(1, 5, 6)}, 0, 0},
		{"written late, under a newer version", []trial.Call{of(write(1, 0, 1), trial.Unknown), write(2, 2, 3), look(1, 5, 6)}, 2, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			age, behind := stale(c.calls, c.calls[len(c.calls)-1])
			expect.That(t, age == c.age*ms && behind == c.behind,
				"%d versions behind by %v, want %d by %v", behind, age.Duration(), c.behind, (c.age * ms).Duration())
		})
	}
}

func TestStalenessFollowsForKeysThatChangeMoreRarely(t *testing.T) {
	const s = 1000         // ms
	calls := []trial.Call{ // a change every 5 s
		write(1, 0, 1), write(2, 5*s, 5*s+1), write(3, 10*s, 10*s+1),
		look(3, 11*s, 11*s+1), look(2, 12*s, 12*s+1), look(1, 13*s, 13*s+1), look(3, 14*s, 14*s+1), of(look(1, 15*s, 15*s+1), trial.Refused),
	}
	// One look lacks a change, one lacks two: for a key that changes every 30 s the second would be stale with
	// probability 10 in 30, and so on.
	got := stalenessIn(calls).Follows
	for i, want := range []Follow{{30, (5.0/30 + 10.0/30) / 4}, {300, (5.0/300 + 10.0/300) / 4}, {3600, 15.0 / 3600 / 4}} {
		expect.That(t, got[i].Every == want.Every && math.Abs(got[i].Share-want.Share) < 1e-9, "%+v, want %+v", got[i], want)
	}
	long := []trial.Call{write(1, 0, 1), write(2, 100*s, 100*s+1), look(1, 101*s, 101*s+1)}
	expect.Equal(t, stalenessIn(long).Follows[0], Follow{30, 1}, "of a key that changes more often than this one:")
	expect.Slice(t, stalenessIn([]trial.Call{write(1, 0, 1)}).Follows, nil, "without looks:")
}

func TestMissingCountsListsThatDidNotComeAndUnansweredTheTime(t *testing.T) {
	list := func(at trial.Micros, missing int, failed bool) trial.List {
		return trial.List{Asked: at * ms, Missing: missing, Ghosts: 1, Failed: failed}
	}
	v := Judge(&trial.Trial{Length: 10_000 * ms, Lists: []trial.List{list(0, 0, false), list(100, 0, false), list(1100, 30, true), list(1200, 2, false)}}, stock, noLimits)
	expect.That(t, math.Abs(v.Missing-30.2) < 1e-9, "%v instance-seconds are missing, want 30.2", v.Missing)
	expect.That(t, math.Abs(v.Unanswered-1) < 1e-9, "%v s without an answer, want 1", v.Unanswered)
	expect.That(t, math.Abs(v.Ghosts-1.2) < 1e-9, "%v instance-seconds of ghosts, want 1.2: those of lists that came", v.Ghosts)
}

func TestToldMeansThatEveryStreamWasReadForMostOfTheTime(t *testing.T) {
	lose := []trial.Fault{{Kind: scenario.Lose, Nodes: []int{1}}}
	kill := []trial.Fault{{Kind: scenario.Kill, Nodes: []int{1}, From: 2000 * ms, To: 5000 * ms, Ready: 6000 * ms}}
	for _, c := range []struct {
		name    string
		watched []trial.Micros // in ms
		faults  []trial.Fault
		want    bool
	}{
		{"all", []trial.Micros{10_000, 5000, 11_000}, nil, true},
		{"not one", []trial.Micros{10_000, 0, 10_000}, nil, false},
		{"one for a moment", []trial.Micros{10_000, 1, 10_000}, nil, false},
		{"one for half of the time for which it ran", []trial.Micros{10_000, 3000, 10_000}, kill, true},
		{"one for less", []trial.Micros{10_000, 2999, 10_000}, kill, false},
		{"not the lost one", []trial.Micros{10_000, 0, 10_000}, lose, true},
		{"one node was not asked", []trial.Micros{10_000, 10_000}, nil, false},
		{"no node was asked", nil, nil, false},
	} {
		one := &trial.Trial{Length: 10_000 * ms, Nodes: three, Faults: c.faults}
		for node, w := range c.watched {
			one.Ending = append(one.Ending, trial.Ending{Node: node, Watched: w * ms})
		}
		expect.Equal(t, Judge(one, cp, scenario.Scenario{Load: scenario.Load{Reads: 1}}).Told, c.want, "%s: told:", c.name)
		expect.That(t, !Judge(one, cp, scenario.Scenario{Load: scenario.Load{Instances: 1}}).Told, "%s: told of a load of heartbeats, which nobody observes", c.name)
	}
}

func TestListedMeansThatEveryNodeGaveAListDuringTheLoad(t *testing.T) {
	for _, c := range []struct {
		name string
		list trial.List // of one node
		want bool
	}{
		{"all", trial.List{Node: 2, Asked: 10_000 * ms}, true},
		{"one gave none", trial.List{Node: 2, Failed: true}, false},
		{"one was not asked", trial.List{Node: 1}, false},
		{"one gave its list before the load", trial.List{Node: 2, Asked: -1}, false},
		{"one gave its list after the load", trial.List{Node: 2, Asked: 10_001 * ms}, false},
	} {
		one := &trial.Trial{Length: 10_000 * ms, Nodes: three, Lists: []trial.List{{Node: 0}, {Node: 1}, c.list}}
		expect.Equal(t, Judge(one, cp, noLimits).Listed, c.want, "%s: listed:", c.name)
	}
	lose := []trial.Fault{{Kind: scenario.Lose, Nodes: []int{2}}}
	expect.That(t, Judge(&trial.Trial{Length: 1, Nodes: three, Faults: lose, Lists: []trial.List{{Node: 0}, {Node: 1}}}, cp, noLimits).Listed, "a lost node has to give a list")
	expect.That(t, !Judge(&trial.Trial{Length: 1, Nodes: three}, cp, noLimits).Listed, "without lists it is listed")
}

func TestStalenessAgesAreThoseOfAnsweredLooks(t *testing.T) {
	calls := []trial.Call{write(1, 0, 1), write(2, 2, 3), look(1, 13, 14), look(2, 15, 16), of(look(1, 21, 22), trial.Refused)}
	expect.Slice(t, Ages(&trial.Trial{History: calls}), []Age{{Called: 13 * ms, Age: 10 * ms}, {Called: 15 * ms}}, "ages are")
}

// A list that is made anew every 30 s shows canceled instances for that long.
func TestWhatWasCanceledLaterThanAListWasMadeIsNotRevived(t *testing.T) {
	ended := &trial.Trial{
		Nodes: three, Agreed: 60_000 * ms, Ending: []trial.Ending{{Node: 0, Revived: []string{"long ago", "just now"}}},
		Departures: []trial.Departure{{ID: "long ago", Canceled: true, Last: 25_000 * ms}, {ID: "just now", Canceled: true, Last: 25_001 * ms}},
	}
	for _, c := range []struct {
		column string
		want   []string
	}{{"cp", []string{"just now", "long ago"}}, {"eureka", []string{"long ago"}}} {
		column := scenario.Columns()[slices.IndexFunc(scenario.Columns(), func(of scenario.Column) bool { return of.Name == c.column })]
		expect.Slice(t, factsOf(withoutOldLists(ended, column.ListAge())).revived(), c.want, c.column)
	}
}

// sealWrite returns an acknowledged registration of a sealed instance that took 1 ms from a moment on, in ms.
func sealWrite(from trial.Micros) trial.SealWrite {
	return trial.SealWrite{Outcome: trial.Done, Called: from * ms, Returned: (from + 1) * ms}
}

func sealCancel(from trial.Micros) trial.SealWrite {
	w := sealWrite(from)
	w.Cancel = true
	return w
}

// ended returns a write with another outcome.
func ended(w trial.SealWrite, o trial.Outcome) trial.SealWrite {
	w.Outcome = o
	if o == trial.Unknown {
		w.Returned = endless
	}
	return w
}

// doubtful returns a write whose earlier try got no answer.
func doubtful(w trial.SealWrite) trial.SealWrite {
	w.Doubtful = true
	return w
}

// sealedIn returns the endings of nodes that list the only sealed instance in some versions.
func sealedIn(versions ...int) []trial.Ending {
	var found []trial.Ending
	for node, v := range versions {
		found = append(found, trial.Ending{Node: node, Sealed: []int{v}, Watched: 1})
	}
	return found
}

func TestSealedInstanceIsLostIfANodeDoesNotHoldWhatWasAcknowledged(t *testing.T) {
	type writes = []trial.SealWrite
	const no, registration, update, cancel = "no claim", "registration", "update", "cancel"
	for _, c := range []struct {
		name   string
		writes writes
		kind   string
		kept   []int // the versions in which the nodes hold it, if nothing is lost
		lost   []int
	}{
		{"registered", writes{sealWrite(0)}, registration, []int{1, 1, 1}, []int{1, 0, 1}},
		{"registered, and lost by all", writes{sealWrite(0)}, registration, []int{1, 1, 1}, []int{0, 0, 0}},
		{"registered at the second try", writes{doubtful(sealWrite(0))}, registration, []int{1, 1, 1}, []int{1, 1, 0}},
		{"updated", writes{sealWrite(0), sealWrite(1000)}, update, []int{2, 2, 2}, []int{2, 2, 1}},
		{"updated, and lost by all", writes{sealWrite(0), sealWrite(1000)}, update, []int{2, 2, 2}, []int{0, 0, 0}},
		{"updated, the first registration unknown", writes{ended(sealWrite(0), trial.Unknown), sealWrite(1000)}, update, []int{2, 2, 2}, []int{1, 2, 2}},
		{"perhaps updated", writes{sealWrite(0), ended(sealWrite(1000), trial.Unknown)}, registration, []int{1, 2, 1}, []int{0, 2, 2}},
		{"not updated", writes{sealWrite(0), ended(sealWrite(1000), trial.Refused)}, registration, []int{1, 1, 1}, []int{0, 1, 1}},
		{"canceled", writes{sealWrite(0), sealCancel(1000)}, cancel, []int{0, 0, 0}, []int{0, 1, 0}},
		{"canceled at the second try", writes{sealWrite(0), doubtful(sealCancel(1000))}, cancel, []int{0, 0, 0}, []int{1, 1, 1}},
		{"not canceled", writes{sealWrite(0), ended(sealCancel(1000), trial.Unreached)}, registration, []int{1, 1, 1}, []int{1, 1, 0}},

		{"not found to cancel", writes{sealWrite(0), ended(sealCancel(1000), trial.NotFound)}, registration, []int{1, 1, 1}, []int{0, 0, 0}},
		{"not found to cancel, and listed by some", writes{sealWrite(0), ended(sealCancel(1000), trial.NotFound)}, registration, []int{1, 1, 1}, []int{1, 0, 1}},

		{"not found to cancel at the second try", writes{sealWrite(0), doubtful(ended(sealCancel(1000), trial.NotFound))}, no, []int{0, 0, 0}, nil},
		{"not found to cancel, the registration may come late", writes{doubtful(sealWrite(0)), ended(sealCancel(1000), trial.NotFound)}, no, []int{0, 0, 0}, nil},
		{"never written", nil, no, []int{0, 1, 0}, nil},
		{"perhaps registered", writes{ended(sealWrite(0), trial.Unknown)}, no, []int{0, 1, 0}, nil},
		{"not registered", writes{ended(sealWrite(0), trial.Refused)}, no, []int{0, 0, 0}, nil},
		{"perhaps canceled", writes{sealWrite(0), ended(sealCancel(1000), trial.Unknown)}, no, []int{0, 1, 0}, nil},
		{"refused to cancel at the second try", writes{sealWrite(0), doubtful(ended(sealCancel(1000), trial.Refused))}, no, []int{0, 0, 0}, nil},
		{"canceled, an earlier try of the registration may come late", writes{doubtful(sealWrite(0)), sealCancel(1000)}, no, []int{0, 1, 0}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			judged := func(held []int) Losses {
				return factsOf(&trial.Trial{
					Nodes: three, Sealed: []trial.Sealed{{ID: "s", Writes: c.writes}}, Ending: sealedIn(held...),
					Faults: []trial.Fault{{Kills: []trial.Kill{{At: 3001 * ms}, {At: 9000 * ms}}}},
				}).losses(noLimits)
			}
			for i, held := range [][]int{c.kept, c.lost} {
				found := judged(held)
				for kind, loss := range map[string]Loss{registration: found.Registrations, update: found.Updates, cancel: found.Cancels} {
					of, count := toNumber(kind == c.kind), toNumber(kind == c.kind && i == 1)
					expect.That(t, loss.Of == of && loss.Count == count, "held in versions %v: %ss are %+v, want %d lost of %d", held, kind, loss, count, of)
				}
			}
			if c.lost == nil {
				return
			}
			age := 3.0 // from the registration to the first kill after it
			if c.kind != registration {
				age = 2
			}
			found := judged(c.lost)
			expect.Slice(t, append(append(found.Registrations.Names, found.Updates.Names...), found.Cancels.Names...), []string{"s"}, "names are")
			got := found.Registrations.Age.Max + found.Updates.Age.Max + found.Cancels.Age.Max
			expect.Equal(t, got, age, "seconds from the acknowledgement to the kill:")
		})
	}
}

func TestClaimThatASilentNodeMayRefuteIsNotJudged(t *testing.T) {
	lose := []trial.Fault{{Kind: scenario.Lose, Nodes: []int{1}}}
	for _, c := range []struct {
		name               string
		alter              func(e []trial.Ending) []trial.Ending
		faults             []trial.Fault
		of, lost, unjudged int
	}{
		{"all answer", func(e []trial.Ending) []trial.Ending { return e }, nil, 1, 0, 0},
		{"one is silent", func(e []trial.Ending) []trial.Ending { e[1].Failed = "no answer"; return e }, nil, 0, 0, 1},
		{"one was not asked", func(e []trial.Ending) []trial.Ending { return e[1:] }, nil, 0, 0, 1},
		{"one was asked twice", func(e []trial.Ending) []trial.Ending { return append(e, e[0]) }, nil, 0, 0, 1},
		{"one was not asked for it", func(e []trial.Ending) []trial.Ending { e[1].Sealed = nil; return e }, nil, 0, 0, 1},
		{"none was asked", func([]trial.Ending) []trial.Ending { return nil }, nil, 0, 0, 1},
		{"one is silent, another one lost it", func(e []trial.Ending) []trial.Ending { e[1].Failed, e[2].Sealed = "no answer", []int{0}; return e }, nil, 1, 1, 0},
		{"a lost one is silent", func(e []trial.Ending) []trial.Ending { e[1].Failed = "no answer"; return e }, lose, 1, 0, 0},
	} {
		found := factsOf(&trial.Trial{
			Nodes: three, Sealed: []trial.Sealed{{ID: "s", Writes: []trial.SealWrite{sealWrite(0)}}}, Ending: c.alter(sealedIn(1, 1, 1)), Faults: c.faults,
		}).losses(noLimits).Registrations
		expect.That(t, found.Of == c.of && found.Count == c.lost && found.Unjudged == c.unjudged, "%s: got %+v, want %d lost of %d, %d unjudged", c.name, found, c.lost, c.of, c.unjudged)
	}
}

func TestHeartbeatIsForgottenWithinTheLeaseOnly(t *testing.T) {
	lease := scenario.Scenario{Load: scenario.Load{Lease: scenario.Span(3 * time.Second)}}
	for _, c := range []struct {
		name      string
		forgotten trial.Forgotten
		want      int
		age       float64 // 0 for none
	}{
		{"within the lease", trial.Forgotten{ID: "a", Last: 1000 * ms, At: 3999 * ms}, 1, 0.5},
		{"beyond the lease", trial.Forgotten{ID: "a", Last: 1000 * ms, At: 4000 * ms}, 0, 0},
		{"before any process ended", trial.Forgotten{ID: "a", Last: 1000 * ms, At: 1400 * ms}, 1, 0},
		{"after the processes ended", trial.Forgotten{ID: "a", Last: 7000 * ms, At: 8000 * ms}, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := factsOf(&trial.Trial{
				Nodes: three, Length: 10_000 * ms, Forgotten: []trial.Forgotten{c.forgotten},
				Faults: []trial.Fault{{Kills: []trial.Kill{{At: 5000 * ms}, {At: 1500 * ms}}}},
				Series: []trial.Series{
					{Operation: trial.Heartbeat, Bins: []trial.Bin{{Done: 7, NotFound: 2, Refused: 4}}},
					{Operation: trial.Register, Bins: []trial.Bin{{Done: 5}}},
				},
			}).losses(lease).Heartbeats
			expect.That(t, got.Of == 9 && got.Count == c.want && got.Age.Max == c.age, "%+v, want %d of 9, %v s before a kill", got, c.want, c.age)
		})
	}
}
