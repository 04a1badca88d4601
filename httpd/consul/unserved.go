package consul

import (
	"net/http"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// family is a part of Consul's API that is not served: a path below /v1/, with everything below it.
type family struct {
	path string
	err  error
}

// unserved lists the parts of Consul's API (hashicorp/consul v1.16.3, agent/http_register.go, and what the client
// github.com/hashicorp/consul/api v1.34.4 calls in addition) that are not served. Clients read a 404 as "nothing
// there", and would count as done what was never done.
var unserved = []family{
	{"acl", errNoACL},
	{"agent/connect", noMesh},
	{"agent/force-leave", noJoining},
	{"agent/host", notServed("what an agent says of its host is not served here")},
	{"agent/join", noJoining},
	{"agent/leave", noJoining},
	{"agent/metrics", notServed("an agent's metrics are not served here: this server's are at /metrics")},
	{"agent/monitor", notServed("an agent's log is not served here")},
	{"agent/reload", notServed("no agent reads its configuration again by a request here: SIGHUP makes this server do so")},
	{"agent/token", errNoACL},
	{"catalog/gateway-services", noMesh},
	{"config", noMesh},
	{"connect", noMesh},
	{"coordinate", notServed("network coordinates are not served here")},
	{"discovery-chain", noMesh},
	{"event", notServed("user events are not served here")},
	{"exported-services", noMesh},
	{"health/ingress", noMesh},
	{"imported-services", noMesh},
	{"internal", notServed("what Consul's user interface and servers ask for is not served here")},
	{"operator", notServed("Consul's servers are not operated here: rollcall status and rollcall members show these")},
	{"peering", noMesh},
	{"peerings", noMesh},
	{"query", notServed("prepared queries are not served here")},
	{"snapshot", notServed("Consul's snapshots are not served here")},
}

var (
	noMesh    = notServed("the service mesh is not served here")
	noJoining = notServed("agents neither join nor leave here: rollcall members changes the cluster")
)

// notServed returns the response to a request for something that is not served, with the reason.
func notServed(why string) error {
	return &web.Refusal{Status: http.StatusNotImplemented, Text: why + " (docs/reference/consul.md lists what is served)"}
}

// errNoACL is Consul's own response without access control (hashicorp/consul, agent/acl_endpoint.go): its clients know
// it, and go on without.
var errNoACL = &web.Refusal{Status: http.StatusUnauthorized, Text: "ACL support disabled"}

// notConsulsACL replaces errNoACL where there is access control.
var notConsulsACL = notServed("roles and tokens are managed by rollcall auth, not by Consul's API")

// Unserved returns the response to a request for a path below /v1/ that has no route, in a mode of access control.
func Unserved(path string, mode access.Mode) error {
	below := strings.TrimPrefix(path, "/v1/")
	for _, f := range unserved {
		if rest, ok := strings.CutPrefix(below, f.path); ok && (rest == "" || rest[0] == '/') {
			if f.err == errNoACL && mode != access.Off {
				return notConsulsACL
			}
			return f.err
		}
	}
	return &web.Refusal{Status: http.StatusNotFound, Text: "Invalid URL path: not a recognized HTTP API endpoint; docs/reference/consul.md says which are served"}
}
