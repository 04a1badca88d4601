package dashboard

import (
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// counting is an application with so many instances that are UP and that are not, of which so many were UP a minute ago.
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
		led    time.Duration // for how long; 0: as long as the node has run
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
		m := registrytest.New()
		m.Set(func(m *registrytest.Memory) { m.Reported.Leads = row.leads })
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
