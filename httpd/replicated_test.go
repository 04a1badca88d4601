package httpd_test

import (
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

const bareInstance = `{"instanceId":"i1","hostName":"h","app":"ORDERS","ipAddr":"10.0.0.1","lastDirtyTimestamp":"1000",` +
	`"dataCenterInfo":{"@class":"com.netflix.appinfo.MyDataCenterInfo","name":"MyOwn"}}`

const registerBatch = `{"replicationList":[{"appName":"ORDERS","id":"i1","lastDirtyTimestamp":1000,"status":"UP","action":"Register","instanceInfo":` + bareInstance + `}]}`

// Whatever a Eureka server sends belongs to it, in both forms; what only looks so is a client's.
func TestWhatAEurekaServerSendsBelongsToIt(t *testing.T) {
	const mark, batch, single = "x-netflix-discovery-replication: true", "/eureka/peerreplication/batch/", "/eureka/apps/ORDERS"
	for _, row := range []struct {
		name, request string
		want          registry.Origin
	}{
		{"a batch", request("POST", batch, registerBatch, "DiscoveryIdentity-Id: 10.1.1.1"), registry.Origin{Kind: registry.RemoteDC, DC: "10.1.1.1 at 127.0.0.1"}},
		{"a batch without an identity", request("POST", batch, registerBatch), registry.Origin{Kind: registry.RemoteDC, DC: " at 127.0.0.1"}},
		{"a single call", request("POST", single, `{"instance":`+bareInstance+`}`, mark), registry.Origin{Kind: registry.RemoteDC, DC: " at 127.0.0.1"}},
		{"a client's call", request("POST", single, `{"instance":`+bareInstance+`}`), registry.FromClient},
		{"a client's call that says it is no replication", request("POST", single, `{"instance":`+bareInstance+`}`, "x-netflix-discovery-replication: TRUE"), registry.FromClient},
	} {
		t.Run(row.name, func(t *testing.T) {
			n := newNode(t, httpd.Config{EurekaSender: func(identity, address string) string {
				host, _, err := net.SplitHostPort(address)
				expect.That(t, err == nil, "address %q is no host:port", address)
				return identity + " at " + host
			}}, nil)
			got := n.send(t, row.request)
			need.That(t, got.status/100 == 2, "answered %d %s", got.status, got.body)
			l, ok := n.Newest().Lease(registry.NewKey("ORDERS", "i1"))
			expect.That(t, ok && l.Origin == row.want, "registered %v with origin %+v, want %+v", ok, l.Origin, row.want)
		})
	}
}

func TestAnUnnamedEurekaServerIsCalledEureka(t *testing.T) {
	n := newNode(t, httpd.Config{}, nil)
	n.send(t, request("POST", "/eureka/peerreplication/batch/", registerBatch))
	l, ok := n.Newest().Lease(registry.NewKey("ORDERS", "i1"))
	expect.That(t, ok && l.Origin == registry.FromEureka, "registered %v with origin %+v, want %+v", ok, l.Origin, registry.FromEureka)
}

// That a server is alive is noted with what it sends, in the same unit of work, and not with each.
func TestWhatAEurekaServerSendsShowsThatItsLinkIsAlive(t *testing.T) {
	const beat = `{"replicationList":[{"appName":"ORDERS","id":"i1","lastDirtyTimestamp":1000,"action":"Heartbeat"},{"appName":"A","id":"1","action":"Cancel"}]}`
	synctest.Test(t, func(t *testing.T) {
		n := newBubbled(t, httpd.Config{Peers: &peers{}, EurekaSender: func(string, string) string { return "old" }})
		send := func(method, target, body string, headers ...string) {
			t.Helper()
			got := n.send(t, method, target, body, headers...)
			need.That(t, got.status/100 == 2, "%s %s was answered %d", method, target, got.status)
		}
		wants := func(when string, heard, applies int) {
			t.Helper()
			link, known := n.Newest().Link("old")
			if !known || link.Heard != int64(heard)+1 || link.Cut != time.Minute.Milliseconds() || n.Count() != applies {
				t.Errorf("%s: link %+v (known: %v) after %d calls of the service; want heard at %d, cut after a minute, %d calls",
					when, link, known, n.Count(), heard+1, applies)
			}
		}
		send("POST", "/eureka/peerreplication/batch/", registerBatch)
		wants("first batch", 0, 1)
		time.Sleep(time.Second)
		if got := n.send(t, "POST", "/eureka/peerreplication/batch/", beat); got.body != `{"responseList":[{"statusCode":200},{"statusCode":404}]}` {
			t.Errorf("answers %s: one per item are wanted, also beside a contact", got.body)
		}
		wants("a second later", 0, 2)
		time.Sleep(time.Millisecond)
		if got := n.send(t, "POST", "/eureka/peerreplication/batch/", beat); got.body != `{"responseList":[{"statusCode":200},{"statusCode":404}]}` {
			t.Errorf("answers %s: one per item are wanted, also beside a contact", got.body)
		}
		wants("more than a second later", 1001, 3)
		time.Sleep(2 * time.Second)
		send("PUT", "/eureka/apps/ORDERS/i1?lastDirtyTimestamp=1000", "")
		wants("a client's heartbeat", 1001, 4)
		send("PUT", "/eureka/apps/ORDERS/i1?lastDirtyTimestamp=1000", "", "x-netflix-discovery-replication: true")
		wants("a single call", 3001, 5)
	})
}

func TestWithoutPeersNobodyAsksForLinks(t *testing.T) {
	n := newNode(t, httpd.Config{}, nil)
	n.send(t, request("POST", "/eureka/peerreplication/batch/", registerBatch))
	link, known := n.Newest().Link("eureka")
	expect.That(t, !known, "link %+v was noted", link)
}

// An operation can be too large for the log, and the whole batch would be refused with it.
func TestAnItemThatIsTooLargeSpoilsNoOther(t *testing.T) {
	n := newNode(t, httpd.Config{}, nil)
	large := strings.Replace(bareInstance, `"hostName":"h"`, `"hostName":"`+strings.Repeat("h", 600<<10)+`"`, 1)
	item := func(instance string) string {
		return `{"appName":"ORDERS","id":"i1","action":"Register","instanceInfo":` + instance + `}`
	}
	got := n.send(t, request("POST", "/eureka/peerreplication/batch/", `{"replicationList":[`+item(large)+","+item(bareInstance)+`]}`))
	expect.That(t, got.body == `{"responseList":[{"statusCode":413},{"statusCode":200}]}`,
		"answered %d %s, want 413 and 200 for the items", got.status, got.body)
}
