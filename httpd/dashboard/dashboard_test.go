package dashboard

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// counting returns an application with counts of instances that are UP, that are not, and that were UP a minute ago.
func counting(name string, up, down, before int) appCount {
	a := appCount{Name: name, Total: up + down}
	a.Counts[registry.Up], a.Counts[registry.Down], a.ups[0] = up, down, int32(before)
	return a
}

func wordsOf(notices []notice) (words []string) {
	for _, n := range notices {
		words = append(words, n.words)
	}
	return words
}

func TestAttentionOfApplicationsSaysWhichLeaseIsOverdue(t *testing.T) {
	overdue := func(counted, fresh uint32, silent ...registry.Overdue) map[string]registry.AppFreshness {
		return map[string]registry.AppFreshness{"ORDERS": {App: "ORDERS", Counted: counted, Fresh: fresh, Overdue: silent}}
	}
	orders2 := registry.Overdue{Key: registry.NewKey("ORDERS", "orders-2"), Silent: 65_000}
	for _, row := range []struct {
		name    string
		app     appCount
		overdue map[string]registry.AppFreshness
		want    []string
	}{
		{"all are UP", counting("ORDERS", 5, 0, 5), nil, nil},
		{"one is not", counting("ORDERS", 4, 1, 5), nil, nil},
		{"none is UP", counting("ORDERS", 0, 2, 0), nil, []string{"ORDERS: none of 2 instances is UP"}},
		{"it is gone", counting("ORDERS", 0, 0, 9), nil, []string{"ORDERS has no instance any more; within ten minutes 9 were UP"}},
		{"it is halved", counting("ORDERS", 2, 3, 5), nil, []string{"ORDERS: 2 UP, within ten minutes 5 were"}},
		{"some are overdue", counting("ORDERS", 5, 0, 5), overdue(4, 1, orders2, orders2, orders2), []string{"ORDERS: 3 of 4 leases are overdue, orders-2 for 1m5s"}},
		{"one is overdue", counting("ORDERS", 5, 0, 5), overdue(4, 3, orders2), []string{"ORDERS: 1 of 4 leases is overdue, orders-2 for 1m5s"}},
		{"which one is not known", counting("ORDERS", 5, 0, 5), overdue(4, 2), []string{"ORDERS: 2 of 4 leases are overdue"}},
		{"those of another one are", counting("PAY", 5, 0, 5), overdue(4, 1, orders2), nil},
	} {
		expect.Slice(t, wordsOf(attentionOfApps([]appCount{row.app}, row.overdue)), row.want, "%s: attention", row.name)
	}
}

func TestAttentionOfTheClusterNamesNodesAndPeers(t *testing.T) {
	versions := func(all ...string) api.Status {
		s := clusterOf(nil)
		for i, version := range all {
			s.Nodes[i].Version = version
		}
		return s
	}
	little := clusterOf(nil)
	little.Nodes[1].DiskFree, little.Nodes[2].DiskFree = littleDisk/2, littleDisk
	for _, row := range []struct {
		name  string
		seen  seen
		lacks []string
		want  []string
	}{
		{"nothing", seen{status: versions("0.1", "0.1", "0.1")}, nil, nil},
		{"a node that does not say its version", seen{status: versions("0.1", "", "0.1")}, nil, nil},
		{"versions", seen{status: versions("0.2", "0.1", "0.1")}, nil, []string{"the nodes run different versions: 0.1 (node2, node3), 0.2 (node1)"}},
		{"a silent node", seen{silent: map[string]time.Time{"node2": time.Date(2026, 1, 1, 11, 59, 0, 0, time.UTC)}}, nil, []string{"no answer from node2 since 11:59:00 UTC"}},
		{"a disk", seen{status: little}, nil, []string{"the disk of node2 has 512 MiB left"}},
		{"a link", seen{peers: api.Peers{Peers: []api.Peer{{Name: "dc3", State: "failing", Reason: "refused", LagChanges: 7}}}}, nil, []string{"the link to dc3 fails: refused; 7 changes wait here"}},
		{"a link on which nothing waits", seen{peers: api.Peers{Peers: []api.Peer{{Name: "dc2", State: "ok", Incoming: &api.Incoming{Cut: true}}}}}, nil, []string{"the link to dc2 fails"}},
		{"protection", seen{}, []string{"access control is off"}, []string{"insecure: access control is off"}},
	} {
		expect.Slice(t, wordsOf(attentionOfCluster(row.seen, row.lacks)), row.want, "%s: attention", row.name)
	}
}

