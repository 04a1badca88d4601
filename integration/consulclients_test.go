package integration

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// invoke makes the client call one of its methods at a node, and returns what the method returned.
func invoke[T any](t *testing.T, d *driver, n *Node, method string, args arguments) T {
	t.Helper()
	result, err := try[T](d, n, method, args)
	need.OKf(t, err, "%s at %s", method, n.Name)
	return result
}

// try is invoke for a method that may fail.
func try[T any](d *driver, n *Node, method string, args arguments) (T, error) {
	var result T
	reply, err := d.do(driverCommand{Do: method, URL: n.URL(), Args: args})
	if err == nil {
		err = json.Unmarshal(reply.Result, &result)
	}
	return result, err
}

func startNodeConsul(t *testing.T) *driver {
	t.Helper()
	installed(t, "consul/node/node_modules/.stamp", "run make clients")
	return startDriver(t, "consul/node", "node", "driver.js")
}

// consulPair is a key as clients show it: with the value decoded.
type consulPair struct{ Key, Value, Session string }

// Of two sessions of npm's consul, made at different nodes, one holds a key at a time; the other gets it once it is
// released, and a session's end gives up its keys.
func TestNodeConsulClientLocksAtEveryNode(t *testing.T) {
	client := startNodeConsul(t)
	t.Parallel()
	c := StartCluster(t, withSteadyLeader(Config{}))
	session := func(n *Node, name string) string {
		t.Helper()
		options := arguments{"name": name, "ttl": "60s", "lockDelay": "1ms", "behavior": "delete"}
		return invoke[api.SessionEntry](t, client, n, "session.create", options).ID
	}
	first, second := session(c.Nodes[0], "first"), session(c.Nodes[1], "second")
	known := invoke[[]api.SessionEntry](t, client, c.Nodes[2], "session.list", nil)
	expect.That(t, len(known) == 2, "the third node lists %+v, want both sessions", known)
	set := func(n *Node, options arguments) bool {
		t.Helper()
		return invoke[bool](t, client, n, "kv.set", options)
	}
	acquire := func(n *Node, session string) bool {
		t.Helper()
		return set(n, arguments{"key": "locks/node", "value": "of " + session, "acquire": session})
	}
	need.That(t, acquire(c.Nodes[0], first), "the key has no holder, and it was not acquired")
	need.That(t, !acquire(c.Nodes[1], second), "the second session has the key while the first holds it")
	held := invoke[consulPair](t, client, c.Nodes[2], "kv.get", arguments{"key": "locks/node"})
	expect.Equal(t, held, (consulPair{Key: "locks/node", Value: "of " + first, Session: first}), "the third node shows")
	expect.That(t, !set(c.Nodes[2], arguments{"key": "locks/node", "value": "stolen", "release": second}),
		"the second session has released what the first holds")
	need.That(t, set(c.Nodes[2], arguments{"key": "locks/node", "value": "free", "release": first}),
		"the holder could not release its key through another node")
	need.That(t, acquire(c.Nodes[1], second), "the key was released, and the second session does not get it")
	renewed := invoke[[]api.SessionEntry](t, client, c.Nodes[0], "session.renew", arguments{"id": second})
	expect.That(t, len(renewed) == 1 && renewed[0].TTL == "60s", "renewing at another node answers %+v", renewed)
	invoke[any](t, client, c.Nodes[0], "session.destroy", arguments{"id": second})
	pair := invoke[*consulPair](t, client, c.Nodes[2], "kv.get", arguments{"key": "locks/node"})
	expect.That(t, pair == nil, "the holder's session, which deletes, has ended, and its key is there: %+v", pair)
	_, err := try[any](client, c.Nodes[1], "session.renew", arguments{"id": second})
	expect.That(t, err != nil, "a session that has ended was renewed")
}

