package httpd_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	own "github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/consul"
	"github.com/seed-20419f34/rollcall/httpd/httpdtest"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// accessRow states which callers a route lets through: a + for each of accessCallers that it does.
type accessRow struct {
	route, may string
	// call is the path and query if they differ from the route with its variables filled in; body and header go with
	// it. {app} is the caller's application or the other one, {svc} its name in Consul, {session} its session, {dc} a
	// datacenter, {accessor} a token.
	call, body, header string
}

// accessCallers are the columns of the rows. A caller with an expired or a revoked token is treated as an anonymous
// one.
var accessCallers = []struct{ name, token, app, dc string }{
	{"nobody", "", "ORDERS", "dc2"},
	{"ORDERS on ORDERS", "ORDERS", "ORDERS", "dc2"},
	{"ORDERS on PAY", "ORDERS", "PAY", "dc2"},
	{"reader", "reader", "ORDERS", "dc2"},
	{"operator", "operator", "ORDERS", "dc2"},
	{"peer dc2 for dc2", "dc2", "ORDERS", "dc2"},
	{"peer dc2 for dc3", "dc2", "ORDERS", "dc3"},
}

// The most common values of accessRow.may.
const (
	everybody = "+++++++"
	known     = "-++++++" // every good token
	readers   = "---++--" // of the whole
	readsApp  = "-+-++--"
	changes   = "-+--+--" // the service itself
	services  = "-++-+--" // each service of its own
	operators = "----+--"
	peersOnly = "-----+-"
)

const (
	replicated    = "X-Netflix-Discovery-Replication: true\nDiscoveryIdentity-Id: {dc}"
	eurekaBody    = `{"instance":{"instanceId":"{app}-i","hostName":"h","app":"{app}","ipAddr":"10.0.0.1","status":"UP","dataCenterInfo":{"@class":"x","name":"MyOwn"}}}`
	consulService = `{"Name":"{svc}","ID":"{app}-c","Port":80,"Check":{"CheckID":"{app}-t","TTL":"10m"}}`
)

