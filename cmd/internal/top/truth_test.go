package top

import (
	"errors"
	"slices"
	"testing"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

var heard = int64(41_000)

// states has a row for each truth: what brings it about, and the line of state then.
var states = []struct {
	name  string
	read  func(r *reading) // what the server says, at second 2
	later func(m *model)   // what happens besides
	want  string
}{
	{name: "no server responds", later: func(m *model) {
		m.add(reading{at: at(3), failures: []failure{{first, errors.New("connection refused")}, {second, errors.New("no route")}}})
		m.add(reading{at: at(4), failures: []failure{{first, errors.New("connection refused")}, {second, errors.New("no route")}}})
	}, want: "No answer from any server since 12:00:03Z: http://10.0.0.1:8761 (connection refused), http://10.0.0.2:8761 (no route). Trying again. You see what node1 knew 4s ago."},
	{name: "loading", read: func(r *reading) { r.status.Ready = false }, want: "node1 is loading its state and answers no fetch yet."},
	{name: "no leader", read: func(r *reading) {
		r.status.Condition, r.status.Leader, r.status.Summary = "leaderless", "", "No leader: nothing can be written."
		r.status.Nodes[2].Role = "unreachable"
	}, want: "No leader: nothing can be written. You see what node1 knew. Nodes that answer: node1, node2."},
	{name: "two clusters", read: func(r *reading) {
		r.status.Foreign = []client.ForeignNode{{ID: "n4", Address: "10.0.0.4:7761", ClusterID: "ab12"}}
	},
		want: "Nodes of another cluster are where this one looks for its own: n4 at 10.0.0.4:7761 (cluster ab12)."},
	{name: "self-preservation", read: func(r *reading) { r.preserving.State, r.preserving.Reason = "held", "Held by anna." }, want: "Held by anna."},
	{name: "no failure tolerated", read: func(r *reading) {
		r.status.Condition, r.status.Summary = "degraded", "Degraded: node3 cannot be reached; no node may fail."
	}, want: "Degraded: node3 cannot be reached; no node may fail."},
	{name: "link cut", read: func(r *reading) {
		r.peers.Peers[0].LagChanges, r.peers.Peers[0].Incoming = 51, &client.Incoming{Instances: 1207, HeardMS: &heard, Cut: true, OnCut: "keep"}
		r.peers.Peers = append(r.peers.Peers, client.Peer{Name: "dc3", State: "failing", Reason: "dial tcp: refused", LagChanges: 7})
	}, want: "dc2 is not heard for 41s. Its 1207 instances stay listed (policy: keep); 51 changes wait here. dc3 cannot be told: dial tcp: refused. 7 changes wait here."},
	{name: "another server", read: func(r *reading) { r.server, r.failures = second, []failure{{first, errors.New("connection refused")}} },
		want: "No answer from http://10.0.0.1:8761 since 12:00:02Z. http://10.0.0.2:8761 is asked instead."},
	{name: "no stream", later: func(m *model) { m.breakStream(at(4), "EOF"); m.breakStream(at(5), "connection refused") },
		want: "No changes come since 12:00:04Z (connection refused). The next server is tried."},
	{name: "young leader", read: func(r *reading) { r.status.Leader = "node3" }, want: "node3 has led for 4s, after node2."},
	{name: "zone", read: func(r *reading) { r.status.Warning = "A majority of the voters stands in zone a." }, want: "A majority of the voters stands in zone a."},
	{name: "empty", read: func(r *reading) { r.figures = figures{known: true} },
		want: "No service is registered yet. Register one: rollcall register orders --port 8080 --heartbeat --addr http://10.0.0.1:8761"},
	{name: "without consensus", read: func(r *reading) { r.status.Mode, r.status.Summary = "ap", "Healthy: two nodes may fail." },
		want: "Mode ap: each node answers from what it has. Healthy: two nodes may fail."},
	{name: "well", want: "Healthy: one node may fail. node2 leads; 3 of 3 nodes answer."},
}

// inState is a model of which one row holds.
func inState(read func(*reading), later func(*model)) *model {
	m, r := sample(), healthy(2)
	if read != nil {
		read(&r)
	}
	m.add(r)
	if later != nil {
		later(m)
	}
	return m
}

func TestLineOfStateSaysTheWorst(t *testing.T) {
	untested := map[string]bool{}
	for _, truth := range truths {
		untested[truth.name] = true
	}
	for _, tc := range states {
		t.Run(tc.name, func(t *testing.T) {
			i := slices.IndexFunc(truths, func(truth truth) bool { return truth.name == tc.name })
			m := inState(tc.read, tc.later)
			got := m.holding(at(6))[0]
			expect.That(t, i >= 0 && got == line{tc.want, truths[i].style}, "got %q\nwant %q", got.text, tc.want)
		})
		delete(untested, tc.name)
	}
	expect.That(t, len(untested) == 0, "no test has the states %v", untested)
}

func TestStateBeforeTheFirstResponse(t *testing.T) {
	got := newModel([]string{first, second}).holding(at(0))
	expect.That(t, len(got) == 1 && got[0].text == "Asking http://10.0.0.1:8761, http://10.0.0.2:8761 …", "got %v", got)
}

func TestNodeThatHearsNoOtherIsCutOff(t *testing.T) {
	m := inState(func(r *reading) {
		r.status.Condition, r.status.Leader, r.status.Summary = "leaderless", "", "No leader."
		r.status.Nodes[1].Role, r.status.Nodes[2].Role = "unreachable", "unreachable"
	}, nil)
	expect.Equal(t, m.holding(at(6))[0].text, "node1 is cut off from the others, or they are down: node2, node3. Others may go on without it. No leader.", "state:")
}

func TestStatesThatPassAreNotShown(t *testing.T) {
	m := inState(func(r *reading) { r.status.Leader = "node3" }, func(m *model) {
		m.breakStream(at(3), "EOF")
		m.follow(at(4), client.WatchStart{Server: second})
		m.add(reading{at: at(4), failures: []failure{{first, errors.New("EOF")}}})
		m.add(healthy(5))
	})
	m.leaderSince = at(5).Add(-youngFor)
	expect.Equal(t, m.holding(at(6))[0].text, "Healthy: one node may fail. node2 leads; 3 of 3 nodes answer.", "state:")
}

func TestAttentionIsSortedAndBounded(t *testing.T) {
	m := inState(func(r *reading) {
		r.status.Condition, r.status.Summary = "degraded", "Degraded."
		r.preserving.State, r.preserving.Reason = "on", "On."
		r.status.Nodes[0].Version, r.status.Nodes[0].DiskFree = "0.2", 5e8
		r.gaps = []string{"peers: denied"}
		r.figures.apps = slices.DeleteFunc(r.figures.apps, func(a appFigures) bool { return a.name == "USERS" })
	}, nil)
	var got []string
	for _, l := range m.attention(m.holding(at(6))[1:]) {
		got = append(got, l.text)
	}
	expect.Slice(t, got, []string{
		"Degraded.", "PAY: 0 of 2 UP", "USERS: no instance is listed any more, 9 were UP", "ORDERS: 2 of 5 UP",
		"ORDERS: 3 of 4 leases are overdue, orders-2 for 1m5s", "node1: its disk has 0.5 GB left", "the nodes' versions differ: 0.1 (node2, node3), 0.2 (node1)", "peers: denied",
	}, "attention")
	for range 9 {
		m.last.gaps = append(m.last.gaps, "more")
	}
	bounded := m.attention(nil)
	expect.That(t, len(bounded) == mostTroubles && bounded[mostTroubles-1].text == "… and 7 more", "of 16 it shows %d, the last %q", len(bounded), bounded[len(bounded)-1].text)
}

func TestApplicationsAreForgottenAfterAWhile(t *testing.T) {
	m := sample()
	r := healthy(2)
	r.figures.apps = nil
	r.at = at(0).Add(rememberApps + 1)
	m.add(r)
	expect.Equal(t, len(m.seen), 0, "remembered:")
}