// npm's watch, which repeats blocking reads of a key at a follower, reports a change made at another node, and after
// the leader's end the next one.
func TestNodeConsulClientWatchesThroughALeaderKill(t *testing.T) {
	client := startNodeConsul(t)
	t.Parallel()
	c := StartCluster(t, Config{})
	leader := c.Leader()
	others := c.Others(leader)
	invoke[any](t, client, others[0], "watch", arguments{"method": "kv.get", "key": "config/colour"})
	var last *consulPair // the last one reported
	reports := func(want string) {
		t.Helper()
		Eventually(t, clientLimit, fmt.Sprintf("the watch reports %q", want), func() error {
			for _, change := range invoke[[]*consulPair](t, client, others[0], "changes", nil) {
				last = change
			}
			return unless(last != nil && last.Value == want, "the last change is %+v", last)
		})
	}
	sets := func(colour string) { // as often as needed on a machine that is busy with elections
		t.Helper()
		need.OK(t, Poll(ReadyLimit, func() error {
			_, err := try[bool](client, others[1], "kv.set", arguments{"key": "config/colour", "value": colour})
			return err
		}))
	}
	sets("red")
	reports("red")
	leader.Kill()
	c.Leader(others...)
	sets("blue")
	reports("blue")
	leader.Start(t)
	leader.WaitReady(t)
}

func startPythonConsul(t *testing.T) *driver {
	t.Helper()
	installed(t, "consul/python/.venv/.stamp", "apt-get install -y python3-venv, then make clients")
	return startDriver(t, "consul/python", ".venv/bin/python", "driver.py")
}

// It runs a lock recipe with py-consul in two processes, at two nodes. The second one waits while the first holds the
// lock, and has it once the first one's session has ended.
func TestPythonConsulClientLocks(t *testing.T) {
	holder, waiter := startPythonConsul(t), startPythonConsul(t)
	t.Parallel()
	c := StartCluster(t, withSteadyLeader(Config{}))
	lock := func(d *driver, n *Node, name string) (string, error) {
		session, err := try[string](d, n, "session.create", arguments{"name": name, "ttl": 60, "lock_delay": 1})
		if err != nil {
			return "", err
		}
		held, err := try[consulPair](d, n, "lock", arguments{"key": "locks/python", "value": name, "session": session})
		if err == nil && (held.Session != session || held.Value != name) {
			err = fmt.Errorf("%s has the lock, and the key is %+v", name, held)
		}
		return session, err
	}
	first := need.Got(lock(holder, c.Nodes[0], "first"))(t)
	acquired := make(chan error, 1)
	go func() {
		_, err := lock(waiter, c.Nodes[1], "second")
		acquired <- err
	}()
	select {
	case err := <-acquired:
		t.Fatalf("the second has the lock while the first holds it (%v)", err)
	case <-time.After(3 * time.Second): // some rounds of its waiting
	}
	renewed := invoke[api.SessionEntry](t, holder, c.Nodes[2], "session.renew", arguments{"session_id": first})
	expect.That(t, renewed.Name == "first" && renewed.TTL == "60s" && renewed.LockDelay == time.Second, "renewing at another node answers %+v", renewed)
	invoke[bool](t, holder, c.Nodes[2], "session.destroy", arguments{"session_id": first})
	need.OK(t, <-acquired)
	again := invoke[bool](t, holder, c.Nodes[2], "kv.put", arguments{"key": "locks/python", "value": "late", "release": first})
	expect.That(t, !again, "the first has released what the second holds")
}

// springConsul is a Spring Boot service with Spring Cloud Consul, the instance till-1 of till.
type springConsul struct {
	*driver
	cluster *Cluster
}

// A Spring Boot service with Spring Cloud Consul is configured and registered through a follower. By its defaults it
// has an HTTP check of its actuator, which the leader runs.
func TestSpringCloudConsulServiceLifeCycle(t *testing.T) {
	installed(t, "java/target/.stamp", "apt-get install -y default-jdk-headless maven, then make clients")
	t.Parallel()
	c := StartCluster(t, withSteadyLeader(Config{}))
	s := &springConsul{startJava(t, "java", "-Xmx192m", "-jar", "consul/target/driver.jar"), c}
	s.overrides = true
	s.isConfigured(t, "hello")
	need.OK(t, s.Start(c.Others(c.Leader())[0].URL(), "till", "till-1", 1))
	s.is(t, "UP")
	s.hasGreeting(t, "hello")
	s.isConfigured(t, "good day")
	s.hasGreeting(t, "good day")
	s.discovers(t)
	need.OK(t, s.Override("OUT_OF_SERVICE"))
	s.is(t, "OUT_OF_SERVICE")
	need.OK(t, s.Restore())
	s.is(t, "UP")
	need.OK(t, s.Stop())
	s.isGone(t)
}