var accessRows = []accessRow{
	{route: "GET /healthz", may: everybody},
	{route: "GET /readyz", may: everybody, call: "/readyz?verbose&writes"},
	{route: "GET /metrics", may: readers},

	{route: "GET /", may: known},
	{route: "GET /ui", may: known},
	{route: "GET /lastn", may: known},
	{route: "GET /v1/rollcall/overview", may: readers},
	{route: "GET /ui/apps", may: known},
	{route: "GET /ui/apps/{app}", may: readsApp},
	{route: "GET /ui/apps/{app}/{id}", may: readsApp},
	{route: "GET /ui/nodes", may: readers},
	{route: "GET /ui/peers", may: readers},
	{route: "GET /ui/peers/{name}", may: readers},
	{route: "GET /ui/held", may: readers},
	{route: "GET /ui/keys", may: readsApp, call: "/ui/keys?key={app}/k"},
	{route: "GET /ui/keys", may: readers},
	{route: "GET /ui/events", may: known},
	{route: "GET /ui/raw/{what}", may: readsApp, call: "/ui/raw/app?app={app}"},
	{route: "GET /ui/raw/{what}", may: readsApp, call: "/ui/raw/instance?app={app}&id={app}-i"},
	{route: "GET /ui/raw/{what}", may: readers, call: "/ui/raw/settings"},
	{route: "GET /ui/raw/{what}", may: readers, call: "/ui/raw/metrics"},
	{route: "GET /ui/live", may: known, call: "/ui/live?wait=0s"},
	{route: "GET /ui/live", may: readsApp, call: "/ui/live?wait=0s&app={app}"},
	{route: "GET /ui/acts/{act}", may: readsApp, call: "/ui/acts/drain?app={app}&id={app}-i"},
	{route: "GET /ui/acts/{act}", may: readers, call: "/ui/acts/release"},
	{route: "POST /ui/acts/{act}", may: operators, call: "/ui/acts/drain", body: "app={app}&id={app}-i&reason=x&confirm={app}"},
	{route: "POST /ui/acts/{act}", may: changes, call: "/ui/acts/cancel", body: "app={app}&id={app}-i&confirm={app}"},
	{route: "POST /ui/acts/{act}", may: operators, call: "/ui/acts/hold", body: "for=30m&reason=x"},
	{route: "POST /ui/acts/{act}", may: changes, call: "/ui/acts/set-key", body: "key={app}/k&cas=0&value=v"},
	{route: "GET /ui/login", may: everybody},
	{route: "POST /ui/login", may: everybody},
	{route: "POST /ui/logout", may: everybody},
	{route: "GET /ui/assets/{hash}/{name}", may: everybody},

	{route: "GET /eureka/apps", may: readers},
	{route: "GET /eureka/apps/delta", may: readers},
	{route: "GET /eureka/apps/{app}", may: readsApp},
	{route: "GET /eureka/apps/{app}/{id}", may: readsApp},
	{route: "GET /eureka/instances/{id}", may: readers},
	{route: "GET /eureka/vips/{vip}", may: readers},
	{route: "GET /eureka/svips/{svip}", may: readers},
	{route: "GET /eureka/status", may: readers},
	{route: "GET /eureka/serverinfo/statusoverrides", may: readers},
	{route: "GET /serverinfo/statusoverrides", may: readers},
	{route: "POST /eureka/apps/{app}", may: changes, body: eurekaBody},
	{route: "POST /eureka/apps/{app}", may: peersOnly, body: eurekaBody, header: replicated},
	{route: "PUT /eureka/apps/{app}/{id}", may: changes},
	{route: "PUT /eureka/apps/{app}/{id}", may: peersOnly, header: replicated},
	{route: "DELETE /eureka/apps/{app}/{id}", may: changes},
	{route: "DELETE /eureka/apps/{app}/{id}", may: peersOnly, header: replicated},
	{route: "PUT /eureka/apps/{app}/{id}/status", may: changes, call: "/eureka/apps/{app}/{app}-i/status?value=DOWN"},
	{route: "DELETE /eureka/apps/{app}/{id}/status", may: changes},
	{route: "PUT /eureka/apps/{app}/{id}/metadata", may: changes, call: "/eureka/apps/{app}/{app}-i/metadata?a=b"},
	{route: "POST /eureka/peerreplication/batch", may: peersOnly, header: replicated,
		body: `{"replicationList":[{"appName":"PAY","id":"PAY-i","action":"Cancel"}]}`},
	{route: "PUT /eureka/asg/{asg}/status", may: operators},

	{route: "GET /v1/kv/{key}", may: readsApp},
	{route: "GET /v1/kv/{key}", may: readsApp, call: "/v1/kv/{app}/?recurse"},
	{route: "GET /v1/kv/{key}", may: readers, call: "/v1/kv/?recurse"},
	{route: "GET /v1/kv/{key}", may: readers, call: "/v1/kv/{app}?keys"}, // its prefix also matches ORDERS2/
	{route: "PUT /v1/kv/{key}", may: changes, body: "x"},
	// the other's session
	{route: "PUT /v1/kv/{key}", may: changes, call: "/v1/kv/ORDERS/k?acquire={session}", body: "x"},
	{route: "DELETE /v1/kv/{key}", may: changes},
	{route: "DELETE /v1/kv/{key}", may: operators, call: "/v1/kv/?recurse"},
	{route: "PUT /v1/session/create", may: services, body: `{}`},
	{route: "PUT /v1/session/renew/{id}", may: changes, call: "/v1/session/renew/{session}"},
	{route: "PUT /v1/session/destroy/{id}", may: changes, call: "/v1/session/destroy/{session}"},
	{route: "GET /v1/session/info/{id}", may: readers, call: "/v1/session/info/{session}"},
	{route: "GET /v1/session/node/{node}", may: readers},
	{route: "GET /v1/session/list", may: readers},
	{route: "PUT /v1/txn", may: readsApp, body: `[{"KV":{"Verb":"get","Key":"{app}/k"}}]`},
	{route: "PUT /v1/txn", may: changes, body: `[{"KV":{"Verb":"set","Key":"{app}/k","Value":""}}]`},
	{route: "PUT /v1/txn", may: changes, body: `[{"KV":{"Verb":"set","Key":"ORDERS/k","Value":""}},{"KV":{"Verb":"delete","Key":"{app}/k"}}]`},
	{route: "PUT /v1/txn", may: changes, body: `[{"Session":{"Verb":"delete","Session":{"ID":"{session}"}}}]`},
	{route: "PUT /v1/txn", may: changes, body: `[{"Service":{"Verb":"delete","Node":"rollcall","Service":{"ID":"{app}-c","Service":"{svc}"}}}]`},
	{route: "PUT /v1/txn", may: operators, body: `[{"Node":{"Verb":"set","Node":{"Node":"n9","Address":"10.0.0.9"}}}]`},
	{route: "PUT /v1/txn", may: operators, body: `[{"Service":{"Verb":"delete","Node":"rollcall","Service":{"ID":"not-there","Service":"{svc}"}}}]`},
	{route: "GET /v1/status/leader", may: everybody},
	{route: "GET /v1/status/peers", may: known},

	{route: "GET /v1/agent/check/pass/{id}", may: changes, call: "/v1/agent/check/pass/{app}-t"},
	{route: "PUT /v1/agent/check/pass/{id}", may: changes, call: "/v1/agent/check/pass/{app}-t"},
	{route: "GET /v1/agent/check/warn/{id}", may: changes, call: "/v1/agent/check/warn/{app}-t"},
	{route: "PUT /v1/agent/check/warn/{id}", may: changes, call: "/v1/agent/check/warn/{app}-t"},
	{route: "GET /v1/agent/check/fail/{id}", may: changes, call: "/v1/agent/check/fail/{app}-t"},
	{route: "PUT /v1/agent/check/fail/{id}", may: changes, call: "/v1/agent/check/fail/{app}-t"},
	{route: "PUT /v1/agent/check/update/{id}", may: changes, call: "/v1/agent/check/update/{app}-t", body: `{"Status":"passing"}`},
	{route: "PUT /v1/agent/check/register", may: changes, body: `{"ID":"{app}-x","Name":"x","ServiceID":"{app}-c","TTL":"10m"}`},
	// of the node
	{route: "PUT /v1/agent/check/register", may: operators, body: `{"ID":"{app}-y","Name":"y","TTL":"10m"}`},
	// which shows the other
	{route: "PUT /v1/agent/check/register", may: changes, body: `{"ID":"x","Name":"x","ServiceID":"ORDERS-c","AliasService":"{app}-c"}`},
	// an instance of Eureka
	{route: "PUT /v1/agent/check/register", may: changes, body: `{"ID":"x","Name":"x","ServiceID":"ORDERS-c","AliasService":"{app}-i"}`},
	{route: "PUT /v1/agent/check/register", may: operators, body: `{"ID":"x","Name":"x","ServiceID":"ORDERS-c","AliasNode":"web-8"}`},
	{route: "GET /v1/agent/check/deregister/{id}", may: changes, call: "/v1/agent/check/deregister/{app}-t"},
	{route: "PUT /v1/agent/check/deregister/{id}", may: changes, call: "/v1/agent/check/deregister/{app}-t"},
	{route: "PUT /v1/agent/service/register", may: changes, body: consulService},
	{route: "PUT /v1/agent/service/register", may: changes, call: "/agent/web-7/v1/agent/service/register", body: `{"Name":"{svc}","ID":"{app}-7","Port":80}`},
	// in place of the other's
	{route: "PUT /v1/agent/service/register", may: changes, body: `{"Name":"orders","ID":"{app}-c","Port":80}`},
	{route: "PUT /v1/agent/service/register", may: changes, body: `{"Name":"orders","ID":"ORDERS-8","Port":80,"Check":{"AliasService":"{app}-c"}}`},
	{route: "PUT /v1/agent/service/register", may: changes, call: "/agent/web-7/v1/agent/service/register", body: `{"Name":"orders","ID":"ORDERS-7","Port":80,"Check":{"AliasNode":"rollcall","AliasService":"{app}-c"}}`},
	{route: "PUT /v1/agent/service/deregister/{id}", may: changes, call: "/v1/agent/service/deregister/{app}-c"},
	{route: "PUT /v1/agent/service/maintenance/{id}", may: changes, call: "/v1/agent/service/maintenance/{app}-c?enable=true"},
	// sets an override
	{route: "PUT /v1/agent/service/maintenance/{id}", may: operators, call: "/v1/agent/service/maintenance/{app}-i?enable=true"},
	{route: "PUT /v1/agent/maintenance", may: operators, call: "/agent/web-7/v1/agent/maintenance?enable=true"},
	{route: "GET /v1/agent/self", may: known},
	{route: "GET /v1/agent/version", may: known},
	{route: "GET /v1/agent/members", may: known},
	{route: "GET /v1/agent/services", may: readers},
	{route: "GET /v1/agent/service/{id}", may: readers, call: "/v1/agent/service/{app}-c"},
	{route: "GET /v1/agent/checks", may: readers},
	{route: "GET /v1/agent/health/service/id/{id}", may: readers, call: "/v1/agent/health/service/id/{app}-c"},
	{route: "GET /v1/agent/health/service/name/{name}", may: readsApp},

	{route: "PUT /v1/catalog/register", may: operators, body: `{"Node":"n1","Address":"10.0.0.9","Service":{"Service":"{svc}","ID":"{app}-k"}}`},
	{route: "PUT /v1/catalog/register", may: operators, body: `{"Node":"n2","Address":"10.0.0.9","SkipNodeUpdate":true,"Service":{"Service":"{svc}","ID":"{app}-k"}}`},
	{route: "PUT /v1/catalog/register", may: changes, body: `{"Node":"web-8","SkipNodeUpdate":true,"Service":{"Service":"{svc}","ID":"{app}-8"}}`},
	{route: "PUT /v1/catalog/deregister", may: changes, body: `{"Node":"rollcall","ServiceID":"{app}-c"}`},
	{route: "PUT /v1/catalog/deregister", may: changes, body: `{"Node":"rollcall","CheckID":"{app}-t"}`},
	{route: "PUT /v1/catalog/deregister", may: operators, body: `{"Node":"web-8"}`},
	{route: "GET /v1/catalog/datacenters", may: known},
	{route: "GET /v1/catalog/nodes", may: readers},
	{route: "GET /v1/catalog/services", may: readers},
	{route: "GET /v1/catalog/service/{name}", may: readsApp},
	{route: "GET /v1/catalog/connect/{name}", may: readsApp},
	{route: "GET /v1/catalog/node/{node}", may: readers},
	{route: "GET /v1/catalog/node-services/{node}", may: readers},
	{route: "GET /v1/health/service/{name}", may: readsApp},
	{route: "GET /v1/health/connect/{name}", may: readsApp},
	{route: "GET /v1/health/checks/{name}", may: readsApp},
	{route: "GET /v1/health/node/{node}", may: readers},
	{route: "GET /v1/health/state/{state}", may: readers},
	{route: "GET /v1/acl/token/self", may: known},
	{route: "PUT /v1/acl/bootstrap", may: operators},

	{route: "GET /v1/rollcall/status", may: readers},
	{route: "GET /v1/rollcall/verify", may: readers},
	{route: "GET /v1/rollcall/apps", may: readers},
	{route: "GET /v1/rollcall/apps", may: readsApp, call: "/v1/rollcall/apps?app={app}"},
	{route: "GET /v1/rollcall/events", may: readers},
	{route: "GET /v1/rollcall/settings", may: readers},
	{route: "GET /v1/rollcall/self-preservation", may: readers},
	{route: "POST /v1/rollcall/self-preservation/release", may: operators},
	{route: "POST /v1/rollcall/self-preservation/hold", may: operators, call: "/v1/rollcall/self-preservation/hold?for=1m"},
	{route: "GET /v1/rollcall/apps/{app}/{id}/explain", may: readsApp},
	{route: "PUT /v1/rollcall/apps/{app}/{id}/override", may: operators, call: "/v1/rollcall/apps/{app}/{app}-i/override?value=DOWN"},
	{route: "DELETE /v1/rollcall/apps/{app}/{id}/override", may: operators},
	{route: "PUT /v1/rollcall/apps/{app}/{id}/quarantine", may: operators, call: "/v1/rollcall/apps/{app}/{app}-i/quarantine?for=1m"},
	{route: "DELETE /v1/rollcall/apps/{app}/{id}/quarantine", may: operators},
	{route: "POST /v1/rollcall/prune", may: operators, call: "/v1/rollcall/prune?not-passing"},
	{route: "GET /v1/rollcall/log-level", may: readers},
	{route: "PUT /v1/rollcall/log-level", may: operators, call: "/v1/rollcall/log-level?level=debug"},
	{route: "DELETE /v1/rollcall/members/{name}", may: operators},
	{route: "GET /v1/rollcall/snapshot", may: operators},
	{route: "PUT /v1/rollcall/snapshot", may: operators},
	{route: "POST /v1/rollcall/transfer", may: operators},
	{route: "GET /v1/rollcall/upgrade", may: readers},
	{route: "POST /v1/rollcall/upgrade/finalize", may: operators},
	{route: "GET /v1/rollcall/debug/bundle", may: readers},
	{route: "GET /v1/rollcall/watch", may: readers, call: "/v1/rollcall/watch?wait=0s"},
	{route: "GET /v1/rollcall/watch", may: readsApp, call: "/v1/rollcall/watch?wait=0s&app={app}"},
	{route: "POST /v1/rollcall/replication", may: peersOnly, body: "{dc}"},
	{route: "POST /v1/rollcall/replication/digest", may: peersOnly, body: "{dc}"},
	{route: "GET /v1/rollcall/replication/state", may: peersOnly, call: "/v1/rollcall/replication/state?datacenter={dc}"},
	{route: "GET /v1/rollcall/peers", may: readers},
	{route: "GET /v1/rollcall/peers/{name}/diff", may: readers},
	{route: "POST /v1/rollcall/peers/{name}/repair", may: operators},
	{route: "POST /v1/rollcall/peers/{name}/pause", may: operators},
	{route: "POST /v1/rollcall/peers/{name}/resume", may: operators},
	{route: "POST /v1/rollcall/peers/{name}/forget", may: operators},
	{route: "GET /v1/rollcall/sessions", may: readers},
	{route: "GET /v1/rollcall/sessions/{id}", may: readers, call: "/v1/rollcall/sessions/{session}"},
	{route: "POST /v1/rollcall/sessions", may: services},
	{route: "PUT /v1/rollcall/sessions/{id}/renew", may: changes, call: "/v1/rollcall/sessions/{session}/renew"},
	{route: "DELETE /v1/rollcall/sessions/{id}", may: changes, call: "/v1/rollcall/sessions/{session}"},
	{route: "GET /v1/rollcall/locks", may: readers},
	{route: "GET /v1/rollcall/locks/{name}", may: readsApp},
	{route: "PUT /v1/rollcall/locks/{name}", may: changes, call: "/v1/rollcall/locks/{app}?session={session}"},
	{route: "PUT /v1/rollcall/locks/{name}", may: changes, call: "/v1/rollcall/locks/ORDERS?session={session}"},
	{route: "DELETE /v1/rollcall/locks/{name}", may: changes, call: "/v1/rollcall/locks/ORDERS?session={session}"},
	{route: "GET /v1/rollcall/semaphores", may: readers},
	{route: "GET /v1/rollcall/semaphores/{name}", may: readsApp},
	{route: "PUT /v1/rollcall/semaphores/{name}", may: changes, call: "/v1/rollcall/semaphores/{app}?limit=2&session={session}"},
	{route: "DELETE /v1/rollcall/semaphores/{name}", may: changes, call: "/v1/rollcall/semaphores/{app}?session={session}"},
	{route: "GET /v1/rollcall/fence/{key}", may: readsApp, call: "/v1/rollcall/fence/{app}/k?index=1"},
	{route: "GET /v1/rollcall/fence/{key}", may: readsApp, call: "/v1/rollcall/fence/{app}?index=1&kind=lock"},
	{route: "GET /v1/rollcall/fence/{key}", may: readers, call: "/v1/rollcall/fence/PAY/k?index=1&kind=semaphore"},

	{route: "GET /v1/rollcall/audit", may: operators},
	{route: "GET /v1/rollcall/auth", may: known},
	{route: "PUT /v1/rollcall/auth/mode", may: operators, call: "/v1/rollcall/auth/mode?mode=on"},
	{route: "POST /v1/rollcall/auth/bootstrap", may: operators},
	{route: "GET /v1/rollcall/auth/roles", may: operators},
	{route: "GET /v1/rollcall/auth/roles/{name}", may: operators, call: "/v1/rollcall/auth/roles/service"},
	{route: "PUT /v1/rollcall/auth/roles/{name}", may: operators, call: "/v1/rollcall/auth/roles/service", body: `{"rules":["app * register"]}`},
	{route: "DELETE /v1/rollcall/auth/roles/{name}", may: operators, call: "/v1/rollcall/auth/roles/none"},
	{route: "GET /v1/rollcall/auth/tokens", may: operators},
	{route: "POST /v1/rollcall/auth/tokens", may: operators, body: `{"name":"x","roles":["operator"]}`},
	{route: "POST /v1/rollcall/auth/tokens/{accessor}/rotate", may: operators},
	{route: "DELETE /v1/rollcall/auth/tokens/{accessor}", may: operators},
	{route: "GET /v1/rollcall/auth/check", may: operators},
	{route: "GET /v1/rollcall/auth/test", may: operators, call: "/v1/rollcall/auth/test?accessor={accessor}&need=app+A+read"},
}

