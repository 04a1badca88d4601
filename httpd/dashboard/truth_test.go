package dashboard

import (
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

var noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// clusterOf are three voters of which node3 leads, with other roles for some.
func clusterOf(roles map[string]string) api.Status {
	s := api.Status{Mode: "cp", Leader: "node3", Quorum: true, Condition: "well", Nodes: []api.NodeStatus{
		{ID: "node1", HTTP: "10.0.0.1:8761", Role: "follower", Voter: true},
		{ID: "node2", HTTP: "10.0.0.2:8761", Role: "follower", Voter: true},
		{ID: "node3", HTTP: "10.0.0.3:8761", Role: "leader", Voter: true},
	}}
	for i := range s.Nodes {
		if role, changed := roles[s.Nodes[i].ID]; changed {
			s.Nodes[i].Role = role
		}
	}
	return s
}

func TestTruthIsTheWorstThatIsKnown(t *testing.T) {
	ago := func(d time.Duration) time.Time { return noon.Add(-d) }
	on := api.SelfPreservation{State: "on", Since: ago(time.Minute).UnixMilli(), Until: noon.Add(time.Hour).UnixMilli(), Withheld: 12, Figures: api.Figures{Counted: 20, Fresh: 8}}
	heard := int64(90_000)
	cut := api.Peers{Peers: []api.Peer{{Name: "dc2", LagChanges: 51, Incoming: &api.Incoming{Instances: 1207, Cut: true, HeardMS: &heard, OnCut: "keep"}}}}
	for _, row := range []struct {
		name   string
		change func(f *facts)
		level  string
		words  string
	}{
		{"well", func(*facts) {}, "well", "Healthy. node3 leads; 3 of 3 nodes agree; one node may fail."},
		{"a majority in one zone", func(f *facts) { f.seen.status.Warning = "A majority of the voters stands in zone a." }, "warn",
			"Healthy. node3 leads; 3 of 3 nodes agree; one node may fail. A majority of the voters stands in zone a."},
		{"no failure is tolerated", func(f *facts) {
			f.seen.status = clusterOf(map[string]string{"node2": "unreachable"})
			f.seen.status.Condition, f.seen.silent = "degraded", map[string]time.Time{"node2": ago(time.Minute)}
		}, "warn", "node2 does not answer since 11:59:00Z. Everything works, and no further node may fail."},
		{"a majority fell silent just now, of another day", func(f *facts) {
			f.seen.status = clusterOf(map[string]string{"node2": "unreachable", "node3": "stopped"})
			f.seen.status.Condition, f.seen.silent = "degraded", map[string]time.Time{"node2": ago(24 * time.Hour)}
		}, "warn", "node2 does not answer since 2026-11-26 12:00:00Z, node3 does not answer. Everything works, and no further node may fail."},
		{"no leader", func(f *facts) {
			f.health = registry.Health{Ready: true, Age: 12 * time.Second, Suspended: true}
			f.seen.status = clusterOf(map[string]string{"node1": "candidate", "node2": "candidate", "node3": "unreachable"})
			f.seen.status.Condition = "leaderless"
		}, "bad", "No leader. Nothing can be registered or removed, and no lease ends. You see what node1 knew 12s ago. Nodes that answer: node2, node1."},
		{"no majority", func(f *facts) {
			f.health = registry.Health{Ready: true, Age: 12 * time.Second, Suspended: true}
			f.seen.status = clusterOf(map[string]string{"node1": "candidate", "node4": "unreachable", "node2": "unreachable", "node3": "unreachable"})
			f.seen.status.Nodes = append(f.seen.status.Nodes, api.NodeStatus{ID: "node4", Role: "candidate", Voter: true}, api.NodeStatus{ID: "node5", Role: "unreachable", Voter: true})
		}, "bad", "Nodes that answer: node4, node1. Missing for a majority: one of node2, node3, node5."},
		{"cut off", func(f *facts) {
			f.health = registry.Health{Ready: true, Age: 12 * time.Second, Suspended: true}
			f.seen.leaderless = ago(time.Minute)
			f.seen.status = clusterOf(map[string]string{"node1": "candidate", "node2": "unreachable", "node3": "unreachable"})
		}, "bad", "This node is cut off from the others since 11:59:00Z. Others may go on without it."},
		{"two clusters", func(f *facts) {
			f.seen.status.Foreign = []api.ForeignNode{{ID: "n9", Address: "10.0.0.9:7946", ClusterID: "c2"}}
		}, "bad", "Two clusters. Where this cluster looks for its nodes there are those of another one: n9 at 10.0.0.9:7946 (cluster c2)."},
		{"a young leader", func(f *facts) {
			f.node, f.health.Leads, f.health.Suspended, f.seen.leading = "node3", true, true, ago(4*time.Second)
		}, "warn", "node3 leads for 4s, too short a time to know which instances are alive. No lease ends yet."},
		{"self-preservation", func(f *facts) { f.preservation = on }, "warn",
			"Self-preservation is on since 11:59:00Z: 12 of 20 leases were not renewed in time. Nothing is removed until they return, somebody releases it, or 13:00:00Z. 12 evictions are withheld."},
		{"held", func(f *facts) {
			f.preservation = api.SelfPreservation{State: "held", Since: ago(time.Minute).UnixMilli(), Until: noon.UnixMilli(), Author: "ann", Note: "works", Withheld: 1}
		}, "warn", "Evictions are held since 11:59:00Z by ann (works), until 12:00:00Z. 1 eviction is withheld."},
		{"released", func(f *facts) {
			f.preservation = api.SelfPreservation{State: "released", Since: ago(time.Minute).UnixMilli(), Author: "ann", Figures: api.Figures{Counted: 20, Fresh: 8}}
		}, "warn", "Self-preservation was released by ann at 11:59:00Z: leases end although only 8 of 20 were renewed in time."},
		{"a link is cut", func(f *facts) { f.seen.peers = cut }, "warn",
			"dc2 is not heard since 11:58:30Z. Its 1207 instances stay listed (policy: keep); 51 changes wait here."},
		{"mode ap", func(f *facts) {
			f.alone, f.seen.status.Leader = true, ""
		}, "well", "Mode ap: Each node answers from what it has. The others know everything that this node knows."},
		{"mode ap, behind", func(f *facts) {
			f.alone, f.seen.peers = true, api.Peers{Peers: []api.Peer{{Name: "node2", Kind: "node", LagChanges: 3}}}
		}, "well", "Of this node's changes, node2 lacks 3."},
		{"loading", func(f *facts) { f.health, f.preservation = registry.Health{}, on }, "bad", "Loading. This node is loading its state and answers no fetch yet."},
		{"empty", func(f *facts) { f.instances = 0 }, "well", "No service is registered yet. Register one: rollcall register orders --port 8080 --heartbeat."},
		{"alone", func(f *facts) { f.seen.status.Nodes = f.seen.status.Nodes[:1] }, "well", "This node runs alone"},
		{"well, for a reader without nodes", func(f *facts) { f.seen.status, f.withoutNodes = api.Status{}, true }, "well", "Healthy. node1 hears a leader, and answers from what the cluster has."},
		{"mode ap, for a reader without nodes", func(f *facts) { f.alone, f.seen.status, f.withoutNodes = true, api.Status{}, true }, "well", "Mode ap: Each node answers from what it has."},
		{"no leader, for a reader without nodes", func(f *facts) {
			f.health, f.seen.status, f.withoutNodes = registry.Health{Ready: true, Age: 12 * time.Second}, api.Status{}, true
		}, "bad", "No leader. Nothing can be registered or removed, and no lease ends. You see what node1 knew 12s ago."},
		{"self-preservation, for a reader of a part", func(f *facts) { f.preservation, f.withoutCounts = on, true }, "warn",
			"Self-preservation is on since 11:59:00Z: too many leases of all applications were not renewed in time. Nothing is removed until they return, somebody releases it, or 13:00:00Z."},
		{"worse before bad", func(f *facts) { f.seen.peers, f.preservation = cut, on }, "warn", "Self-preservation is on"},
	} {
		f := facts{now: noon, node: "node1", scheme: "http", health: registry.Health{Ready: true, Quorum: true}, seen: seen{status: clusterOf(nil)}, preservation: api.SelfPreservation{State: "off"}, instances: 3}
		row.change(&f)
		got := truthOf(&f)
		words := got.text()
		if f.withoutCounts {
			expect.That(t, !strings.ContainsAny(strings.NewReplacer("11:59:00Z", "", "13:00:00Z", "").Replace(words), "0123456789"), "%s: it counts: %s", row.name, words)
		}
		expect.That(t, got.level == row.level && strings.Contains(words, row.words), "%s: got %s: %s", row.name, got.level, words)
		for _, l := range got.links {
			expect.That(t, strings.HasPrefix(l.path, "/") || strings.HasPrefix(l.path, "http://10.0.0.") || strings.HasPrefix(l.path, "https://github.com/"), "%s: a link leads to %s", row.name, l.path)
		}
	}
}

func TestMemoryOfWhatIsSeen(t *testing.T) {
	first := seen{}.after(noon, clusterOf(nil), api.Peers{}, true)
	expect.That(t, first.leading.IsZero() && len(first.moves) == 0, "the first look sees a move: %+v", first)
	down := clusterOf(map[string]string{"node3": "unreachable"})
	down.Leader = ""
	second := first.after(noon.Add(time.Second), down, api.Peers{}, false)
	again := second.after(noon.Add(2*time.Second), down, api.Peers{}, false)
	expect.That(t, again.silent["node3"].Equal(noon.Add(time.Second)) && again.leaderless.Equal(noon.Add(time.Second)), "since when is not kept: %+v", again)
	led := clusterOf(map[string]string{"node2": "leader", "node3": "unreachable"})
	led.Leader = "node2"
	third := again.after(noon.Add(3*time.Second), led, api.Peers{}, true)
	expect.That(t, third.leaderless.IsZero() && third.leading.Equal(noon.Add(3*time.Second)) && len(third.moves) == 2 && third.moves[0].to == "node2" && third.moves[1].from == "node3",
		"the moves are %+v", third)
}

func TestLineShowsItsTimesToTheScript(t *testing.T) {
	f := facts{now: noon, node: "node1", health: registry.Health{Ready: true, Quorum: true}, seen: seen{status: clusterOf(nil)},
		preservation: api.SelfPreservation{State: "held", Since: noon.UnixMilli(), Until: noon.Add(24 * time.Hour).UnixMilli(), Author: "ann", Note: "<b>"}}
	line := truthOf(&f)
	var html strings.Builder
	_ = line.node().Render(&html)
	for _, want := range []string{`<time datetime="2026-11-27T12:00:00.000Z">12:00:00Z</time>`, `by ann (&lt;b&gt;), until <time datetime="2026-11-28T12:00:00.000Z">2026-11-28 12:00:00Z</time>`} {
		expect.That(t, strings.Contains(html.String(), want), "the line lacks %s: %s", want, html.String())
	}
}