// listed returns the instances of the service that a node lists to Consul's clients.
func (s *springConsul) listed(n *Node, onlyPassing bool) ([]*api.ServiceEntry, error) {
	client, err := api.NewClient(&api.Config{Address: n.HTTP, Transport: consulTransport, Token: n.Token})
	if err != nil {
		return nil, err
	}
	entries, _, err := client.Health().Service("till", "", onlyPassing, nil)
	return entries, err
}

// is waits until every node shows a status to Eureka's clients, and the service as passing to Consul's if that is UP.
func (s *springConsul) is(t *testing.T, status string) {
	t.Helper()
	for _, n := range s.cluster.Nodes {
		Eventually(t, clientLimit, fmt.Sprintf("node %s shows the service as %s", n.Name, status), func() error {
			instance, err := n.Lookup("TILL", "127.0.0.1:till-1")
			if err != nil {
				return err
			}
			if instance == nil || instance.Status != status {
				return fmt.Errorf("Eureka's clients see %+v", instance)
			}
			passing, err := s.listed(n, true)
			if err == nil && (len(passing) == 1) != (status == "UP") {
				err = fmt.Errorf("%d are passing", len(passing))
			}
			return err
		})
	}
}

// isConfigured sets the key that Spring Cloud Consul Config reads for the property greeting.
func (s *springConsul) isConfigured(t *testing.T, greeting string) {
	t.Helper()
	need.OK(t, second(consulClient(t, s.cluster.Nodes[2]).KV().Put(&api.KVPair{Key: "config/till/greeting", Value: []byte(greeting)}, nil)))
}

// hasGreeting waits until the service's property has a value, using its actuator at its registered address. The
// change depends on the client's watch of its keys.
func (s *springConsul) hasGreeting(t *testing.T, want string) {
	t.Helper()
	var entries []*api.ServiceEntry
	Eventually(t, clientLimit, "the service is passing", func() (err error) { // its check may be late once
		if entries, err = s.listed(s.cluster.Nodes[0], true); err == nil && len(entries) != 1 {
			err = fmt.Errorf("%d services are", len(entries))
		}
		return err
	})
	// it is called as nodes are
	service := serverAt(fmt.Sprintf("%s:%d", entries[0].Service.Address, entries[0].Service.Port))
	Eventually(t, clientLimit, fmt.Sprintf("the service is configured with %q", want), func() error {
		response := service.Get("/actuator/env/greeting")
		if response.Status != http.StatusOK {
			return fmt.Errorf("%s: %v", service.HTTP, response)
		}
		var property struct{ Property struct{ Value string } }
		err := json.Unmarshal(response.Body, &property)
		if err == nil && property.Property.Value != want {
			err = fmt.Errorf("it is %q", property.Property.Value)
		}
		return err
	})
}

// discovers registers a service through Eureka's API and cancels it again; the client's watch of the catalog tells
// when to look.
func (s *springConsul) discovers(t *testing.T) {
	t.Helper()
	sees := func(want map[string]string) {
		t.Helper()
		Eventually(t, clientLimit, fmt.Sprintf("the service discovers %v", want), func() error {
			found, err := s.Discover("orders")
			if err == nil && !maps.Equal(found, want) {
				err = fmt.Errorf("it discovers %v", found)
			}
			return err
		})
	}
	n := s.cluster.Nodes[1]
	mustRegister(t, n, Instance{App: "ORDERS", ID: "orders-1"})
	sees(map[string]string{"orders-1": "http://127.0.0.1:8080"})
	mustCancel(t, n, "ORDERS", "orders-1")
	sees(map[string]string{})
}

// isGone checks every node: a service that has been shut down is listed nowhere.
func (s *springConsul) isGone(t *testing.T) {
	t.Helper()
	for _, n := range s.cluster.Nodes {
		entries, err := s.listed(n, false)
		expect.That(t, err == nil && len(entries) == 0, "node %s still lists %d instances of the service (%v)", n.Name, len(entries), err)
	}
}