func TestAttentionOfCertificatesAndSnapshots(t *testing.T) {
	const day = 24 * time.Hour
	ends := func(use string, in time.Duration) Upkeep {
		return Upkeep{Certificates: []Certificate{{use, noon.Add(in)}}}
	}
	saved := func(ago time.Duration) Upkeep { return Upkeep{Backup: new(noon.Add(-ago))} }
	for _, row := range []struct {
		name   string
		upkeep Upkeep
		leads  bool
		led    time.Duration // how long the leader has led; 0 means as long as the node has run
		want   []string
		bad    bool
	}{
		{"nothing", Upkeep{}, true, 0, nil, false},
		{"a certificate for long", ends("http", 14*day), true, 0, nil, false},
		{"a certificate that ends soon", ends("http", 14*day-time.Minute), false, 0, []string{"the certificate of node1 for http ends in 13 days"}, false},
		{"within three days", ends("cluster", 2*day), false, 0, []string{"the certificate of node1 for cluster ends in 2 days"}, true},
		{"one that has ended", ends("replication", -time.Minute), false, 0, []string{"the certificate of node1 for replication has ended"}, true},
		{"a snapshot of late", saved(day - time.Minute), true, 0, nil, false},
		{"none for a day", saved(30 * time.Hour), true, 0, []string{"no snapshot was written by the schedule of node1 for 30 hours"}, false},
		{"none ever", Upkeep{Backup: new(time.Time)}, true, 0, []string{"no snapshot was ever written by the schedule of node1"}, false},
		{"another node writes them", saved(30 * time.Hour), false, 0, nil, false},
		{"a leader that has just begun to", saved(30 * time.Hour), true, time.Minute, nil, false},
	} {
		m := fsmtest.New()
		m.Set(func(m *fsmtest.Memory) { m.Reported.Leads = row.leads })
		c := call{nil, &Dashboard{Node: &web.Node{Config: web.Config{Service: m, Name: "node1"}, Started: noon.Add(-2 * day)}}}
		s := seen{}
		if row.led != 0 {
			s.leading = noon.Add(-row.led)
		}
		got := c.attentionOfUpkeep(row.upkeep, s, noon)
		expect.Slice(t, wordsOf(got), row.want, "%s: attention", row.name)
		expect.That(t, len(got) == 0 || got[0].bad == row.bad, "%s: bad is not %t", row.name, row.bad)
	}
}

// counted registers instances and counts them.
type counted struct {
	*testing.T
	*fsmtest.Memory
	tally tally
	now   time.Time
}

func (c *counted) register(app, id string, s registry.Status) {
	c.Helper()
	need.Got(c.Apply(context.Background(), registry.FromClient, registry.Register{Instance: &registry.Instance{InstanceID: id, App: app, HostName: "h", Status: s}}))(c.T)
}

func (c *counted) cancel(app, id string) {
	c.Helper()
	need.Got(c.Apply(context.Background(), registry.FromClient, registry.Cancel{Key: registry.NewKey(app, id)}))(c.T)
}

func (c *counted) of(app string) appCount {
	c.Helper()
	v := need.Got(c.View(context.Background(), registry.Stale))(c.T)
	for _, a := range c.tally.of(v, c.now) {
		if a.Name == app {
			return a
		}
	}
	return appCount{}
}

func TestTallyFollowsChangesAndRemembersWhatWasUp(t *testing.T) {
	c := &counted{T: t, Memory: fsmtest.New(), now: noon}
	for _, id := range []string{"a", "b", "c", "d"} {
		c.register("ORDERS", id, registry.Up)
	}
	c.register("PAY", "p", registry.Down)
	orders, pay := c.of("ORDERS"), c.of("PAY")
	expect.That(t, orders.Up() == 4 && orders.trouble() == sound && pay.Up() == 0 && pay.Total == 1 && pay.trouble() == empty, "got %+v, %+v", orders, pay)

	c.now = c.now.Add(time.Minute)
	_ = c.of("ORDERS") // the minute ends
	c.cancel("ORDERS", "a")
	expect.Equal(t, c.of("ORDERS").trouble(), sound, "three of four are")
	c.cancel("ORDERS", "b")
	expect.Equal(t, c.of("ORDERS").trouble(), halved, "two of four are")
	c.cancel("ORDERS", "c")
	c.cancel("ORDERS", "d")
	gone := c.of("ORDERS")
	expect.That(t, gone.Name != "" && gone.trouble() == empty && gone.before() == 4, "an application that is gone is %+v", gone)

	c.now = c.now.Add((rememberedMinutes + 1) * time.Minute)
	expect.Equal(t, c.of("ORDERS").Name, "", "after ten minutes it is forgotten")
}