// guarded is a node with access control, with what a test needs to see whether a call did something.
type guarded struct {
	handler  *httpd.Handler
	memory   *fsmtest.Memory
	locker   *fsmtest.Coordination // nil without consensus
	peers    *judgedPeers
	table    *access.Table // of a node without consensus
	texts    map[string]string
	accessor string            // of the token of ORDERS
	sessions map[string]string // by application
	from     string            // sender's address and port; empty for httptest's
}

// judgedPeers are peers whose messages consist of the name of the datacenter that must be allowed to send them.
type judgedPeers struct{ httpdtest.FakePeers }

func (p *judgedPeers) judge(ctx context.Context, datacenter string, do func() ([]byte, error)) ([]byte, error) {
	if err := access.Allow(ctx, access.Need{Resource: access.Peer, Name: datacenter, Verb: access.Exchange}); err != nil {
		return nil, err
	}
	return do()
}

// Receive implements own.Peers.
func (p *judgedPeers) Receive(ctx context.Context, message []byte) ([]byte, error) {
	return p.judge(ctx, string(message), func() ([]byte, error) { return p.FakePeers.Receive(ctx, message) })
}

// Compare implements own.Peers.
func (p *judgedPeers) Compare(ctx context.Context, message []byte) ([]byte, error) {
	return p.judge(ctx, string(message), func() ([]byte, error) { return p.FakePeers.Compare(ctx, message) })
}

// State implements own.Peers.
func (p *judgedPeers) State(ctx context.Context, datacenter string, w io.Writer) error {
	_, err := p.judge(ctx, datacenter, func() ([]byte, error) { return nil, p.FakePeers.State(ctx, datacenter, w) })
	return err
}

// accessRoles lists the rules of each named token's role; ORDERS and PAY have the services' role.
var accessRoles = map[string][]string{
	"service":  {"app {app} read,register", "kv {app}/ read,write", "lock {app} read,write", "session write"},
	"reader":   {"app * read", "kv * read", "lock * read", "session read", "node read", "operator read", "metrics read"},
	"operator": nil, // everything
	"dc2":      {"peer dc2 exchange"},
}

func newGuarded(t testing.TB, mode access.Mode, consensus bool, changes ...func(*httpd.Config)) *guarded {
	t.Helper()
	g := &guarded{memory: fsmtest.New(), texts: map[string]string{}, sessions: map[string]string{}, table: new(access.Table)}
	g.peers = &judgedPeers{httpdtest.FakePeers{WriteState: func(w io.Writer) error { return nil }}}
	g.memory.Registry.SetLevel(codec.Newest)
	config := httpd.Config{
		Service: g.memory, Peers: g.peers, Agents: consul.OneAgent,
		EurekaSender: func(identity, _ string) string { return identity },
		Access:       web.AccessConfig{Floor: mode, Cluster: func() string { return "c1" }},
	}
	if consensus {
		g.locker = fsmtest.NewCoordination(g.memory)
		config.Coordination = g.locker
		config.Access.Table = func() *access.Table { return need.Got(g.locker.View(context.Background(), registry.Stale))(t).Access() }
	} else {
		config.WithoutConsensus, config.Reads = true, web.ReadsStale
		config.Access.File = func() *access.Table { return g.table }
	}
	for _, change := range changes {
		change(&config)
	}
	g.handler = need.Got(httpd.New(config))(t)
	g.grant(t)
	g.fill(t)
	return g
}

// grant makes the roles and tokens.
func (g *guarded) grant(t testing.TB) {
	var op access.Change
	for name, texts := range accessRoles {
		role := &access.Role{Name: name, Rules: access.Everything()}
		if texts != nil {
			role.Rules = nil
		}
		for _, text := range texts {
			role.Rules = append(role.Rules, need.Got(access.ParseRule(text))(t))
		}
		op.PutRoles = append(op.PutRoles, role)
	}
	accessors := map[string]string{}
	for i, name := range []string{"ORDERS", "PAY", "reader", "operator", "dc2", "expired", "revoked"} {
		text := access.NewText([access.RandomBytes]byte{byte(i + 1), 15: byte(i + 1)}, "", "c1")
		accessor, hash, err := access.Parse(text, "c1")
		need.OK(t, err)
		g.texts[name], accessors[name] = text, accessor
		k := &access.Token{Accessor: accessor, Name: name, Roles: []string{name}, Secrets: []access.Secret{{Hash: hash}}}
		switch name {
		case "ORDERS", "PAY":
			k.Roles, k.App = []string{"service"}, name
		case "expired":
			k.Roles, k.Expires = []string{"operator"}, 1
		case "revoked":
			k.Roles = []string{"operator"}
		}
		op.Create = append(op.Create, k)
	}
	g.accessor = accessors["ORDERS"]
	g.change(t, op)
	g.change(t, access.Change{Revoke: []string{accessors["revoked"]}})
}

func (g *guarded) change(t testing.TB, op access.Change) {
	t.Helper()
	if g.locker != nil {
		results := need.Got(g.locker.Apply(context.Background(), kv.Access{Change: op}))(t)
		need.That(t, results[0].Refusal == "", "the change is refused: %s", results[0].Refusal)
		return
	}
	next, refusal := g.table.Apply(&op, g.table.Revision+1, 2)
	need.That(t, refusal == "", "the change is refused: %s", refusal)
	g.table = next
}

// fill registers an instance, a service and a session of each application.
func (g *guarded) fill(t testing.TB) {
	for _, app := range []string{"ORDERS", "PAY"} {
		g.must(t, app, "POST", "/eureka/apps/"+app, strings.ReplaceAll(eurekaBody, "{app}", app))
		if g.locker == nil {
			continue
		}
		g.must(t, app, "PUT", "/v1/agent/service/register", g.filled(consulService, app, ""))
		created := g.must(t, app, "PUT", "/v1/session/create", "{}")
		g.sessions[app] = httpdtest.DecodeReply[struct{ ID string }](t, created).ID
		g.must(t, app, "PUT", "/v1/kv/"+app+"/k", "x")
	}
	if g.locker != nil {
		g.must(t, "operator", "PUT", "/v1/catalog/register", `{"Node":"web-8","Address":"10.0.0.8"}`)
	}
}

func (g *guarded) must(t testing.TB, token, method, target, body string) httpdtest.Reply {
	t.Helper()
	got := g.send(method, target, body, bearer(g.texts[token]))
	need.That(t, got.Status < 300, "%s %s: got %d %s", method, target, got.Status, got.Body)
	return got
}

func bearer(text string) string { return "Authorization: Bearer " + text }

// send sends a request with header lines.
func (g *guarded) send(method, target, body string, headers ...string) httpdtest.Reply {
	return g.sendBy(context.Background(), method, target, body, headers...)
}

func (g *guarded) sendBy(ctx context.Context, method, target, body string, headers ...string) httpdtest.Reply {
	r := httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	r.RemoteAddr = cmp.Or(g.from, r.RemoteAddr)
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	g.handler.ServeHTTP(w, r)
	return httpdtest.Reply{Status: w.Code, Header: w.Header(), Body: w.Body.String()}
}

// done counts the effects of the calls so far.
func (g *guarded) done() (n int) {
	n = g.memory.Count() + len(g.peers.Calls)
	if g.locker != nil {
		n += int(g.locker.Applied.Load())
	}
	return n
}

// filled fills the placeholders of a row's text for an application and a datacenter.
func (g *guarded) filled(text, app, dc string) string {
	session := g.sessions[app]
	if session == "" {
		session = "00000000-0000-0000-0000-000000000000"
	}
	return strings.NewReplacer("{app}", app, "{svc}", strings.ToLower(app), "{session}", session, "{dc}", dc, "{accessor}", g.accessor).Replace(text)
}

// ask sends the request of a row. token is a token's name, or empty for a call without a token.
func (g *guarded) ask(ctx context.Context, row accessRow, token, app, dc string) httpdtest.Reply {
	method, path, _ := strings.Cut(row.route, " ")
	if row.call != "" {
		path = row.call
	} else {
		path = strings.NewReplacer("{id}", "{app}-i", "{name}", "{app}", "{key}", "{app}/k", "{node}", "rollcall", "{state}", "any").Replace(path)
		path = strings.NewReplacer("{vip}", "v", "{svip}", "v", "{asg}", "g").Replace(path)
	}
	var headers []string
	if token != "" {
		headers = append(headers, bearer(g.texts[token]))
	}
	if row.header != "" {
		headers = append(headers, strings.Split(g.filled(row.header, app, dc), "\n")...)
	}
	return g.sendBy(ctx, method, g.filled(path, app, dc), g.filled(row.body, app, dc), headers...)
}

