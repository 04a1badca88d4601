package integration

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// credentialClients are the stock clients of Eureka, all of which know but one way to have a credential: in the URL.
var credentialClients = []struct {
	name  string
	needs string // the file that `make clients` makes; "": none
	again bool   // one that was stopped can be started again
	new   func(t *testing.T) stockClient
}{
	{"netflix", "java/target/.stamp", true, javaWithOverrides("netflix")},
	{"spring", "java/target/.stamp", true, javaWithOverrides("spring")},
	{"js", "node/node_modules/.stamp", false, func(t *testing.T) stockClient { return startDriver(t, "node", "node", "driver.js") }},
	{"python", "python/.venv/.stamp", false, func(t *testing.T) stockClient {
		d := startDriver(t, "python", ".venv/bin/python", "driver.py")
		d.overrides = true
		return d
	}},
	{"fargo", "", false, func(t *testing.T) stockClient { return newFargoClient(t, true) }},
}

func javaWithOverrides(module string) func(t *testing.T) stockClient {
	return func(t *testing.T) stockClient {
		d := startJava(t, "java", "-Xmx192m", "-jar", module+"/target/driver.jar")
		d.overrides = true
		return d
	}
}

// TestStockClientsLiveByTheirCredentials: each client of Eureka is refused without a credential, and says so, and goes
// through its life with a token that it has in its URL, and that grants it its own application alone.
func TestStockClientsLiveByTheirCredentials(t *testing.T) {
	quietFargo()
	t.Parallel()
	c := StartCluster(t, withSteadyLeader(Config{Auth: "on"}))
	c.PutRole(t, "service", "app {app} read,register", "app * read")
	through := c.Others(c.Leader())[0]
	for _, tc := range credentialClients {
		t.Run(tc.name, func(t *testing.T) {
			if tc.needs != "" {
				installed(t, tc.needs, "run make clients")
			}
			t.Parallel()
			client := tc.new(t)
			life := newLifeCycle(c, through, tc.name, client)
			life.isRefused(t)
			if !tc.again {
				life.client = tc.new(t)
			}
			token := c.NewToken(t, tc.name, life.app, "service")
			life.url = through.As(token.Secret).Eureka()
			life.starts(t)
			life.discovers(t)
			life.heartbeats(t)
			life.registersAgain(t)
			life.isOverridden(t)
			life.isRestored(t)
			life.stops(t)
		})
	}
}

// isRefused starts and stops the client without a credential: it says why nothing comes of it, and no node lists it.
func (l *lifeCycle) isRefused(t *testing.T) {
	said := l.client.Start(l.through.As("").Eureka(), l.app, l.id, l.lease)
	Eventually(t, clientLimit, "the client says that it is refused", func() error {
		all := fmt.Sprint(said)
		if d, ok := l.client.(*driver); ok {
			log, err := os.ReadFile(d.stderr)
			if err != nil {
				return err
			}
			all += string(log)
		}
		return unless(strings.Contains(all, "401"), "it says %.2000s", all)
	})
	if f, ok := l.client.(*fargoClient); !ok || f.end != nil {
		_ = l.client.Stop() // there is nothing to cancel, which most clients find an error
	}
	for _, n := range l.Nodes {
		instance, err := readUntilTaken(func() (*Listed, error) { return n.Lookup(l.app, l.id) })
		expect.That(t, instance == nil && err == nil, "without a credential, %s is listed by %s: %+v, %v", l.id, n.Name, instance, err)
	}
}

// TestConsulClientsLiveByTheirTokens: Consul's Go client, Spring Cloud Consul and what Prometheus' discoveries ask, with
// tokens, are served what their roles grant, and are refused in Consul's words otherwise.
func TestConsulClientsLiveByTheirTokens(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, withSteadyLeader(Config{Auth: "on"}))
	n := c.Others(c.Leader())[0]
	t.Run("Go", func(t *testing.T) {
		t.Parallel()
		c.PutRole(t, "web", "app {app} read,register", "app * read", "kv web/ read,write", "session write,read")
		goClientLives(t, c, n)
	})
	t.Run("Spring", func(t *testing.T) {
		installed(t, "java/target/.stamp", "apt-get install -y default-jdk-headless maven, then make clients")
		t.Parallel()
		springConsulLives(t, c, n)
	})
	t.Run("Prometheus", func(t *testing.T) {
		t.Parallel()
		c.PutRole(t, "prometheus", "app * read", "metrics read", "node read")
		discoveriesAreServed(t, c, n)
	})
}

// deniedToConsul returns nil if a call of Consul's client failed as its users know it, for want of permission.
func deniedToConsul(err error) error {
	var answered api.StatusError
	return unless(errors.As(err, &answered) && answered.Code == http.StatusForbidden && strings.Contains(answered.Body, "Permission denied"), "it returned %v", err)
}

