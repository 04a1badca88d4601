package consul

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// APIVersion is the version of Consul that clients are told, and whose API they may expect here. Clients use it to
// decide what they may ask for: Nomad gives its jobs the constraint consul.version >= 1.8.0, and consul-esm does not
// start without a version that it can compare. Rollcall's own version is shown beside it (self.Stats).
const APIVersion = "1.22.0"

// buildInfo is the response of agent/version.
type buildInfo struct {
	SHA          string
	BuildDate    string
	HumanVersion string
	FIPS         string
	Rollcall     string // the version of our own program
}

// self is the response of agent/self. Every top-level member is an object, because the official client decodes a map
// of maps.
type self struct {
	Config      selfConfig
	DebugConfig selfDebug
	Coord       struct{}
	Member      member
	Stats       map[string]map[string]string
	Meta        map[string]string
}

// selfConfig is the part of an agent's configuration that clients read.
type selfConfig struct {
	Datacenter        string
	PrimaryDatacenter string
	NodeName          string
	NodeID            string
	Server            bool
	Revision          string
	Version           string
}

// selfDebug is the part of the debugging settings that clients read: consul debug asks whether there are profiles to
// fetch, which this API lacks.
type selfDebug struct{ EnableDebug, ACLsEnabled bool }

// member is a server of the cluster, in responses of agent/members.
type member struct {
	Name        string
	Addr        string
	Port        int
	Tags        map[string]string
	Status      int // memberAlive or memberFailed
	ProtocolMin int
	ProtocolMax int
	ProtocolCur int
	DelegateMin int
	DelegateMax int
	DelegateCur int
}

// The states of a member, as in serf.
const (
	memberAlive  = 1
	memberFailed = 4
)

// member returns a server as a member, with the versions of the protocols that Consul's servers speak.
func (h place) member(name, host string, port int, alive bool) member {
	m := member{
		Name: name, Addr: host, Port: port, Status: memberFailed,
		Tags: map[string]string{
			"role": "consul", "dc": h.Datacenter, "id": uuidOf("server " + h.Epoch + " " + name), "port": fmt.Sprint(port), "build": APIVersion + ":",
			"acls": "0", "vsn": "2", "vsn_min": "2", "vsn_max": "3",
		},
		ProtocolMin: 1, ProtocolMax: 5, ProtocolCur: 2, DelegateMin: 2, DelegateMax: 5, DelegateCur: 4,
	}
	if alive {
		m.Status = memberAlive
	}
	return m
}

// place is what responses say about the logical node.
type place struct {
	Datacenter string
	Version    string // of our own program
	Epoch      string // the cluster's id
	Address    string // host where clients reach the cluster
	Port       int    // of the service "consul": where its servers reach each other
}

// nodeID returns the logical node's UUID. All servers of a cluster derive the same one.
func (h place) nodeID() string { return uuidOf("node " + h.Epoch) }

// uuidOf derives a UUID (RFC 9562, version 8) from a text.
func uuidOf(text string) string {
	id := sha256.Sum256([]byte("rollcall " + text))
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80
	d := hex.EncodeToString(id[:16])
	return d[:8] + "-" + d[8:12] + "-" + d[12:16] + "-" + d[16:20] + "-" + d[20:]
}

// listedNode is a node in responses.
type listedNode struct {
	ID              string
	Node            string
	Address         string
	Datacenter      string
	TaggedAddresses map[string]string
	Meta            map[string]string
	CreateIndex     registry.Index `bexpr:"-"`
	ModifyIndex     registry.Index `bexpr:"-"`

	// always empty: the free edition lacks them, and no other cluster's nodes are here
	Partition, PeerName string `json:"-"`
}

// node returns a node as responses show it; nil stands for the logical one.
func (h place) node(n *catalog.Node) listedNode {
	if n == nil || n.Name == "" {
		return h.logical(n)
	}
	shown := listedNode{
		ID: n.ID, Node: n.Name, Address: n.Address, Datacenter: h.Datacenter,
		TaggedAddresses: registry.MapOf(n.Tagged), Meta: registry.MapOf(n.Meta), CreateIndex: n.CreateIndex, ModifyIndex: n.ModifyIndex,
	}
	if n.Alive() { // where no registrar said otherwise, it has what Consul's agents say about their node
		if shown.ID == "" {
			shown.ID = uuidOf("agent " + h.Epoch + " " + n.Name)
		}
		if len(shown.TaggedAddresses) == 0 {
			shown.TaggedAddresses = taggedAddresses(n.Address)
		}
		shown.Meta = agentMeta(shown.Meta)
	}
	return shown
}

// taggedAddresses returns the tagged addresses that Consul's agents give their node.
func taggedAddresses(address string) map[string]string {
	tagged := map[string]string{"lan": address, "wan": address}
	if family := familyOf(address); family != "" {
		tagged["lan_"+family], tagged["wan_"+family] = address, address
	}
	return tagged
}

// logical returns the logical node with the metadata and checks that n, which may be nil, stores.
func (h place) logical(n *catalog.Node) listedNode {
	shown := listedNode{
		ID: h.nodeID(), Node: NodeName, Address: h.Address, Datacenter: h.Datacenter, TaggedAddresses: taggedAddresses(h.Address),
		Meta: bareMeta, CreateIndex: 1, ModifyIndex: 1,
	}
	if n != nil {
		shown.Meta, shown.ModifyIndex = agentMeta(registry.MapOf(n.Meta)), n.ModifyIndex
	}
	return shown
}

// bareMeta is the metadata of an agent's node: exactly what an agent of Consul has, because clients compare it. It is
// shared, and never changed.
var bareMeta = map[string]string{"consul-network-segment": "", "consul-version": APIVersion}

// agentMeta is bareMeta with what was registered in addition.
func agentMeta(registered map[string]string) map[string]string {
	if len(registered) == 0 {
		return bareMeta
	}
	meta := maps.Clone(bareMeta)
	maps.Copy(meta, registered)
	return meta
}

// familyOf returns ipv4 or ipv6, or "" for a name or an empty address.
func familyOf(address string) string {
	ip, err := netip.ParseAddr(address)
	switch {
	case err != nil:
		return ""
	case ip.Is4():
		return "ipv4"
	}
	return "ipv6"
}

// NodeName is the name of the logical node, which stands for the whole cluster, whichever server is asked. In domain
// values its name is empty.
const NodeName = catalog.LogicalNode

// ShownNode returns a node's name as responses show it.
func ShownNode(node string) string { return cmp.Or(node, NodeName) }

// nodeOf reverses ShownNode. It accepts the logical node's name in any case.
func nodeOf(shown string) string {
	if strings.EqualFold(shown, NodeName) {
		return ""
	}
	return shown
}