// through reports whether a response shows that the call was let through.
func through(got httpdtest.Reply) bool {
	return got.Status != http.StatusUnauthorized && (got.Status != http.StatusForbidden || strings.Contains(got.Body, "no longer allowed"))
}

func accessModes(t *testing.T, do func(t *testing.T, consensus bool)) {
	for _, consensus := range []bool{true, false} {
		t.Run(fmt.Sprintf("consensus %t", consensus), func(t *testing.T) { do(t, consensus) })
	}
}

// TestEveryRouteLetsThroughWhomItsRowSays sends every request of the table as every caller. Refused callers come first
// and must not have changed anything. After a row that changed something the next one gets a new node.
func TestEveryRouteLetsThroughWhomItsRowSays(t *testing.T) {
	accessModes(t, func(t *testing.T, consensus bool) {
		g := newGuarded(t, access.On, consensus)
		for i, row := range accessRows {
			g.from = fmt.Sprintf("10.9.0.%d:1", i) // an address with many failures is told to wait
			g.refuses(t, row)
		}
		for _, row := range accessRows {
			before := g.done()
			for i, c := range accessCallers {
				if row.may[i] == '+' {
					got := g.ask(t.Context(), row, c.token, c.app, c.dc)
					expect.That(t, through(got), "%s %s of %s: got %d %q", row.route, row.call, c.name, got.Status, got.Body)
				}
			}
			got := g.ask(web.AsAdministrator(t.Context()), row, "", "ORDERS", "dc2")
			expect.That(t, through(got), "%s %s by the socket: got %d %q", row.route, row.call, got.Status, got.Body)
			if g.done() != before {
				g = newGuarded(t, access.On, consensus)
			}
		}
	})
}

// refuses sends the request of a row as each caller that may not make it.
func (g *guarded) refuses(t *testing.T, row accessRow) {
	t.Helper()
	_, path, _ := strings.Cut(row.route, " ")
	unserved := g.locker == nil && (httpdtest.Coordinates(path) || path == "/ui/held" || path == "/ui/keys" || strings.HasSuffix(row.call, "/set-key"))
	unknown := http.StatusUnauthorized
	if web.FormOfPath(path) == web.ConsulForm {
		unknown = http.StatusForbidden
	}
	for i, c := range accessCallers {
		tokens, want := []string{c.token}, http.StatusForbidden
		if c.token == "" {
			tokens, want = []string{"", "expired", "revoked"}, unknown
		}
		for _, token := range tokens {
			if row.may[i] == '+' {
				continue
			}
			before := g.done()
			got := g.ask(t.Context(), row, token, c.app, c.dc)
			ok := got.Status == want || unserved && got.Status == http.StatusNotImplemented
			expect.That(t, ok && g.done() == before, "%s %s of %s (%s): got %d %q, want %d, and nothing done", row.route, row.call, c.name, token, got.Status, got.Body, want)
		}
	}
}

func TestEveryRouteHasARowOfWhoMayCallIt(t *testing.T) {
	routes := newGuarded(t, access.On, true).handler.Routes(t)
	var rows []string
	for _, row := range accessRows {
		rows = append(rows, row.route)
		expect.That(t, slices.Contains(routes, row.route), "there is no route %s", row.route)
		expect.Equal(t, len(row.may), len(accessCallers), "%s", row.route)
	}
	for _, route := range routes {
		expect.That(t, slices.Contains(rows, route), "accessRows lack %s", route)
	}
}

// TestPathsThatLookLikeOthersNeedWhatTheirHandlerUses asks for PAY by paths that a path filter may mistake for others.
func TestPathsThatLookLikeOthersNeedWhatTheirHandlerUses(t *testing.T) {
	g := newGuarded(t, access.On, true)
	before := g.done()
	for _, r := range []struct{ method, target string }{
		{"GET", "/eureka/apps/PAY/"}, {"GET", "//eureka//apps//PAY"}, {"GET", "/eureka/apps/pay"}, {"GET", "/eureka/apps/%50AY"},
		{"GET", "/eureka/apps/ORDERS%2F..%2FPAY"}, {"GET", "/eureka/apps/PAY/ORDERS"}, {"GET", "/EUREKA/../eureka/apps/PAY"},
		{"PUT", "/eureka/apps/pay/PAY-i"}, {"PUT", "/eureka/apps/PAY/PAY-i/"}, {"PUT", "//eureka/apps/PAY/PAY-i"}, {"PUT", "/v2/apps/PAY/PAY-i"},
		{"DELETE", "/eureka/apps/PAY//PAY-i"}, {"DELETE", "/eureka/apps/pAY/PAY-i?app=ORDERS"}, {"DELETE", "/eureka/v2/apps/PAY/PAY-i"},
		{"PUT", "/eureka/apps/%50AY/PAY-i/status?value=DOWN"}, {"GET", "/eureka/apps/"}, {"GET", "/eureka/apps?regions=ORDERS"},
		{"GET", "/v1/kv/PAY/k"}, {"GET", "/v1/kv/PAY%2Fk"}, {"GET", "/v1/kv//PAY/k"}, {"GET", "/v1/kv/ORDERS?recurse"}, {"GET", "/v1/kv/ORDERS?%72ecurse"},
		{"GET", "/v1/kv/orders/k"}, {"PUT", "/v1/kv/PAY/k?key=ORDERS/k"}, {"DELETE", "/v1/kv/ORDERS?recurse=false"},
		{"GET", "/v1/health/service/pay"}, {"GET", "/v1/health/service/PAY/"}, {"GET", "/v1/health/service//PAY"}, {"GET", "/v1/health/service/"},
		{"GET", "/agent/web-7/v1/health/service/pay"}, {"GET", "/v1/catalog/service/PAY?service=ORDERS"},
		{"GET", "/v1/rollcall/watch?wait=0s&app=pay&app=ORDERS"}, {"GET", "/v1/rollcall/watch?wait=0s&app="}, {"GET", "/v1/rollcall/apps?app=pay&app=ORDERS"},
		{"GET", "/v1/rollcall/apps?app=*"}, {"GET", "/v1/rollcall/locks/PAY/"}, {"GET", "/v1/rollcall/locks/%50AY"},
	} {
		got := g.send(r.method, r.target, "", bearer(g.texts["ORDERS"]))
		expect.That(t, slices.Contains([]int{http.StatusForbidden, http.StatusNotFound, http.StatusBadRequest}, got.Status) && !strings.Contains(got.Body, "PAY-i"),
			"%s %s of ORDERS: got %d %q", r.method, r.target, got.Status, got.Body)
	}
	expect.Equal(t, g.done(), before, "operations")
	for _, r := range []struct{ method, target string }{
		{"GET", "/eureka/apps/orders/"}, {"PUT", "//eureka//apps/orders/ORDERS-i"}, {"PUT", "/v2/apps/oRDERS/ORDERS-i"}, {"GET", "/v1/kv/ORDERS%2Fk"},
		{"GET", "/v1/health/service/orders"}, {"GET", "/v1/rollcall/apps?app=orders"},
	} {
		got := g.send(r.method, r.target, "", bearer(g.texts["ORDERS"]))
		expect.Equal(t, got.Status, http.StatusOK, "%s", r.target)
	}
}

// TestNoHeaderButACredentialGrantsAnything sends headers that other registries accepted as proof of identity.
func TestNoHeaderButACredentialGrantsAnything(t *testing.T) {
	headers := []string{
		"X-Netflix-Discovery-Replication: true", "DiscoveryIdentity-Name: DefaultServer", "DiscoveryIdentity-Id: dc2", "DiscoveryIdentity-Version: 1.4",
		"User-Agent: Nacos-Server", "User-Agent: Rollcall", "X-Forwarded-For: 127.0.0.1", "X-Real-Ip: 127.0.0.1", "Forwarded: for=127.0.0.1", "Host: localhost",
		"X-Forwarded-User: operator", "X-Remote-User: operator", "Cookie: token=operator", "X-Consul-Namespace: default", "Via: admin.sock",
	}
	accessModes(t, func(t *testing.T, consensus bool) {
		g := newGuarded(t, access.On, consensus)
		before := g.done()
		for _, row := range accessRows {
			if row.may[0] == '+' {
				continue
			}
			for _, token := range []string{"", "ORDERS"} {
				if token != "" && row.may[2] == '+' {
					continue
				}
				row.header = strings.Join(headers, "\n")
				got := g.ask(t.Context(), row, token, "PAY", "dc2")
				expect.That(t, !through(got) || got.Status == http.StatusNotImplemented && token != "", "%s of %q: got %d %q", row.route, token, got.Status, got.Body)
			}
		}
		expect.Equal(t, g.done(), before, "operations")
	})
}

