package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// Document reads a JSON document of a node. It ends the test if the node does not return it, though clients are
// patient.
func Document[T any](w *World, node, path string, headers ...string) (document T) {
	w.Helper()
	r := w.Answer(node, path, headers...)
	need.That(w, r.decode(&document), "GET %s at %s: %v", path, node, r)
	return document
}

// Shown is an instance as a node lists it.
type Shown struct {
	ID         string            `json:"instanceId"`
	Status     string            `json:"status"`
	Overridden string            `json:"overriddenStatus"`
	Metadata   map[string]string `json:"metadata"`
}

// String shows the status, and an override.
func (s Shown) String() string { return s.Status + " " + s.Overridden }

// Lists returns what a node lists, by id, and ends the test if the node returns no list.
func (w *World) Lists(node string, headers ...string) map[string]Shown {
	w.Helper()
	type app struct {
		Instance []Shown `json:"instance"`
	}
	doc := Document[struct {
		Applications struct {
			Application []app `json:"application"`
		} `json:"applications"`
	}](w, node, "/eureka/apps", headers...)
	all := map[string]Shown{}
	for _, a := range doc.Applications.Application {
		for _, s := range a.Instance {
			all[s.ID] = s
		}
	}
	return all
}

// ListsOnly reports whether a node lists instances of these ids, and no others.
func (w *World) ListsOnly(node string, ids ...string) bool {
	w.Helper()
	return slices.Equal(slices.Sorted(maps.Keys(w.Lists(node))), slices.Sorted(slices.Values(ids)))
}

// AllListOnly waits until each of the nodes lists instances of these ids and no others, and returns how long that took.
func (w *World) AllListOnly(nodes []string, within time.Duration, ids ...string) time.Duration {
	w.Helper()
	return w.AwaitAll(nodes, within, fmt.Sprintf("lists %.300s", strings.Join(ids, " ")), func(n string) bool { return w.ListsOnly(n, ids...) })
}

// AwaitAll waits until a condition holds for each of the nodes, and returns how long that took.
func (w *World) AwaitAll(nodes []string, within time.Duration, what string, holds func(node string) bool) time.Duration {
	w.Helper()
	from := time.Now()
	for _, n := range nodes {
		w.Await(within-time.Since(from), n+": "+what, func() bool { return holds(n) })
	}
	return time.Since(from)
}

// AllListTheSame reports whether the nodes list the same instances in the same status.
func (w *World) AllListTheSame(nodes []string) bool {
	w.Helper()
	first := w.Lists(nodes[0])
	for _, n := range nodes[1:] {
		if !maps.EqualFunc(first, w.Lists(n), func(a, b Shown) bool { return a.String() == b.String() }) {
			return false
		}
	}
	return true
}

// Index returns the version of a node's registry.
func (w *World) Index(node string) string {
	w.Helper()
	r := w.Call(node, "GET", "/eureka/apps", "")
	need.Equal(w, r.Status, http.StatusOK, "the list of "+node)
	return r.Header.Get("X-Rollcall-Index")
}

// Do sends a call that must get the given status.
func (w *World) Do(status int, node, method, path string, headers ...string) Reply {
	w.Helper()
	r := w.Call(node, method, path, "", headers...)
	need.That(w, r.Status == status, "%s %s at %s: %v, want %d", method, path, node, r, status)
	return r
}

// RegisterAt registers an instance by "APP/id" at one node, as a client does that gives no timestamp, and does not
// renew it. metadata has alternating names and values.
func (w *World) RegisterAt(node, name string, lease time.Duration, metadata ...string) *Instance {
	w.Helper()
	i := w.newInstance(name, lease)
	more := map[string]string{}
	for pair := range slices.Chunk(metadata, 2) {
		more[pair[0]] = pair[1]
	}
	text := string(need.Got(json.Marshal(more))(w))
	seconds := int(lease / time.Second)
	r := w.Call(node, "POST", "/eureka/apps/"+i.App, fmt.Sprintf(`{"instance":{"instanceId":%q,"app":%q,"hostName":"h","ipAddr":"10.1.1.1",`+
		`"status":"UP","metadata":%s,"dataCenterInfo":{"@class":"com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo","name":"MyOwn"},`+
		`"leaseInfo":{"durationInSecs":%d,"renewalIntervalInSecs":%d}}}`, i.ID, i.App, text, seconds, max(seconds/3, 1)))
	need.That(w, r.Status == http.StatusNoContent, "register %s at %s: %v", name, node, r)
	i.renewed = time.Now()
	return i
}

// RegisterAllAt registers instances of one application at one node, all with the same lease.
func (w *World) RegisterAllAt(node, app string, lease time.Duration, ids ...string) {
	w.Helper()
	for _, id := range ids {
		w.RegisterAt(node, app+"/"+id, lease)
	}
}

// RenewAt sends a renewal of an instance to one node, which must know it.
func (w *World) RenewAt(node string, i *Instance) {
	w.Helper()
	w.Do(http.StatusOK, node, "PUT", i.path())
	i.renewed = time.Now()
}

// KeepAt registers an instance whose client renews it three times in its lease, at one node only, until the scenario
// ends. The scenario fails if the node once does not know it.
func (w *World) KeepAt(node, name string, lease time.Duration) *Instance {
	w.Helper()
	i := w.RegisterAt(node, name, lease)
	w.beside(lease/3, func() {
		if r := w.Call(node, "PUT", i.path(), ""); r.Status != http.StatusOK {
			w.Errorf("a renewal of %s at %s: %v", name, node, r)
		}
	})
	return i
}

// Override forces the status of an instance by "APP/id" at one node, as an operator does.
func (w *World) Override(node, name, status string) {
	w.Helper()
	w.Do(http.StatusOK, node, "PUT", "/eureka/apps/"+name+"/status?value="+status)
}

// CancelAt cancels an instance by "APP/id" at one node.
func (w *World) CancelAt(node, name string) {
	w.Helper()
	w.Do(http.StatusOK, node, "DELETE", "/eureka/apps/"+name)
}

// Address returns where a node serves HTTP; its datacenter's other nodes name it by that as their peer.
func (w *World) Address(node string) string {
	w.Helper()
	return w.Node(node).ip + ":8761"
}

// Peer returns a node's report on one of its peers: a datacenter by its name, or a node by its Address.
func (w *World) Peer(node, peer string) api.Peer {
	w.Helper()
	all := Document[api.Peers](w, node, "/v1/rollcall/peers")
	at := slices.IndexFunc(all.Peers, func(p api.Peer) bool { return p.Name == peer })
	need.That(w, at >= 0, "%s has no peer %q", node, peer)
	return all.Peers[at]
}

// NoDifference checks that a node finds nothing that differs between it and each of its peers.
func (w *World) NoDifference(node string) {
	w.Helper()
	for _, p := range Document[api.Peers](w, node, "/v1/rollcall/peers").Peers {
		d := Document[api.PeerDiff](w, node, "/v1/rollcall/peers/"+p.Name+"/diff")
		if d.Apps+d.Missing+d.Extra != 0 {
			w.Errorf("%s and its peer %s differ: %+v", node, p.Name, d)
		}
	}
}

// Listen listens at an address whose host is not a node's, until the scenario ends.
func (w *World) Listen(address string) net.Listener {
	w.Helper()
	ip, _, err := net.SplitHostPort(address)
	need.OK(w, err)
	l := need.Got(w.network.host(ip).Listen("tcp", address))(w)
	w.ends = append(w.ends, func() { l.Close() })
	return l
}