// One Spring Boot service runs on two hosts, with the same port and without an instance-id of its own: by Spring's
// default both have the same id. Both are listed, and one remains listed when the other stops.
func TestSpringCloudConsulOfTwoHostsWithItsDefaults(t *testing.T) {
	installed(t, "java/target/.stamp", "apt-get install -y default-jdk-headless maven, then make clients")
	t.Parallel()
	c := StartCluster(t, withSteadyLeader(Config{}))
	_, port, err := net.SplitHostPort(FreeAddr(t))
	need.OK(t, err)
	ids := make(map[string]bool)
	listed := func(want ...string) {
		t.Helper()
		for _, n := range c.Nodes {
			Eventually(t, clientLimit, fmt.Sprintf("node %s lists %v as passing", n.Name, want), func() error {
				entries, _, err := consulClient(t, n).Health().Service("orders", "", true, nil)
				if err != nil {
					return err
				}
				var addresses []string
				for _, e := range entries {
					ids[e.Service.ID] = true
					addresses = append(addresses, e.Service.Address)
				}
				slices.Sort(addresses)
				return unless(slices.Equal(addresses, want), "it lists %v", addresses)
			})
		}
	}
	hosts := []string{"127.0.0.2", "127.0.0.3"}
	var services []*driver
	for i, host := range hosts {
		node := calledFrom(t, host, c.Nodes[i])
		s := startJava(t, "java", "-Xmx192m", "-Dserver.address="+host, "-Dserver.port="+port,
			"-Dspring.cloud.consul.discovery.hostname="+host, "-jar", "consul/target/driver.jar")
		need.OK(t, s.Start(node, "orders", "", 1))
		services = append(services, s)
	}
	listed(hosts...)
	expect.Equal(t, len(ids), 1, "ids, of which both have Spring's default (%v):", ids)
	need.OK(t, services[0].Stop())
	listed(hosts[1])
	Pass(t, 5*time.Second) // some rounds of the survivor's check
	listed(hosts[1])
}

// calledFrom returns the URL of a node for the programs of a host: requests sent there reach the node from the host's
// address.
func calledFrom(t *testing.T, host string, n *Node) string {
	t.Helper()
	to := need.Got(url.Parse(n.URL()))(t)
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
	transport := &http.Transport{DialContext: from.DialContext}
	front := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport: transport,
		ErrorLog:  log.New(io.Discard, "", 0), // from calls that a program abandoned when it ended
	})
	t.Cleanup(front.Close)
	t.Cleanup(transport.CloseIdleConnections)
	return front.URL
}

// credentialClients are the stock clients of Eureka, all of which can take a credential in only one way: in the URL.
var credentialClients = []struct {
	name  string
	needs string // the file that `make clients` makes; may be ""
	again bool   // it can be started again after a stop
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

// Each client of Eureka is refused without a credential, and says so, and goes through its life with a token in its
// URL that grants it only its own application.
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
		_ = l.client.Stop() // there is nothing to cancel, which most clients report as an error
	}
	for _, n := range l.Nodes {
		instance, err := readUntilTaken(func() (*Listed, error) { return n.Lookup(l.app, l.id) })
		expect.That(t, instance == nil && err == nil, "without a credential, %s is listed by %s: %+v, %v", l.id, n.Name, instance, err)
	}
}

// Consul's Go client, Spring Cloud Consul and the requests of Prometheus' discoveries, with tokens, are served what
// their roles grant, and otherwise refused in Consul's words.
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

// deniedToConsul returns nil if a call of Consul's client failed for lack of permission, as its users see it.
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

// springConsulLives runs a service with Spring Cloud Consul that has its token in the two properties for it. Its
// health indicator, which sends no token, does not ask for the services.
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
	// It starts although its registration is refused: it ignores the status of that.
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
	_ = s.Override("OUT_OF_SERVICE") // Spring asks for maintenance without its token, and ignores the refusal
	s.is(t, "UP")
	need.OK(t, s.Stop())
	s.isGone(t)
}

// discoveriesAreServed sends requests like Prometheus' discoveries with basic_auth, authorization or a token in their
// settings, and like its scrapes.
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

// A published Eureka server, and a node with access control on, send each other what their clients do, each with the
// user in the other's URL. The batches of a server without a token are refused, and so are ours without a password,
// which a proxy in front of the Eureka server demands as Spring Security does.
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
	file := filepath.Join(t.TempDir(), "rollcall.yaml") // everybody can see command lines
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

// asksFor passes on requests that carry a user and a password.
func asksFor(user, password, to string) http.Handler {
	target, err := url.Parse(to)
	if err != nil {
		panic(err) // it is a test's own
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ErrorLog = log.New(io.Discard, "", 0) // from calls while the server starts
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, _ := r.BasicAuth(); u != user || p != password {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		r.Header.Del("Authorization")
		proxy.ServeHTTP(w, r)
	})
}