func goClientLives(t *testing.T, c *Cluster, n *Node) {
	registration := &api.AgentServiceRegistration{ID: "web-1", Name: "web", Address: "10.0.0.7", Port: 80, Check: &api.AgentServiceCheck{TTL: "60s"}}
	nobody, client := consulClient(t, n.As("")), consulClient(t, n.As(c.NewToken(t, "web", "WEB", "web").Secret))
	need.OK(t, deniedToConsul(nobody.Agent().ServiceRegister(registration)))
	_, _, err := nobody.Health().Service("web", "", false, nil)
	need.OK(t, deniedToConsul(err))
	foreign := *registration
	foreign.ID, foreign.Name = "pay-1", "pay"
	err = client.Agent().ServiceRegister(&foreign)
	need.OK(t, deniedToConsul(err))
	expect.That(t, strings.Contains(err.Error(), "Permission denied: token with AccessorID"), "a client is refused by %v", err)
	for _, service := range []string{"WEB", "PAY"} {
		response := n.Get("/eureka/apps/" + service)
		expect.OKf(t, response.is(http.StatusNotFound), "%s, which could not be registered", service)
	}

	need.OK(t, client.Agent().ServiceRegister(registration))
	need.OK(t, client.Agent().UpdateTTL("service:web-1", "fine", api.HealthPassing))
	expect.Equal(t, passing(t, client, "web"), 1, "instances that are passing:")
	need.OK(t, client.Agent().EnableServiceMaintenance("web-1", "new disk"))
	expect.Equal(t, passing(t, client, "web"), 0, "instances that are passing in maintenance:")
	need.OK(t, client.Agent().DisableServiceMaintenance("web-1"))
	need.Got(client.KV().Put(&api.KVPair{Key: "web/limit", Value: []byte("17")}, nil))(t)
	_, err = client.KV().Put(&api.KVPair{Key: "pay/limit", Value: []byte("17")}, nil)
	need.OK(t, deniedToConsul(err))
	_, _, err = nobody.KV().Get("web/limit", nil)
	need.OK(t, deniedToConsul(err))
	lock := need.Got(client.LockOpts(lockOptions("web/leader")))(t)
	need.Got(lock.Lock(nil))(t)
	need.OK(t, lock.Unlock())
	need.OK(t, client.Agent().ServiceDeregister("web-1"))
	expect.Equal(t, passing(t, client, "web"), 0, "instances that are passing after the end:")
}

// springConsulLives: a service with Spring Cloud Consul has its token in the two properties that there are for it. Its
// health indicator, which has none, does not ask for the services.
func springConsulLives(t *testing.T, c *Cluster, n *Node) {
	c.PutRole(t, "till", "kv config/ read")
	token := c.NewToken(t, "till", "TILL", "till")
	properties := fmt.Sprintf(`{"spring.cloud.consul.discovery.acl-token":%q,"spring.cloud.consul.config.acl-token":%[1]q,
		"spring.cloud.consul.health-indicator.include-services-query":false}`, token.Secret)
	start := func() *springConsul {
		return &springConsul{startDriverWith(t, []string{"SPRING_APPLICATION_JSON=" + properties}, "java",
			"java", javaTemporary(t), "-Xmx192m", "-jar", "consul/target/driver.jar"), c}
	}
	refused := start()
	refused.isConfigured(t, "hello")
	// It starts although its registration is refused, of which it looks at no status.
	need.OK(t, refused.Start(n.As("").URL(), "till", "till-1", 1))
	refused.isGone(t)
	need.OK(t, refused.Stop())
	c.PutRole(t, "till", "app {app} read,register", "app * read", "kv config/ read", "check-target 127.0.0.0/8:* probe")
	s := start()
	s.overrides = true
	need.OK(t, s.Start(n.URL(), "till", "till-1", 1))
	s.is(t, "UP")
	s.hasGreeting(t, "hello")
	s.isConfigured(t, "good day")
	s.hasGreeting(t, "good day")
	s.discovers(t)
	_ = s.Override("OUT_OF_SERVICE") // Spring asks for maintenance without its token, and does not look at the refusal
	s.is(t, "UP")
	need.OK(t, s.Stop())
	s.isGone(t)
}

