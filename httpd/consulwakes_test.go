package httpd_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// waiter is a blocking query under way, and the response that it got.
type waiter struct {
	target string
	before reply // what it read before it began to wait
	woken  bool
	after  reply
}

// wait begins a blocking query of each target, with the index that a read of it has.
func (n *bubbled) wait(t *testing.T, ctx context.Context, targets []string) []*waiter {
	t.Helper()
	all := make([]*waiter, len(targets))
	for i, target := range targets {
		w := &waiter{target: target, before: n.send(t, "GET", target, "")}
		all[i] = w
		query := separator(target) + "index=" + strconv.FormatUint(w.before.index(t), 10) + "&wait=9m"
		go func() {
			r, _ := http.NewRequestWithContext(ctx, "GET", "http://node"+target+query, nil) // the target is well-formed
			resp, err := n.client.Do(r)
			if err != nil {
				return
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			w.after, w.woken = reply{status: resp.StatusCode, header: resp.Header, body: string(text)}, err == nil
		}()
	}
	synctest.Wait()
	for _, w := range all {
		expect.That(t, !w.woken, "%s was answered before anything changed", w.target)
	}
	return all
}

// separator stands before one more parameter of a target.
func separator(target string) string {
	if strings.Contains(target, "?") {
		return "&"
	}
	return "?"
}

// wakes makes a change while a blocking query of each target waits, and returns a letter for each: W, it was answered with
// another document; w, with the same one; a dot: it still waits. One whose document has changed must be answered, with a
// higher index, and no index may go back.
func (n *bubbled) wakes(t *testing.T, name string, targets []string, change func()) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer func() {
		cancel()
		synctest.Wait()
	}()
	all := n.wait(t, ctx, targets)
	change()
	synctest.Wait()
	letters := make([]byte, len(all))
	for i, w := range all {
		now := n.send(t, "GET", w.target, "")
		before, after := w.before.index(t), now.index(t)
		expect.That(t, after >= before, "%s: the index of %s went from %d back to %d", name, w.target, before, after)
		changed := now.body != w.before.body
		fresh := n.send(t, "GET", w.target+separator(w.target)+"made-for-this-request="+url.QueryEscape(name), "")
		expect.That(t, fresh.body == now.body && fresh.index(t) == after, "%s: %s is shared as\n%s\nand is\n%s", name, w.target, now.body, fresh.body)
		switch {
		case changed && !(w.woken && after > before && w.after.body == now.body):
			t.Errorf("%s: %s changed, its index went from %d to %d, the query that waits for it was answered: %t\n%s\n%s",
				name, w.target, before, after, w.woken, w.before.body, now.body)
		case changed:
			letters[i] = 'W'
		case w.woken:
			letters[i] = 'w'
		default:
			letters[i] = '.'
		}
	}
	return string(letters)
}

