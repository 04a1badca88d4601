package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// invoke has the client call one of its methods at a node, and returns what the method did.
func invoke[T any](t *testing.T, d *driver, n *Node, method string, args arguments) T {
	t.Helper()
	result, err := try[T](d, n, method, args)
	need.OKf(t, err, "%s at %s", method, n.Name)
	return result
}

// try is invoke where the method may fail.
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

// TestNodeConsulClientLocksAtEveryNode: of two sessions of npm's consul, made at different nodes, one
// holds a key at a time; the other gets it once it is released, and a session's end gives up its keys.
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

// TestNodeConsulClientWatchesThroughALeaderKill: npm's watch, which repeats blocking reads of a key at a
// follower, reports a change made at another node, and after the leader's end the next one.
func TestNodeConsulClientWatchesThroughALeaderKill(t *testing.T) {
	client := startNodeConsul(t)
	t.Parallel()
	c := StartCluster(t, Config{})
	leader := c.Leader()
	others := c.Others(leader)
	invoke[any](t, client, others[0], "watch", arguments{"method": "kv.get", "key": "config/colour"})
	var last *consulPair // that was reported
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

// TestPythonConsulClientLocks runs the recipe of a lock with py-consul in two processes, at two nodes.
// The second one waits while the first holds the lock, and has it once the first one's session ended.
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

// TestSpringCloudConsulServiceLifeCycle has a Spring Boot service with Spring Cloud Consul configured and
// registered through a follower. By its defaults it has an HTTP check of its actuator, which the leader runs.
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

// listed are the instances of the service that a node lists to Consul's clients.
func (s *springConsul) listed(n *Node, onlyPassing bool) ([]*api.ServiceEntry, error) {
	client, err := api.NewClient(&api.Config{Address: n.HTTP, Transport: consulTransport, Token: n.Token})
	if err != nil {
		return nil, err
	}
	entries, _, err := client.Health().Service("till", "", onlyPassing, nil)
	return entries, err
}

// is waits until every node shows a status to Eureka's clients, and the service as passing to Consul's
// if that is UP.
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

// hasGreeting waits until the service's property has a value, by its actuator at the address at which it
// is registered. That it changes is up to the client's watch of its keys.
func (s *springConsul) hasGreeting(t *testing.T, want string) {
	t.Helper()
	var entries []*api.ServiceEntry
	Eventually(t, clientLimit, "the service is passing", func() (err error) { // its check may be late for once
		if entries, err = s.listed(s.cluster.Nodes[0], true); err == nil && len(entries) != 1 {
			err = fmt.Errorf("%d services are", len(entries))
		}
		return err
	})
	service := serverAt(fmt.Sprintf("%s:%d", entries[0].Service.Address, entries[0].Service.Port)) // it is called as nodes are
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

// discovers registers a service through Eureka's API and takes it out again; the client's watch of the
// catalog says when to look.
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

// isGone looks at every node: a service that has been shut down is listed nowhere.
func (s *springConsul) isGone(t *testing.T) {
	t.Helper()
	for _, n := range s.cluster.Nodes {
		entries, err := s.listed(n, false)
		expect.That(t, err == nil && len(entries) == 0, "node %s still lists %d instances of the service (%v)", n.Name, len(entries), err)
	}
}

// TestSpringCloudConsulOfTwoHostsWithItsDefaults has one Spring Boot service on two hosts, with the same port and without
// an instance-id of its own: by Spring's default both have the same id. Both are listed, and the one is when the other stops.
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

// calledFrom is the URL of a node for the programs of a host: what is sent there comes to the node from the host's address.
func calledFrom(t *testing.T, host string, n *Node) string {
	t.Helper()
	to := need.Got(url.Parse(n.URL()))(t)
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
	transport := &http.Transport{DialContext: from.DialContext}
	front := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport: transport,
		ErrorLog:  log.New(io.Discard, "", 0), // of calls that a program gave up at its end
	})
	t.Cleanup(front.Close)
	t.Cleanup(transport.CloseIdleConnections)
	return front.URL
}