// TestBadCredentialIsRefusedInTheWordsOfEachAPI also sends bad credentials in the modes that ask for none or only
// count refusals.
func TestBadCredentialIsRefusedInTheWordsOfEachAPI(t *testing.T) {
	basic := func(userinfo string) string {
		return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(userinfo))
	}
	nodes := map[access.Mode]*guarded{}
	for _, mode := range []access.Mode{access.On, access.LogOnly, access.Off} {
		nodes[mode] = newGuarded(t, mode, true)
	}
	of := nodes[access.On]
	good := of.texts["operator"]
	foreign := access.NewText([access.RandomBytes]byte{9}, "", "another")
	for i, tc := range []struct {
		name    string
		headers []string
	}{
		{"expired", []string{bearer(of.texts["expired"])}},
		{"revoked", []string{bearer(of.texts["revoked"])}},
		{"cut off", []string{bearer(good[:len(good)-1])}},
		{"too long", []string{bearer(good + "a")}},
		{"another cluster's", []string{bearer(foreign)}},
		{"another secret", []string{bearer(access.NewText([access.RandomBytes]byte{20: 1}, of.accessor, "c1"))}},
		{"doubled with other values", []string{"X-Consul-Token: " + good, "X-Consul-Token: " + of.texts["ORDERS"]}},
		{"contradicting", []string{"X-Consul-Token: " + of.texts["ORDERS"], bearer(good)}},
		{"contradicting a bad one", []string{"X-Consul-Token: " + good, bearer("x")}},
		{"long", []string{bearer(strings.Repeat("a", 100_000))}},
		{"not UTF-8", []string{bearer("\xff\xfe")}},
		{"not UTF-8 in Basic", []string{basic("\xff:\xff")}},
		{"no base64", []string{"Authorization: Basic ?*!"}},
		{"no colon", []string{basic(good)}},
		{"an empty password", []string{basic("operator:")}},
		{"a user's password", []string{basic("operator:hunter2")}},
		{"a token as user with another password", []string{basic(good + ":hunter2")}},
		{"a scheme that is not known", []string{"Authorization: Negotiate " + good}},
		{"a scheme alone", []string{"Authorization: Bearer"}},
		{"no scheme", []string{"Authorization: " + good}},
		{"a UUID of Consul's", []string{"X-Consul-Token: 00000000-0000-0000-0000-000000000002"}},
	} {
		of.from = fmt.Sprintf("10.9.0.%d:1", i) // an address with many failures is told to wait
		for _, r := range []struct {
			method, target string
			status         int
			words          []string // the response contains one of them
		}{
			{"GET", "/eureka/apps", http.StatusUnauthorized, []string{""}},
			{"PUT", "/eureka/apps/ORDERS/ORDERS-i", http.StatusUnauthorized, []string{""}},
			{"GET", "/v1/kv/a", http.StatusForbidden, []string{"ACL not found", "Permission denied"}},
			{"GET", "/v1/rollcall/status", http.StatusUnauthorized, []string{`{"error":`}},
		} {
			for mode, g := range nodes {
				got := g.send(r.method, r.target, "", tc.headers...)
				if mode != access.On {
					expect.That(t, through(got), "%s: %s in mode %v: got %d %q", tc.name, r.target, mode, got.Status, got.Body)
					continue
				}
				expect.Equal(t, got.Status, r.status, "%s", tc.name+": "+r.target)
				if r.words[0] == "" {
					expect.Equal(t, got.Body, "", "%s", tc.name+": "+r.target)
				} else {
					expect.That(t, slices.ContainsFunc(r.words, func(word string) bool { return strings.Contains(got.Body, word) }), "%s: %s: got %q", tc.name, r.target, got.Body)
				}
				if r.status == http.StatusUnauthorized {
					expect.Equal(t, got.Header.Get("WWW-Authenticate"), `Basic realm="rollcall"`, "%s", tc.name)
				}
				for _, secret := range []string{good[22:74], foreign[22:74], "hunter2"} {
					expect.That(t, !strings.Contains(got.Body, secret), "%s: %s repeats it: %q", tc.name, r.target, got.Body)
				}
			}
		}
	}
	for name, headers := range map[string][]string{
		"twice the same":         {bearer(good), bearer(good)},
		"in both headers":        {bearer(good), "X-Consul-Token: " + good},
		"as a password":          {basic("anybody:" + good)},
		"as a user":              {basic(good + ":")},
		"with an empty one":      {"X-Consul-Token: ", bearer(good)},
		"the scheme in capitals": {"Authorization: BEARER " + good},
	} {
		expect.Equal(t, of.send("GET", "/eureka/apps", "", headers...).Status, http.StatusOK, "%s", name)
	}
}

// TestAddressWithManyFailuresIsToldToWait checks that other addresses, and good credentials from the same one, are
// unaffected.
func TestAddressWithManyFailuresIsToldToWait(t *testing.T) {
	g := newGuarded(t, access.On, true)
	from := func(address, text string) int {
		r := httptest.NewRequest("GET", "/eureka/apps", nil)
		r.RemoteAddr = address
		r.Header.Set("X-Consul-Token", text)
		w := httptest.NewRecorder()
		g.handler.ServeHTTP(w, r)
		return w.Code
	}
	statuses := map[int]int{}
	for range 200 {
		statuses[from("[2001:db8::1]:1", "rct_x")]++
	}
	expect.That(t, statuses[http.StatusTooManyRequests] > 0 && statuses[http.StatusUnauthorized] >= 20 && len(statuses) == 2, "got %v", statuses)
	expect.Equal(t, from("[2001:db8::1]:2", g.texts["operator"]), http.StatusOK, "a good credential of that address: got")
	expect.Equal(t, from("[2001:db8:1::1]:1", "rct_x"), http.StatusUnauthorized, "another address: got")
}

// TestRevokedTokenIsNotGoodByTheFile checks that a revoked token stays bad even if the file, kept for the day the
// cluster is lost, still lists it.
func TestRevokedTokenIsNotGoodByTheFile(t *testing.T) {
	before := newGuarded(t, access.On, true)
	file := need.Got(before.locker.View(context.Background(), registry.Stale))(t).Access()
	g := newGuarded(t, access.On, true, func(c *httpd.Config) { c.Access.File = func() *access.Table { return file } })
	status := func() int { return g.send("GET", "/eureka/apps/ORDERS", "", bearer(g.texts["ORDERS"])).Status }
	expect.Equal(t, status(), http.StatusOK, "before: got")
	g.change(t, access.Change{Revoke: []string{g.accessor}})
	expect.Equal(t, status(), http.StatusUnauthorized, "after it was revoked: got")
}

// TestWhoGuessesLearnsNothingOfAToken checks that only the holder of a token is told that it has expired.
func TestWhoGuessesLearnsNothingOfAToken(t *testing.T) {
	g := newGuarded(t, access.On, true)
	accessor, _, err := access.Parse(g.texts["expired"], "c1")
	need.OK(t, err)
	for name, row := range map[string]struct{ text, says string }{
		"the holder":    {g.texts["expired"], "has expired"},
		"who guesses":   {access.NewText([access.RandomBytes]byte{20: 1}, accessor, "c1"), "not known"},
		"of a good one": {access.NewText([access.RandomBytes]byte{20: 1}, g.accessor, "c1"), "not known"},
	} {
		g.send("GET", "/v1/rollcall/status", "", bearer(row.text)).Says(t, http.StatusUnauthorized, row.says, "%s", name)
	}
}

// TestWhoIsUnknownIsAskedForAToken checks that an anonymous caller is not told of a permission that it would lack.
func TestWhoIsUnknownIsAskedForAToken(t *testing.T) {
	g := newGuarded(t, access.On, true)
	got := g.send("GET", "/v1/rollcall/auth", "")
	expect.That(t, got.Status == http.StatusUnauthorized && !strings.Contains(got.Body, "operator"), "got %d %s", got.Status, got.Body)
}

// client returns Consul's client for a guarded node, with a token; admin makes it use the socket.
func (g *guarded) client(t *testing.T, token string, admin bool) *api.Client {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if admin {
			r = r.WithContext(web.AsAdministrator(r.Context()))
		}
		g.handler.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return need.Got(api.NewClient(&api.Config{Address: s.URL, HttpClient: client, Token: g.texts[token]}))(t)
}

func TestConsulsClientReadsItsOwnToken(t *testing.T) {
	g := newGuarded(t, access.On, true)
	self, _, err := g.client(t, "ORDERS", false).ACL().TokenReadSelf(nil)
	need.OK(t, err)
	expect.That(t, self.AccessorID == g.accessor && self.Description == "ORDERS" && len(self.Roles) == 1 && self.Roles[0].Name == "service" && !self.CreateTime.IsZero(), "got %+v", self)
	expect.Equal(t, self.SecretID, "<hidden>", "secret")
	for _, token := range []string{"", "expired", "revoked"} {
		_, _, err = g.client(t, token, false).ACL().TokenReadSelf(nil)
		var status api.StatusError
		expect.That(t, errors.As(err, &status) && status.Code == http.StatusForbidden, "a token that is %q: got %v", token, err)
	}
	_, _, err = newGuarded(t, access.Off, true).client(t, "", false).ACL().TokenReadSelf(nil)
	expect.That(t, err != nil && strings.Contains(err.Error(), "ACL support disabled"), "in mode off: got %v", err)
	self, _, err = newGuarded(t, access.LogOnly, true).client(t, "", false).ACL().TokenReadSelf(nil)
	expect.That(t, err == nil && self.AccessorID == "00000000-0000-0000-0000-000000000002", "in mode log-only: got %+v, %v", self, err)
}

// TestConsulsBootstrapIsForTheSocketAndOnce also checks the mode that asks for no credential, where Consul differs.
func TestConsulsBootstrapIsForTheSocketAndOnce(t *testing.T) {
	for _, mode := range []access.Mode{access.Off, access.LogOnly, access.On} {
		g := newGuarded(t, mode, true)
		_, _, err := g.client(t, "", false).ACL().Bootstrap()
		expect.That(t, err != nil && strings.Contains(err.Error(), "403 (Permission denied"), "by the network in mode %v: got %v", mode, err)
		socket := g.client(t, "", true).ACL()
		_, _, err = socket.BootstrapWithToken("00000000-0000-0000-0000-00000000000a")
		expect.That(t, err != nil && strings.Contains(err.Error(), "secrets are made here"), "with a secret: got %v", err)
		first, _, err := socket.Bootstrap()
		need.OK(t, err)
		g.texts["first"] = first.SecretID
		g.send("GET", "/v1/rollcall/auth/tokens", "", bearer(first.SecretID)).Says(t, http.StatusOK, first.AccessorID, "with the token that was made")
		_, _, err = socket.Bootstrap()
		expect.That(t, err != nil && strings.Contains(err.Error(), "403 (Permission denied: ACL bootstrap no longer allowed (reset index: "), "again: got %v", err)
	}
}

func TestOtherRoutesOfConsulsACLSayWhoManagesTokens(t *testing.T) {
	newGuarded(t, access.Off, true).send("GET", "/v1/acl/tokens", "").Is(t, http.StatusUnauthorized, "ACL support disabled", "in mode off")
	newGuarded(t, access.On, true).send("GET", "/v1/acl/tokens", "").Says(t, http.StatusNotImplemented, "rollcall auth", "in mode on")
}