func TestTallyCountsAgainOnlyWhatChanged(t *testing.T) {
	c := &counted{T: t, Memory: fsmtest.New(), now: noon}
	c.register("ORDERS", "a", registry.Up)
	c.register("PAY", "p", registry.Up)
	_ = c.of("PAY")
	c.tally.apps["PAY"].Total = 99 // only another count would find this
	c.register("ORDERS", "b", registry.Up)
	expect.That(t, c.of("PAY").Total == 99 && c.of("ORDERS").Total == 2, "it counted %+v", c.of("PAY"))
	c.register("PAY", "q", registry.Up)
	expect.Equal(t, c.of("PAY").Total, 2, "after a change it has")
}

func TestP99LiesWithinItsBucket(t *testing.T) {
	bounds := []float64{0.001, 0.01, 0.1}
	for _, row := range []struct {
		name        string
		counts      []uint64
		least, most float64
	}{
		{"all quick", []uint64{100, 0, 0, 0}, 0, 0.001},
		{"one of a hundred slow", []uint64{99, 0, 1, 0}, 0, 0.001},
		{"two of a hundred slow", []uint64{98, 0, 2, 0}, 0.01, 0.1},
		{"beyond the bounds", []uint64{0, 0, 0, 5}, 0.1, 0.1},
		{"one call", []uint64{0, 1, 0, 0}, 0.001, 0.01},
	} {
		got := Times{bounds, row.counts}.p99()
		expect.That(t, got >= row.least && got <= row.most, "%s: got %v, want %v to %v", row.name, got, row.least, row.most)
	}
	expect.That(t, math.IsNaN(Times{bounds, make([]uint64, 4)}.p99()), "of no calls a time is told")
}

func TestTimesSinceEarlier(t *testing.T) {
	d := Times{[]float64{1}, []uint64{5, 7}}.since(Times{[]float64{1}, []uint64{2, 7}})
	expect.That(t, d.Counts[0] == 3 && d.Counts[1] == 0 && d.count() == 3, "got %+v", d)
}

func TestSparklineBreaksOffWhereNothingIsKnown(t *testing.T) {
	nan := float32(math.NaN())
	var history []sample
	for i, y := range []float32{1, 2, nan, 4, 5} {
		s := sample{at: noon.Add(time.Duration(i-5) * sampleEvery).UnixMilli()}
		s.figures[upInstances] = y
		history = append(history, s)
	}
	history[4].at = noon.UnixMilli() + 10*sampleEvery.Milliseconds() // a gap
	var out bytes.Buffer
	need.OK(t, sparkline("x", history, upInstances, noon).Render(&out))
	expect.Equal(t, strings.Count(out.String(), "M"), 3, "parts of %s", out.String())
	out.Reset()
	need.OK(t, sparkline("x", nil, upInstances, noon).Render(&out))
	expect.That(t, !strings.Contains(out.String(), "NaN") && !strings.Contains(out.String(), "Inf"), "of nothing it draws %s", out.String())
}

func TestContainsAsciiInWhateverCase(t *testing.T) {
	for _, row := range []struct {
		s, lower string
		want     bool
	}{
		{"ORDERS", "rder", true}, {"orders-1.Example", "example", true}, {"ORDERS", "", true}, {"", "a", false}, {"AB", "abc", false}, {"GRÜN", "grün", false}, {"grün", "ün", true},
	} {
		expect.Equal(t, contains(row.s, row.lower), row.want, "%q in %q", row.lower, row.s)
	}
}

func TestSearchFindsApplicationsInWhateverCase(t *testing.T) {
	l := &registry.Lease{Instance: &registry.Instance{App: "GRÜN", InstanceID: "grün-1"}}
	for word, want := range map[string]bool{"grün": true, "GRÜN": true, "Grün": true, "ün-1": true, "blau": false} {
		s := search{terms: []term{termOf(word)}}
		expect.Equal(t, s.finds(l, ""), want, "%q finds it", word)
	}
}

