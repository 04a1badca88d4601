package consul

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// Coordination is what Consul's API needs of a node beyond package web. Only a node with consensus has it.
type Coordination interface {
	kv.Service
	// WatchCatalog begins to wait for a change of a topic; see registry.Watchers.Join.
	WatchCatalog(t registry.Topic) (woken <-chan struct{}, leave func())
	// RaftAddresses returns the node-to-node addresses of the leader ("" if unknown) and of all voters, sorted.
	RaftAddresses() (leader string, all []string)
}

// Config is what the routes need beside a web.Node.
type Config struct {
	Coordination Coordination // nil if the node has no consensus: every route refuses
	// Agents decides whose agent takes a call that names no agent. Empty means AgentsBySource.
	Agents Agents
	// Host is this node's host as other hosts name it; empty if they cannot, because it is on loopback.
	Host string
	// ReapCritical is for checks that do not say how long they may be critical before their service is removed.
	ReapCritical time.Duration
	// JudgeProbe judges the probes of checks at their registration. If nil, all are allowed.
	JudgeProbe web.ProbeJudge
}

// endpoints has the endpoints of Consul's API.
type endpoints struct {
	*web.Node
	config    Config
	nodeForms atomic.Pointer[nodeForms]
}

// call is a call of Consul's API.
type call struct {
	*web.Call
	*endpoints
	fromCache bool // the response comes from this node's own state, see cached
}

type endpoint func(c call) (document any, err error)

// tenancies are Consul Enterprise's divisions of data, with the free edition's names for them in its refusals
// (hashicorp/consul, agent/http_oss.go).
var tenancies = []struct{ param, header, plural string }{
	{"ns", "X-Consul-Namespace", "Namespaces"},
	{"partition", "X-Consul-Partition", "Partitions"},
}

// checkTenancy refuses requests for any but the default namespace and partition: ignoring the parameter would merge
// tenants, whose writes would overwrite each other. It also refuses those for another datacenter than this one, except
// those of agents: an agent answers for itself, and ignores dc.
func (c call) checkTenancy(ofAgent bool) error {
	for _, t := range tenancies {
		if name := c.R.Header.Get(t.header); !isDefault(name) {
			return malformed("Invalid header: %q - %s are a Consul Enterprise feature", t.header, t.plural)
		}
		if name := c.Text(t.param); !isDefault(name) {
			c.Refuse("Invalid query parameter: %q - %s are a Consul Enterprise feature", t.param, t.plural)
		}
		if c.Err != nil {
			return c.Err
		}
	}
	if ofAgent {
		return nil
	}
	dc := c.Text("dc")
	return cmp.Or(c.Err, c.checkDatacenter(dc))
}

// datacenter returns this datacenter's name in Consul's API, where it cannot be empty.
func (e *endpoints) datacenter() string { return cmp.Or(e.Datacenter, "dc1") }

// checkDatacenter refuses a body that names another datacenter than this one.
func (e *endpoints) checkDatacenter(name string) error {
	if name != "" && name != e.datacenter() {
		return rejected("No path to datacenter")
	}
	return nil
}