// Changes, and which blocking queries they wake, with Consul 1.15.6 (an agent in mode -dev, where the same was done) and
// here. With Consul w is an answer that says nothing new. So it may be missing here, but no W. What is w here and no w or
// W there is one too many, and stands in the table so that no other comes to it.
func TestBlockingQueriesWakeAsConsulsDo(t *testing.T) {
	targets := []string{
		"/v1/catalog/nodes", "/v1/catalog/services", "/v1/catalog/service/web", "/v1/catalog/service/db", "/v1/catalog/service/none",
		"/v1/catalog/node/rollcall", "/v1/catalog/node/far", "/v1/catalog/node-services/far",
		"/v1/health/service/web", "/v1/health/service/db", "/v1/health/service/cache", "/v1/health/checks/web",
		"/v1/health/node/rollcall", "/v1/health/node/far", "/v1/health/state/any", "/v1/health/state/critical",
	}
	const (
		register, deregister = "/v1/catalog/register", "/v1/catalog/deregister"
		service              = "/v1/agent/service/register"
		web                  = `{"Name":"web","ID":"w1","Address":"10.0.0.1","Check":{"TTL":"1h","Status":"passing"},`
	)
	bubble(t, func(t *testing.T) {
		n := newCatalogIn(t)
		put := func(target, body string) {
			got := n.send(t, "PUT", target, body)
			need.That(t, got.status == 200, "%s %s: got %d %s", target, body, got.status, got.body)
		}
		put(service, web+`"Port":80}`)
		put(service, `{"Name":"db","ID":"d1","Port":81,"Address":"10.0.0.1","Check":{"TTL":"1h","Status":"passing"}}`)
		put(register, `{"Node":"far","Address":"10.9.0.1","NodeMeta":{"a":"1"},"Service":{"Service":"web","ID":"fw","Port":90},"Checks":[{"CheckID":"fwc","Name":"fwc","ServiceID":"fw","Status":"passing"},{"CheckID":"fn","Name":"fn","Status":"passing"}]}`)
		put(register, `{"Node":"near","Address":"10.9.0.2","Service":{"Service":"cache","ID":"nc","Port":91},"Check":{"CheckID":"nn","Name":"nn","Status":"passing"}}`)
		for _, row := range []struct{ name, target, body, consul, here string }{
			{"a heartbeat that says nothing new", "/v1/agent/check/pass/service:w1", "", "................", "................"},
			{"a service is registered as it is", service, web + `"Port":80}`, "................", "................"},
			{"a service's check turns critical", "/v1/agent/check/fail/service:w1", "", "........W..WW.WW", "........W..WW.WW"},
			{"and passes again", "/v1/agent/check/pass/service:w1", "", "........W..WW.WW", "........W..WW.WW"},
			{"a service gets a tag", service, web + `"Port":80,"Tags":["a"]}`, ".WW.wW..W..WW.Ww", ".WW..W..W..WW.Ww"},
			{"a service gets another port", service, web + `"Port":82,"Tags":["a"]}`, ".wW.wW..W.......", ".wW..W..W..ww..."},
			{"it has a second instance", service, `{"Name":"web","ID":"w2","Port":83,"Address":"10.0.0.1"}`, ".wW.wW..W.......", ".wW..W..W..ww..."},
			{"which goes", "/v1/agent/service/deregister/w2", "", ".wW.wW..W.......", ".wW..W..W..ww..."},
			{"a new service", service, `{"Name":"new","ID":"n1","Port":84,"Address":"10.0.0.1","Check":{"TTL":"1h","Status":"passing"}}`, ".W..wW......W.Ww", ".W...W......W.Ww"},
			{"which goes", "/v1/agent/service/deregister/n1", "", ".W..wW......W.Ww", ".W...W......W.Ww"},
			{"a check of a service of far turns critical", register, `{"Node":"far","SkipNodeUpdate":true,"Check":{"CheckID":"fwc","Name":"fwc","ServiceID":"fw","Status":"critical"}}`, "........W..W.WWW", "........W..W.WWW"},
			{"a check of the node far turns critical", register, `{"Node":"far","SkipNodeUpdate":true,"Check":{"CheckID":"fn","Name":"fn","Status":"critical"}}`, "........W....WWW", "........W....WWW"},
			{"a check of the node near turns critical", register, `{"Node":"near","SkipNodeUpdate":true,"Check":{"CheckID":"nn","Name":"nn","Status":"critical"}}`, "..........W...WW", "..........W...WW"},
			{"which goes", deregister, `{"Node":"near","CheckID":"nn"}`, "..........W...WW", "..........W...WW"},
			{"the node near gets another address", register, `{"Node":"near","Address":"10.9.0.3"}`, "W.........W.....", "W.........W....."},
			{"the node far gets another address", register, `{"Node":"far","Address":"10.9.0.4","NodeMeta":{"a":"1"}}`, "W.W...WWW.......", "W.W...WWW..w.w.."},
			{"a service is added on far", register, `{"Node":"far","SkipNodeUpdate":true,"Service":{"Service":"ext","ID":"fe","Port":92}}`, ".W....WW........", ".W....WW.....w.."},
			{"which goes", deregister, `{"Node":"far","ServiceID":"fe"}`, ".W..w.WW........", ".W....WW.....w.."},
			{"a node appears", register, `{"Node":"other","Address":"10.9.0.9"}`, "W...............", "W..............."},
			{"and goes", deregister, `{"Node":"other"}`, "W...............", "W..............."},
			{"the node near goes, with its service", deregister, `{"Node":"near"}`, "WW..w.....W.....", "WW........W....."},
		} {
			got := n.wakes(t, row.name, targets, func() { put(row.target, row.body) })
			expect.Equal(t, got, row.here, "%s: woken are", row.name)
			for i := range row.consul {
				expect.That(t, row.consul[i] != 'W' || got[i] == 'W', "%s: %s is %c here, with Consul %c", row.name, targets[i], got[i], row.consul[i])
			}
		}
	})
}