func FuzzContains(f *testing.F) {
	f.Add("Orders-1", "ers")
	f.Fuzz(func(t *testing.T, s, term string) {
		if !utf8.ValidString(s+term) || strings.ContainsFunc(s+term, func(r rune) bool { return r >= utf8.RuneSelf }) {
			return
		}
		expect.Equal(t, contains(s, lower(term)), strings.Contains(strings.ToLower(s), strings.ToLower(term)), "%q in %q", term, s)
	})
}

func TestPageBeyondTheLastIsTheLast(t *testing.T) {
	for _, row := range []struct {
		number             uint64
		rows               int
		want, first, until int
	}{
		{0, 0, 1, 0, 0}, {1, 120, 1, 0, 50}, {3, 120, 3, 100, 120}, {1 << 63, 120, 3, 100, 120}, {2, 50, 1, 0, 50},
	} {
		p := pageOf(row.number, row.rows)
		expect.That(t, p.number == row.want && p.first == row.first && p.end == row.until, "page %d of %d rows: got %+v", row.number, row.rows, p)
	}
}

func TestLocalPathsOnly(t *testing.T) {
	for path, want := range map[string]string{
		"/ui/apps?q=a": "/ui/apps?q=a", "": "/", "https://evil.example/": "/", "//evil.example/": "/", `/\evil.example`: "/", "/a\r\nSet-Cookie: x": "/", "ui": "/", "javascript:alert(1)": "/",
	} {
		expect.Equal(t, local(path), want, "%q leads to", path)
	}
}

func TestCommandLineIsQuoted(t *testing.T) {
	dashed := commandLine("http://n", command{verb: "kv put", names: []string{"-k", "v"}, flags: []string{"--cas", "1"}})
	expect.Equal(t, dashed, "rollcall kv put --cas 1 --addr http://n -- -k v", "a name that begins like a flag: got")
	got := commandLine("http://127.0.0.1:8761", command{verb: "drain", names: []string{"A/b c"}, flags: []string{"--reason", `it's $HOME; rm`}})
	expect.Equal(t, got, `rollcall drain 'A/b c' --reason 'it'\''s $HOME; rm' --addr http://127.0.0.1:8761`, "the command line")
}

var noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// clusterOf returns three voters led by node3, with other roles for some.
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
		{"no majority of many", func(f *facts) {
			f.health = registry.Health{Ready: true, Suspended: true}
			f.seen.status = clusterOf(map[string]string{"node1": "candidate", "node2": "candidate", "node3": "unreachable"})
			for i := range 8 {
				f.seen.status.Nodes = append(f.seen.status.Nodes, api.NodeStatus{ID: fmt.Sprintf("far%d", i), Role: "unreachable", Voter: true})
			}
		}, "bad", "Missing for a majority: 4 of node3, far0, "},
		{"cut off", func(f *facts) {
			f.health = registry.Health{Ready: true, Age: 12 * time.Second, Suspended: true}
			f.seen.leaderless = ago(time.Minute)
			f.seen.status = clusterOf(map[string]string{"node1": "candidate", "node2": "unreachable", "node3": "unreachable"})
		}, "bad", "This node is cut off from the others since 11:59:00Z. Others may go on without it."},
		{"two clusters", func(f *facts) {
			f.seen.status.Foreign = []api.ForeignNode{{ID: "n9", Address: "10.0.0.9:7946", ClusterID: "c2"}}
		}, "bad", "Two clusters. This cluster's join addresses reach nodes of another one: n9 at 10.0.0.9:7946 (cluster c2)."},
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

func TestDrawingShowsEveryNodeWithinItsFrame(t *testing.T) {
	s, coordinate := clusterOf(nil), regexp.MustCompile(`\bc?([xy])[12]?="([^"]*)"`)
	for range 7 {
		var out strings.Builder
		need.OK(t, drawing(s, "node1").Render(&out))
		for _, m := range coordinate.FindAllStringSubmatch(out.String(), -1) {
			at, most := need.Got(strconv.ParseFloat(m[2], 64))(t), map[string]float64{"x": 480, "y": 220}[m[1]]
			expect.That(t, at > 0 && at < most, "of %d nodes %s is outside of the frame: %s", len(s.Nodes), m[0], out.String())
		}
		expect.That(t, strings.Contains(out.String(), `viewBox="0 0 480 220"`) && strings.Count(out.String(), "<circle") == len(s.Nodes), "of %d nodes it draws %s", len(s.Nodes), out.String())
		s.Nodes = append(s.Nodes, api.NodeStatus{ID: fmt.Sprintf("node%d", len(s.Nodes)+1), Role: "follower", Voter: true})
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