// targeted is a guarded node whose TCP checks may look beyond their own service: those of ORDERS at 10.1.0.0/16:80.
func targeted(t *testing.T, mode access.Mode) *guarded {
	t.Helper()
	g := newGuarded(t, mode, true, func(c *httpd.Config) {
		c.JudgeProbe = func(p *catalog.Probe, _ *catalog.Service, _ *registry.Instance) (why string, needs []access.Need) {
			switch {
			case p.HTTP == "http://refused/":
				return "the operator's rules", nil
			case p.TCP != "":
				needs = append(needs, access.ToProbe(p.TCP))
			case p.UDP != "" && !strings.HasPrefix(p.UDP, p.From+":"): // the target that the service itself names
				needs = append(needs, access.ToProbe(p.UDP))
				needs[0].Counted = true
			case len(p.Header) > 0:
				needs = append(needs, access.ToProbe(access.HeaderTarget+p.Header[0].Key))
				needs[0].Counted = true
			}
			return "", needs
		}
	})
	role := &access.Role{Name: "service"}
	for _, text := range []string{"app {app} register", "check-target 10.1.0.0/16:80 probe"} {
		role.Rules = append(role.Rules, need.Got(access.ParseRule(text))(t))
	}
	g.change(t, access.Change{PutRoles: []*access.Role{role}})
	return g
}

// TestCheckLooksOnlyAtWhatItsTokenAllows registers checks in both ways: checks registered by the catalog's routes
// probe nothing.
func TestCheckLooksOnlyAtWhatItsTokenAllows(t *testing.T) {
	const check = `{"CheckID":"p","Name":"p","Interval":"10s",%s}`
	for _, tc := range []struct {
		name, probe, token string
		mode               access.Mode
		status             int
	}{
		{"allowed", `"TCP":"10.1.2.3:80"`, "ORDERS", access.On, 200},
		{"another port", `"TCP":"10.1.2.3:22"`, "ORDERS", access.On, 403},
		{"another address", `"TCP":"10.2.2.3:80"`, "ORDERS", access.On, 403},
		{"another address, counted", `"TCP":"10.2.2.3:80"`, "ORDERS", access.LogOnly, 200},
		{"another address, where nobody is asked", `"TCP":"10.2.2.3:80"`, "", access.Off, 200},
		{"the service's own", `"HTTP":"http://own/"`, "ORDERS", access.On, 200},
		{"against the operator's rules", `"HTTP":"http://refused/"`, "operator", access.On, 400},
		{"of an operator", `"TCP":"10.2.2.3:80"`, "operator", access.On, 200},
		{"where it comes from", `"UDP":"192.0.2.1:80"`, "ORDERS", access.On, 200},
		{"what the service says is its own", `"UDP":"10.2.2.3:80"`, "ORDERS", access.On, 403},
		{"the same, which its token allows", `"UDP":"10.1.2.3:80"`, "ORDERS", access.On, 200},
		{"the same, counted", `"UDP":"10.2.2.3:80"`, "ORDERS", access.LogOnly, 200},
		{"the same, where nobody is asked", `"UDP":"10.2.2.3:80"`, "", access.Off, 200},
		{"a header", `"HTTP":"http://own/","Header":{"Host":["x"]}`, "ORDERS", access.On, 403},
	} {
		body := fmt.Sprintf(check, tc.probe)
		for _, r := range []struct{ target, body string }{
			{"/v1/agent/service/register", `{"Name":"orders","ID":"ORDERS-c","Check":` + body + `}`},
			{"/v1/agent/check/register", strings.Replace(body, `"CheckID"`, `"ServiceID":"ORDERS-c","ID"`, 1)},
		} {
			g := targeted(t, tc.mode)
			before := g.done()
			var headers []string
			if tc.token != "" {
				headers = []string{bearer(g.texts[tc.token])}
			}
			if tc.status == http.StatusForbidden && !strings.Contains(tc.probe, "TCP") { // comes with level 3
				g.memory.Registry.SetLevel(2)
				got := g.send("PUT", r.target, r.body, headers...)
				c, _ := g.memory.Newest().CheckOn("", "p")
				expect.That(t, got.Status == 200 && c.Probe.From == "", "%s: %s below level 3: got %d, from %q", tc.name, r.target, got.Status, c.Probe.From)
				g.memory.Registry.SetLevel(codec.Newest)
				before = g.done()
			}
			got := g.send("PUT", r.target, r.body, headers...)
			expect.Equal(t, got.Status, tc.status, "%s: %s (%s)", tc.name, r.target, got.Body)
			switch {
			case tc.status == http.StatusForbidden:
				says := strings.Contains(got.Body, "Permission denied") && strings.Contains(got.Body, "check-target:probe") && strings.Contains(got.Body, "comes from 192.0.2.1,")
				expect.That(t, says && g.done() == before, "%s: %s: got %q", tc.name, r.target, got.Body)
			case tc.status == http.StatusOK && tc.token == "ORDERS":
				expect.Equal(t, g.registeredBy(t), g.accessor+" from 192.0.2.1", "%s", tc.name+": "+r.target+": the check is whose")
			}
		}
	}
}

// TestCheckIsItsTokensAlsoWhereNoneIsRun checks that a check keeps its token's accessor on a node that does not probe:
// a later leader probes with that token's rights.
func TestCheckIsItsTokensAlsoWhereNoneIsRun(t *testing.T) {
	g := newGuarded(t, access.On, true)
	g.must(t, "ORDERS", "PUT", "/v1/agent/check/register", `{"ServiceID":"ORDERS-c","ID":"p","Name":"p","Interval":"10s","TCP":"10.1.2.3:80"}`)
	expect.Equal(t, g.registeredBy(t), g.accessor+" from 192.0.2.1", "the check is whose")
}

// registeredBy returns the accessor of the token that registered the check p, and the address that it came from.
func (g *guarded) registeredBy(t *testing.T) string {
	t.Helper()
	c, ok := g.memory.Newest().CheckOn("", "p")
	need.That(t, ok && c.Probe != nil, "there is no check")
	return c.Probe.By + " from " + c.Probe.From
}

// TestTargetsOfARevokedTokenAreNotAllowed asks as a prober does.
func TestTargetsOfARevokedTokenAreNotAllowed(t *testing.T) {
	for _, mode := range []access.Mode{access.Off, access.LogOnly, access.On} {
		g := targeted(t, mode)
		config := web.AccessConfig{Floor: mode, Table: func() *access.Table { return need.Got(g.locker.View(context.Background(), registry.Stale))(t).Access() }}
		allows := func(at string) bool { return config.Allows(g.accessor, access.ToProbe(at)) }
		expect.That(t, allows("10.1.0.1:80"), "in mode %v what the token allows is not allowed", mode)
		expect.Equal(t, allows("10.2.0.1:80"), mode != access.On, "in mode %v what it does not allow", mode)
		expect.That(t, config.Allows("", access.ToProbe("10.2.0.1:80")), "in mode %v a check of nobody's", mode)
		g.change(t, access.Change{Revoke: []string{g.accessor}})
		expect.Equal(t, allows("10.1.0.1:80"), mode != access.On, "in mode %v after it was revoked", mode)
	}
}

// TestWhatIsNotThereIsNotRemovedLater also covers an item that another caller registers while a removal by someone who
// may not remove it is under way.
func TestWhatIsNotThereIsNotRemovedLater(t *testing.T) {
	g := newGuarded(t, access.On, true)
	before := g.done()
	for _, target := range []string{"/v1/agent/service/deregister/later", "/v1/agent/check/deregister/later", "/v1/agent/check/fail/later"} {
		got := g.send("PUT", target, "", bearer(g.texts["ORDERS"]))
		expect.Equal(t, got.Status, http.StatusNotFound, "%s", target)
	}
	got := g.send("PUT", "/v1/catalog/deregister", `{"Node":"rollcall","ServiceID":"later"}`, bearer(g.texts["ORDERS"]))
	expect.Equal(t, got.Status, http.StatusOK, "catalog/deregister")
	expect.Equal(t, g.done(), before, "operations")
}

// TestServiceDoesNotTakeAnothersVIP: clients that look up a VIP would call the impostor. A VIP that no application has
// now is only counted.
func TestServiceDoesNotTakeAnothersVIP(t *testing.T) {
	metrics := prometheus.NewRegistry()
	g := newGuarded(t, access.On, true, func(c *httpd.Config) { c.Metrics = metrics })
	for _, tc := range []struct {
		vip     string
		status  int
		counted float64
	}{
		{"orders", 204, 0}, {"", 204, 0}, {"oRDERS,orders,", 204, 0}, {"pay", 403, 0}, {"orders,PAY", 403, 0}, {"orders-canary,Orders", 204, 1},
		{"orders.example.net", 204, 1}, {"a.example.net, A.example.net,b.example.net", 204, 2}, {"c.example.net,pay", 403, 1},
	} {
		for _, key := range []string{"vipAddress", "secureVipAddress"} {
			counted := sumOf(t, metrics, "rollcall_auth_would_deny_total")
			body := strings.Replace(strings.ReplaceAll(eurekaBody, "{app}", "ORDERS"), `"status"`, fmt.Sprintf("%q:%q,%s", key, tc.vip, `"status"`), 1)
			expect.Equal(t, g.send("POST", "/eureka/apps/ORDERS", body, bearer(g.texts["ORDERS"])).Status, tc.status, "%s %q: got", key, tc.vip)
			expect.Equal(t, sumOf(t, metrics, "rollcall_auth_would_deny_total")-counted, tc.counted, "%s %q: counted", key, tc.vip)
			expect.Equal(t, g.send("POST", "/eureka/apps/ORDERS", body, bearer(g.texts["operator"])).Status, 204, "%s %q of an operator: got", key, tc.vip)
		}
	}
	counted := sumOf(t, metrics, "rollcall_auth_would_deny_total")
	g.must(t, "ORDERS", "PUT", "/eureka/apps/ORDERS/ORDERS-i", "")
	expect.Equal(t, sumOf(t, metrics, "rollcall_auth_would_deny_total"), counted, "counted after a renewal")
}