// discoveriesAreServed asks as Prometheus' discoveries do that have basic_auth, authorization or a token in their settings,
// and as it scrapes.
func discoveriesAreServed(t *testing.T, c *Cluster, n *Node) {
	token := c.NewToken(t, "prometheus", "", "prometheus").Secret
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("prometheus:"+token))
	for _, tc := range []struct{ name, path, header, value string }{
		{"eureka_sd, basic_auth", "/eureka/apps", "Authorization", basic},
		{"eureka_sd, authorization", "/eureka/apps", "Authorization", "Bearer " + token},
		{"consul_sd, token: services", "/v1/catalog/services?index=0&stale=&wait=30000ms", "X-Consul-Token", token},
		{"consul_sd, token: a service", "/v1/health/service/web?index=0&stale=&wait=30000ms", "X-Consul-Token", token},
		{"consul_sd, token: the agent", "/v1/agent/self", "X-Consul-Token", token},
		{"consul_sd, basic_auth", "/v1/catalog/services", "Authorization", basic},
		{"consul_sd, authorization", "/v1/catalog/services", "Authorization", "Bearer " + token},
		{"a scrape, basic_auth", "/metrics", "Authorization", basic},
		{"a scrape, authorization", "/metrics", "Authorization", "Bearer " + token},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ask := func(value string) int {
				req := need.Got(http.NewRequestWithContext(t.Context(), http.MethodGet, n.URL()+tc.path, nil))(t)
				if value != "" {
					req.Header.Set(tc.header, value)
				}
				resp := need.Got(transport.RoundTrip(req))(t)
				resp.Body.Close()
				return resp.StatusCode
			}
			expect.Equal(t, ask(tc.value), http.StatusOK, "with its credential:")
			without := ask("")
			expect.That(t, without == http.StatusUnauthorized || without == http.StatusForbidden, "without: %d", without)
		})
	}
	expect.OKf(t, n.As(token).Register(Instance{App: "WEB", ID: "web-9"}).is(http.StatusForbidden), "a registration by Prometheus")
}

// TestEurekaServerIsAPeerByItsCredentials: a published Eureka server, and a node with access control on, send each other what
// their clients do, each by the user in the other's URL. The batches of a server without a token are refused, as are ours
// without a password, which something in front of the Eureka server asks for as Spring Security does.
func TestEurekaServerIsAPeerByItsCredentials(t *testing.T) {
	t.Parallel()
	installed(t, "java/target/.stamp", "apt-get install -y default-jdk-headless maven, then make clients")
	addr := FreeAddr(t)
	const password = "canary-of-the-peer-old"
	theirs := serverAt(addr)
	front := httptest.NewServer(asksFor("rollcall", password, theirs.URL()))
	t.Cleanup(front.Close)
	c := NewCluster(t, Config{Nodes: 1, Auth: "on"})
	c.secrets.add(password)
	ours := c.Nodes[0]
	file := filepath.Join(t.TempDir(), "rollcall.yaml") // command lines show to everybody
	peers := fmt.Sprintf("replication:\n  eureka: old=%s\n", withUser(front.URL+"/eureka", "rollcall", password))
	need.OK(t, os.WriteFile(file, []byte(peers), 0o600))
	ours.Args = []string{"--config=" + file}
	c.Start()
	c.PutRole(t, "eureka", "app * read", "app EUREKA register")
	token := c.NewToken(t, "old", "", "eureka")
	defaultZone := fmt.Sprintf(`{"eureka.client.service-url.defaultZone":%q}`, ours.As(token.Secret).Eureka())
	theirs = startEurekaServerWith(t, []string{"SPRING_APPLICATION_JSON=" + defaultZone}, "", addr)

	mustDo(t, "register", ours.Register(Instance{App: "ORDERS", ID: "ours"}))
	awaitOn(t, theirs, "ORDERS", "ours", "UP")
	mustDo(t, "register", theirs.Register(Instance{App: "ORDERS", ID: "theirs"}))
	Eventually(t, clientLimit, "a batch without permission is refused", func() error {
		page := ours.Do(Request{Path: "/metrics", Accept: "*/*"})
		return unless(strings.Contains(string(page.Body), `rollcall_auth_denied_total{principal="old",resource="peer",verb="exchange"}`), "nothing is counted")
	})
	instance := need.Got(ours.Lookup("ORDERS", "theirs"))(t)
	expect.That(t, instance == nil, "a peer without permission has registered %+v", instance)
	batch := []byte(`{"replicationList":[{"appName":"ORDERS","id":"ours","action":"Cancel"}]}`)
	response := ours.As("").Do(Request{Method: http.MethodPost, Path: "/eureka/peerreplication/batch/", ContentType: "application/json", Body: batch})
	expect.OKf(t, response.is(http.StatusUnauthorized), "a batch without a credential")

	c.PutRole(t, "eureka", "app * read", "app EUREKA register", "peer old exchange")
	mustDo(t, "register again", theirs.Register(Instance{App: "ORDERS", ID: "theirs"}))
	awaitOn(t, ours, "ORDERS", "theirs", "UP")
	mustDo(t, "cancel", theirs.Cancel("ORDERS", "theirs"))
	awaitOn(t, ours, "ORDERS", "theirs", "")
	mustDo(t, "cancel", ours.Cancel("ORDERS", "ours"))
	awaitOn(t, theirs, "ORDERS", "ours", "")
}

// asksFor passes on what comes with a user and a password.
func asksFor(user, password, to string) http.Handler {
	target, err := url.Parse(to)
	if err != nil {
		panic(err) // it is a test's own
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ErrorLog = log.New(io.Discard, "", 0) // of calls while the server starts
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, _ := r.BasicAuth(); u != user || p != password {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		r.Header.Del("Authorization")
		proxy.ServeHTTP(w, r)
	})
}