// randomChange is an operation on a few services on three nodes, however they are registered. The same numbers give the same one.
func randomChange(random *rand.Rand) registry.Op {
	one := func(texts ...string) string { return texts[random.IntN(len(texts))] }
	node, id, app := one("", "n1", "n2"), one("1", "2"), one("WEB", "DB")
	key := registry.NewKey(app, one("1", "2", "n1:1", "n2:2"))
	act := registry.Act{Author: "ops", Reason: one("", "test")}
	checkID := one("a", "b", catalog.ServiceMaintenance+"1", catalog.NodeMaintenance)
	status := catalog.CheckStatus(random.IntN(3))
	switch random.IntN(14) {
	case 0, 1:
		i := newInstance(app, key.ID)
		i.Status, i.LastDirty = registry.Status(random.IntN(3)), 0
		if random.IntN(2) == 0 {
			i.Port.Number, i.Metadata = 8081, []registry.Pair{{Key: "k", Value: one("", "v")}}
		}
		return registry.Register{Instance: i}
	case 2:
		return registry.Cancel{Key: key}
	case 3:
		return registry.SetOverride{Key: key, Status: registry.Status(1 + random.IntN(4)), By: act}
	case 4:
		return registry.DeleteOverride{Key: key, Fallback: registry.Up}
	case 5:
		return registry.Quarantine{Key: key, For: int64(random.IntN(2)) * 60_000, By: act}
	case 6:
		return registry.UpdateMetadata{Key: key, Pairs: []registry.Pair{{Key: "k", Value: one("v", "w")}}}
	case 7:
		return registry.DeregisterCatalog{Node: node, Service: id}
	case 8:
		return registry.DeregisterCatalog{Node: node, Check: checkID}
	case 9:
		return registry.DeregisterCatalog{Node: node}
	case 10, 11:
		return registry.SetCheck{Node: node, Check: checkID, Status: status, Output: one("", "x")}
	}
	op := registry.RegisterCatalog{KeepNode: random.IntN(2) == 0, ReplaceChecks: random.IntN(2) == 0, Agent: random.IntN(2) == 0}
	if node != "" {
		op.Node = &catalog.Node{Name: node, Address: one("10.1.0.1", "10.1.0.2"), Meta: []registry.Pair{{Key: "zone", Value: one("a", "b")}}}
	} else if random.IntN(3) == 0 {
		op.Node = &catalog.Node{Meta: []registry.Pair{{Key: "zone", Value: one("a", "b")}}}
	}
	if random.IntN(3) > 0 {
		s := &catalog.Service{Name: one("web", "Web", "db"), ID: id, Node: node, Port: int32(random.IntN(2)), WeightPassing: 1, WeightWarning: 1}
		if random.IntN(2) == 0 {
			s.Tags = []string{one("t", "u")}
		}
		in := newInstance(strings.ToUpper(s.Name), id)
		if node != "" {
			in.InstanceID = node + ":" + id
		}
		op.Service, op.Instance = s, in
	}
	for range random.IntN(3) {
		check := &catalog.Check{Node: node, ID: one("a", "b"), Service: one("", id), Status: status}
		if random.IntN(4) == 0 {
			check.Alias = &catalog.Alias{Named: true, Node: one("", "n1", "n2"), Service: one("", "1", "2")}
		}
		op.Checks = append(op.Checks, check)
	}
	return op
}