// TestAuthCheckListsWhatWouldBeRefused checks against the current registrations and roles, whatever the mode.
func TestAuthCheckListsWhatWouldBeRefused(t *testing.T) {
	for _, mode := range []access.Mode{access.LogOnly, access.On} {
		g := targeted(t, mode)
		body := strings.Replace(strings.ReplaceAll(eurekaBody, "{app}", "ORDERS"), `"status"`, `"vipAddress":"orders,Orders.net","secureVipAddress":"b.net","status"`, 1)
		g.must(t, "ORDERS", "POST", "/eureka/apps/ORDERS", body)
		for i, probe := range []string{`"UDP":"10.2.0.1:53"`, `"UDP":"192.0.2.1:53"`, `"UDP":"10.1.0.1:80"`, `"HTTP":"http://h/","Header":{"Host":["x"]}`} {
			g.memory.Registry.SetLevel(codec.Oldest) // the level at which it is only counted
			g.must(t, "ORDERS", "PUT", "/agent/web-9/v1/agent/service/register", fmt.Sprintf(`{"Name":"orders","ID":"c%d","Check":{"CheckID":"k%[1]d","Interval":"10s",%s}}`, i, probe))
		}
		g.memory.Registry.SetLevel(codec.Newest)
		got := func() own.AuthCheck {
			return httpdtest.DecodeReply[own.AuthCheck](t, g.must(t, "operator", "GET", "/v1/rollcall/auth/check", ""))
		}
		refused := func(check, rule string) own.RefusedCheck {
			return own.RefusedCheck{Node: "web-9", Check: check, Service: "c" + check[1:], From: "192.0.2.1", Token: "ORDERS", Accessor: g.accessor, Roles: []string{"service"}, Rule: rule}
		}
		want := own.AuthCheck{Checks: []own.RefusedCheck{refused("k0", "check-target 10.2.0.1:53 probe"), refused("k3", "checks.headers Host")}}
		for _, vip := range []string{"B.NET", "ORDERS.NET"} {
			want.VIPs = append(want.VIPs, own.RefusedVIP{App: "ORDERS", VIP: vip, Roles: []string{"service"}, Tokens: []string{"ORDERS"}, Rule: "app " + vip + " register"})
		}
		expect.Equal(t, fmt.Sprintf("%+v", got()), fmt.Sprintf("%+v", want), "in mode %v", mode)
		role := &access.Role{Name: "service"}
		for _, text := range []string{"app {app} register", "app b.net register", "app ORDERS.* register", "check-target 10.0.0.0/8:* probe"} {
			role.Rules = append(role.Rules, need.Got(access.ParseRule(text))(t))
		}
		g.change(t, access.Change{PutRoles: []*access.Role{role}})
		want = own.AuthCheck{VIPs: []own.RefusedVIP{}, Checks: []own.RefusedCheck{refused("k3", "checks.headers Host")}}
		expect.Equal(t, fmt.Sprintf("%+v", got()), fmt.Sprintf("%+v", want), "in mode %v, when the role has changed", mode)
	}
}

// TestNodeThatHasJustStartedLetsNobodyIn: the state on its disk may predate a revocation.
func TestNodeThatHasJustStartedLetsNobodyIn(t *testing.T) {
	for mode, want := range map[access.Mode]int{access.On: 503, access.LogOnly: 503, access.Off: 200} {
		var config httpd.Config
		g := newGuarded(t, mode, true, func(c *httpd.Config) { config = *c })
		g.memory.Set(func(m *fsmtest.Memory) { m.Reported.Ready = false })
		g.handler = need.Got(httpd.New(config))(t)
		status := func() int { return g.send("GET", "/v1/rollcall/status", "", bearer(g.texts["operator"])).Status }
		expect.Equal(t, status(), want, "in mode %v: got", mode)
		administrator := g.sendBy(web.AsAdministrator(context.Background()), "GET", "/v1/rollcall/status", "")
		expect.Equal(t, administrator.Status, 200, "by the socket: got")
		g.memory.Set(func(m *fsmtest.Memory) { m.Reported.Ready = true })
		expect.Equal(t, status(), 200, "when it has heard a leader: got")
		g.memory.Set(func(m *fsmtest.Memory) { m.Reported.Ready = false })
		expect.Equal(t, status(), 200, "what it has heard it goes on with: got")
	}
}

// TestMessageOfWhoReplicatesForNoneIsNotRead: a message is large, and names its datacenter only inside.
func TestMessageOfWhoReplicatesForNoneIsNotRead(t *testing.T) {
	g := newGuarded(t, access.On, true)
	for token, want := range map[string]int{"ORDERS": 403, "reader": 403, "dc2": 413} {
		got := g.send("POST", "/v1/rollcall/replication", strings.Repeat("x", 64<<20), bearer(g.texts[token]))
		expect.Equal(t, got.Status, want, "%s: got", token)
	}
}

// TestNodeThatLagsGivesToNoneWhatIsAnothers asks a node that has not yet learned the owner of a service and of a
// session.
func TestNodeThatLagsGivesToNoneWhatIsAnothers(t *testing.T) {
	l := &behindService{}
	g := newGuarded(t, access.On, true, func(c *httpd.Config) {
		l.Memory = c.Service.(*fsmtest.Memory)
		c.Service = l
	})
	services, sessions := g.memory.Newest(), need.Got(g.locker.View(context.Background(), registry.Stale))(t)
	create := need.Got(g.locker.Apply(access.As(context.Background(), access.Sender{Name: "PAY"}), kv.CreateSession{ID: "0badcafe-0000-4000-8000-000000000001"}))(t)
	g.memory.Perform(t, registry.RegisterCatalog{Service: &catalog.Service{ID: "new", Name: "pay"}, Instance: &registry.Instance{App: "PAY", InstanceID: "new", HostName: "h", Status: registry.Up}})
	before := g.done()
	for _, r := range []struct{ target, body string }{
		{"/v1/agent/service/register", `{"Name":"orders","ID":"new","Port":80}`},
		{"/v1/agent/service/deregister/new", ""},
		{"/v1/txn", `[{"Service":{"Verb":"set","Node":"rollcall","Service":{"ID":"new","Service":"orders"}}}]`},
		{"/v1/session/destroy/" + create[0].Session.ID, ""},
	} {
		l.old, g.locker.Behind = services, sessions
		// a read that waited for the newest state gets it
		g.locker.After = func() { l.old, g.locker.Behind = nil, nil }
		g.send("PUT", r.target, r.body, bearer(g.texts["ORDERS"])).Says(t, http.StatusForbidden, "Permission denied", "%s", r.target)
	}
	expect.Equal(t, g.done(), before, "operations")
}

// TestAgentsNodeMovesOnlyWithItsServices registers an agent's service by its name from another host.
func TestAgentsNodeMovesOnlyWithItsServices(t *testing.T) {
	g := newGuarded(t, access.On, true)
	register := func(from, app, address string) int {
		r := httptest.NewRequest("PUT", "/agent/web-7/v1/agent/service/register", strings.NewReader(fmt.Sprintf(`{"Name":%q,"ID":%[1]q,"Port":80,"Address":%q}`, strings.ToLower(app), address)))
		r.RemoteAddr = from + ":1"
		r.Header.Set("X-Consul-Token", g.texts[app])
		w := httptest.NewRecorder()
		g.handler.ServeHTTP(w, r)
		return w.Code
	}
	expect.Equal(t, register("10.0.0.7", "PAY", ""), http.StatusOK, "PAY: got")
	expect.Equal(t, register("10.0.0.7", "ORDERS", ""), http.StatusOK, "ORDERS of the same host: got")
	expect.Equal(t, register("10.6.6.6", "ORDERS", ""), http.StatusForbidden, "ORDERS, by which PAY would be at another address: got")
	expect.Equal(t, register("10.0.0.7", "PAY", "10.0.0.7"), http.StatusOK, "PAY with its own address: got")
	expect.Equal(t, register("10.6.6.6", "ORDERS", ""), http.StatusOK, "ORDERS, by which nothing of PAY changes: got")
}

// TestPruningNeedsNoMoreThanOverride also prunes a single application.
func TestPruningNeedsNoMoreThanOverride(t *testing.T) {
	g := newGuarded(t, access.On, true)
	g.must(t, "ORDERS", "PUT", "/eureka/apps/ORDERS/ORDERS-i/status?value=DOWN", "")
	g.change(t, access.Change{PutRoles: []*access.Role{{Name: "reader", Rules: []access.Rule{need.Got(access.ParseRule("app ORDERS override"))(t)}}}})
	expect.Equal(t, g.send("POST", "/v1/rollcall/prune?not-passing&service=PAY", "", bearer(g.texts["reader"])).Status, http.StatusForbidden, "another: got")
	got := g.must(t, "reader", "POST", "/v1/rollcall/prune?not-passing&service=orders", "")
	expect.That(t, strings.Contains(got.Body, "ORDERS-i"), "got %s", got.Body)
}

// TestMaintenanceIsAnsweredOnlyToWhoMayChangeIt also covers calls that change nothing: their answer would reveal the
// state.
func TestMaintenanceIsAnsweredOnlyToWhoMayChangeIt(t *testing.T) {
	// of Consul's API, and of Eureka's
	for id, by := range map[string]string{"ORDERS-c": "ORDERS", "ORDERS-i": "operator"} {
		g := newGuarded(t, access.On, true)
		call := func(token, enable string) int {
			return g.send("PUT", "/v1/agent/service/maintenance/"+id+"?enable="+enable, "", bearer(g.texts[token])).Status
		}
		for _, step := range []struct {
			token, enable string
			want          int
		}{
			{"PAY", "false", 403}, {by, "false", 200}, // it is off
			{"PAY", "true", 403}, {by, "true", 200},
			{"PAY", "true", 403}, {by, "true", 200}, // it is on
		} {
			expect.Equal(t, call(step.token, step.enable), step.want, "%s, enable=%s by %s", id, step.enable, step.token)
		}
	}
}