// Whatever happens, a blocking query is answered when what it reads has changed, with a higher index; and after a restart
// each index is what it was.
func TestBlockingQueriesMissNoChangeOfTheCatalog(t *testing.T) {
	targets := []string{
		"/v1/catalog/nodes", "/v1/catalog/services", "/v1/catalog/services?node-meta=zone:a", "/v1/health/state/any", "/v1/health/state/critical",
		"/v1/health/state/any?node-meta=zone:a", "/v1/catalog/nodes?node-meta=zone:a",
	}
	for _, name := range []string{"web", "db"} {
		targets = append(targets, "/v1/catalog/service/"+name, "/v1/health/service/"+name, "/v1/health/checks/"+name)
	}
	for _, node := range []string{"rollcall", "n1", "n2"} {
		targets = append(targets, "/v1/catalog/node/"+node, "/v1/catalog/node-services/"+node, "/v1/health/node/"+node)
	}
	targets = append(targets, "/v1/health/service/web?passing", "/v1/catalog/service/web?tag=t", "/v1/catalog/service/web?node-meta=zone:a",
		"/v1/catalog/services?filter=NodeMeta.zone==a", "/v1/health/service/web?filter=Checks.Status==critical", "/v1/health/connect/web", "/v1/catalog/service/consul", "/v1/health/service/consul",
		"/v1/health/checks/web?node-meta=zone:a", "/v1/health/node/n1?node-meta=zone:a")
	for seed := range uint64(2) {
		bubble(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 19))
			n := newCatalogIn(t)
			n.Perform(t, registry.Register{Instance: newInstance("FIRST", "1")}) // an index of 1 is also that of an empty catalog
			for i := range 120 {
				ops := []registry.Op{randomChange(random)}
				for random.IntN(3) == 0 {
					ops = append(ops, randomChange(random))
				}
				n.wakes(t, fmt.Sprintf("seed %d, change %d, %+v", seed, i, ops), targets, func() { n.Perform(t, ops...) })
				if random.IntN(40) == 0 {
					n.Pass(13 * time.Hour)
				}
				if random.IntN(40) == 0 {
					n.restart(t, targets)
				}
				need.That(t, !t.Failed(), "it goes on no further")
			}
		})
	}
}

// restart has the node go on from a snapshot, and compares what it serves.
func (n *bubbled) restart(t *testing.T, targets []string) {
	t.Helper()
	before := make([]reply, len(targets))
	for i, target := range targets {
		before[i] = n.send(t, "GET", target, "")
	}
	n.Set(func(m *registrytest.Memory) { m.Registry = need.Got(registry.Thaw(m.Registry.Freeze()))(t) })
	for i, target := range targets {
		now := n.send(t, "GET", target, "")
		expect.That(t, now.index(t) == before[i].index(t) && now.body == before[i].body,
			"%s has index %d after a restart, want %d:\n%s\n%s", target, now.index(t), before[i].index(t), now.body, before[i].body)
	}
}

func TestChangeIsEncodedOnceForAllBlockingQueries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		config, catalog := catalogConfig()
		config.Metrics = prometheus.NewRegistry()
		n := newBubbled(t, config)
		catalog.memory = n.Memory
		const service = "/v1/agent/service/register"
		n.send(t, "PUT", service, `{"Name":"web","ID":"w1","Port":80}`)
		before := n.send(t, "GET", "/v1/health/service/web", "")
		built := func() float64 {
			return gathered(t, config.Metrics, "rollcall_http_shared_documents_built_total", nil)
		}
		start := built()
		const many = 1000
		bodies := make(chan string, many)
		for range many {
			go func() {
				got, _ := n.roundTrip(t, request("GET", "/v1/health/service/web?wait=5m&index="+before.header.Get("X-Consul-Index"), ""))
				bodies <- got.body
			}()
		}
		synctest.Wait()
		n.send(t, "PUT", service, `{"Name":"web","ID":"w2","Port":81}`)
		for range many {
			got := <-bodies
			need.That(t, strings.Contains(got, `"w2"`), "a query returned %q", got)
		}
		expect.Equal(t, built()-start, 1, "encoded for 1,000 queries:")
	})
}