// TestSessionTellsOfNodesAndChecksOnlyToWhoMayReadThem: the answer would reveal whether they exist and are critical.
func TestSessionTellsOfNodesAndChecksOnlyToWhoMayReadThem(t *testing.T) {
	g := newGuarded(t, access.On, true)
	g.must(t, "operator", "PUT", "/v1/catalog/register", `{"Node":"web-8","Address":"10.0.0.8","Check":{"CheckID":"alive","Name":"alive","Status":"critical"}}`)
	g.must(t, "ORDERS", "PUT", "/v1/agent/check/register", `{"ID":"of-orders","Name":"c","ServiceID":"ORDERS-c","TTL":"1m","Status":"passing"}`)
	for _, c := range []struct {
		body                  string
		pay, orders, operator int
	}{
		{`{}`, 200, 200, 200},
		{`{"Node":"rollcall","NodeChecks":["serfHealth"]}`, 200, 200, 200},
		{`{"Node":"web-8"}`, 403, 403, 500}, // it has no serfHealth
		{`{"Node":"WEB-8","NodeChecks":[]}`, 403, 403, 200},
		{`{"Node":"nowhere"}`, 403, 403, 500},
		{`{"Node":"web-8","NodeChecks":["alive"]}`, 403, 403, 500},
		{`{"ServiceChecks":[{"ID":"of-orders"}]}`, 403, 200, 200},
		{`{"Checks":["of-orders"]}`, 403, 200, 200},
		{`{"ServiceChecks":[{"ID":"nothing"}]}`, 403, 403, 500},
		{`{"Node":"rollcall","NodeChecks":["nothing"]}`, 403, 403, 500},
	} {
		for token, want := range map[string]int{"PAY": c.pay, "ORDERS": c.orders, "operator": c.operator} {
			got := g.send("PUT", "/v1/session/create", c.body, bearer(g.texts[token]))
			expect.Equal(t, got.Status, want, "%s by %s: %s", c.body, token, got.Body)
		}
	}
}

// TestFenceShowsNoTokenOfALockThatTheCallerMayNotRead lets the write itself through: it is the caller's.
func TestFenceShowsNoTokenOfALockThatTheCallerMayNotRead(t *testing.T) {
	g := newGuarded(t, access.On, true)
	g.must(t, "operator", "PUT", "/v1/rollcall/locks/ORDERS?session="+g.sessions["ORDERS"], "")
	for _, fence := range []string{"fence-lock=ORDERS", "fence-key=ORDERS/k"} {
		for token, want := range map[string]bool{"PAY": false, "ORDERS": true} {
			got := g.send("PUT", "/v1/kv/"+token+"/k?fence=1&"+fence, "x", bearer(g.texts[token]))
			_, shown := got.Header[web.FenceHeader]
			expect.That(t, got.Body == "false\n" || got.Body == "false", "%s by %s: got %d %s", fence, token, got.Status, got.Body)
			expect.Equal(t, shown, want, "%s: %s is shown the token", fence, token)
		}
	}
}

func TestPagesOverTLSHaveBrowsersAskForNothingElse(t *testing.T) {
	g := newGuarded(t, access.Off, true)
	for target, want := range map[string]string{"http://n1.example/ui": "", "https://n1.example/ui": "max-age=2592000"} {
		got := g.send("GET", target, "")
		expect.That(t, got.Status == http.StatusOK && got.Header.Get("Strict-Transport-Security") == want, "%s: %d, Strict-Transport-Security %q, want %q", target, got.Status, got.Header.Get("Strict-Transport-Security"), want)
	}
}

// A check that follows one that its token may not read is refused in Consul's words, and nothing changes; below level
// 3, and in mode log-only, it is only counted.
func TestAliasOfWhatMayNotBeReadIsRefused(t *testing.T) {
	const body = `{"Name":"x","ServiceID":"ORDERS-c","AliasService":"PAY-c"}`
	for _, tt := range []struct {
		mode   access.Mode
		level  byte
		status int
	}{{access.On, 3, 403}, {access.On, 2, 200}, {access.LogOnly, 3, 200}, {access.LogOnly, 2, 200}} {
		metrics := prometheus.NewRegistry()
		g := newGuarded(t, tt.mode, true, func(c *httpd.Config) { c.Metrics = metrics })
		g.memory.Registry.SetLevel(tt.level)
		g.must(t, "ORDERS", "PUT", "/v1/kv/ORDERS/l", "x") // puts the level into the view
		g.must(t, "ORDERS", "POST", "/eureka/apps/ORDERS", strings.ReplaceAll(eurekaBody, "{app}", "ORDERS"))
		counted := sumOf(t, metrics, "rollcall_auth_would_deny_total")
		got := g.send("PUT", "/v1/agent/check/register", body, bearer(g.texts["ORDERS"]))
		expect.Equal(t, got.Status, tt.status, "mode %s, level %d: it gets", tt.mode, tt.level)
		v := g.memory.Registry.View()
		c, there := v.CheckOn("", "x")
		expect.Equal(t, there, tt.status == 200, "mode %s, level %d: it is registered:", tt.mode, tt.level)
		expect.Equal(t, sumOf(t, metrics, "rollcall_auth_would_deny_total")-counted > 0, tt.status == 200, "mode %s, level %d: it is counted:", tt.mode, tt.level)
		if there {
			want := catalog.Alias{Service: "PAY-c"}
			if tt.level == 3 {
				want.By, want.Reads = g.accessor, "PAY"
			}
			expect.Equal(t, *c.Alias, want, "mode %s, level %d: it follows", tt.mode, tt.level)
			continue
		}
		want := fmt.Sprintf(`Permission denied: token with AccessorID '%s' lacks permission 'app:read' on "PAY"`, g.accessor)
		expect.Equal(t, got.Body, want, "the refusal says")
	}
}

// TestAnswersOfServicesAreForThoseWhoMayRegisterThem: an HTTP check is a request with the leader's reach, and its
// output shows the response.
func TestAnswersOfServicesAreForThoseWhoMayRegisterThem(t *testing.T) {
	g := newGuarded(t, access.On, true)
	g.change(t, access.Change{PutRoles: []*access.Role{{Name: "service", Rules: []access.Rule{
		{Resource: access.App, Match: "{app}", Verbs: access.Read | access.Register}, {Resource: access.App, Match: "*", Verbs: access.Read}, {Resource: access.Node, Verbs: access.Read},
	}}}})
	g.must(t, "ORDERS", "PUT", "/v1/agent/service/register", `{"Name":"orders","ID":"o","Check":{"CheckID":"h","Interval":"10s","HTTP":"http://192.0.2.1/"}}`)
	g.must(t, "operator", "PUT", "/v1/agent/check/register", `{"ID":"n","Name":"n","Interval":"10s","HTTP":"http://192.0.2.1/"}`)
	for check, answer := range map[string]string{"h": "of the service", "n": "of the node"} {
		need.Got(g.memory.Apply(t.Context(), registry.FromClient, registry.SetCheck{Check: check, Status: catalog.Critical, Output: "HTTP GET http://192.0.2.1/: 500 X Output: answer " + answer}))(t)
	}
	g.must(t, "operator", "PUT", "/v1/agent/service/register", `{"Name":"pay","ID":"p","Check":{"CheckID":"a","AliasService":"o"}}`)
	for _, tc := range []struct {
		route        string
		orders, more bool // whoever may register ORDERS sees the service's answer; the node's is shown, too
	}{
		{"GET /v1/health/service/orders", true, true},
		{"GET /v1/health/checks/orders", true, false},
		{"GET /v1/health/checks/pay", false, false}, // of an alias
		{`GET /v1/health/service/orders?filter=Checks.Output+contains+"answer+of+the+service"`, true, true},
		{"GET /v1/health/node/rollcall", false, true},
		{"GET /v1/health/state/any", false, true},
		{"GET /v1/agent/checks", true, true},
		{"GET /v1/agent/health/service/id/o", true, true},
		{"GET /v1/agent/health/service/name/orders", true, true},
		{`PUT /v1/txn [{"Check":{"Verb":"get","Check":{"Node":"rollcall","CheckID":"h"}}}]`, true, false},
		{`PUT /v1/txn [{"Check":{"Verb":"get","Check":{"Node":"rollcall","CheckID":"n"}}}]`, false, true},
		{"GET /ui/apps/ORDERS/o", true, true},
	} {
		method, rest, _ := strings.Cut(tc.route, " ")
		target, body, _ := strings.Cut(rest, " ")
		for token, sees := range map[string][2]bool{"reader": {}, "PAY": {}, "ORDERS": {tc.orders, false}, "operator": {true, tc.more}} {
			for _, level := range []byte{2, codec.Newest} {
				g.memory.Registry.SetLevel(level)
				got := g.send(method, target, body, bearer(g.texts[token])).Body
				want := sees
				if level == 2 {
					want = [2]bool{true, tc.more}
				}
				service, node := strings.Contains(got, "answer of the service"), strings.Contains(got, "answer of the node")
				mayLack := strings.Contains(tc.route, `"n"`) // it concerns the node alone
				expect.That(t, (service == want[0] || mayLack) && node == want[1], "%s of %s at level %d: got %v and %v, want %v: %s", tc.route, token, level, service, node, want, got)
			}
		}
	}
}

// TestLogOnlyCountsWhatModeOnRefuses sends every route's request as every caller: log-only counts what mode on refuses
// in TestEveryRouteLetsThroughWhomItsRowSays, and refuses only changes of permissions. Acts of the dashboard are left
// out: they answer with a form first.
func TestLogOnlyCountsWhatModeOnRefuses(t *testing.T) {
	var metrics *prometheus.Registry
	fresh := func() *guarded {
		metrics = prometheus.NewRegistry()
		return newGuarded(t, access.LogOnly, true, func(c *httpd.Config) { c.Metrics = metrics })
	}
	g := fresh()
	for _, row := range accessRows {
		_, path, _ := strings.Cut(row.route, " ")
		permissions := strings.HasPrefix(path, "/v1/rollcall/auth/") || path == "/v1/rollcall/audit" || path == "/v1/acl/bootstrap"
		if strings.HasPrefix(path, "/ui/acts/") {
			continue
		}
		for i, c := range accessCallers {
			counted, done := sumOf(t, metrics, "rollcall_auth_would_deny_total"), g.done()
			got := g.ask(t.Context(), row, c.token, c.app, c.dc)
			counted = sumOf(t, metrics, "rollcall_auth_would_deny_total") - counted
			may := row.may[i] == '+'
			expect.That(t, through(got) == (may || !permissions) && (counted > 0) == (!may && !permissions),
				"%s %s of %s, for which mode on has %q: %v counted, %d",
				row.route, row.call, c.name, row.may[i], counted, got.Status)
			if g.done() != done {
				g = fresh()
			}
		}
	}
}
