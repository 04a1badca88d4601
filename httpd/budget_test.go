package httpd_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/httpdtest"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// Twice: a request's memory is given back, whether it was answered or refused.
func TestBudgetRefusesRequestsBeyondTheMemoryOfTheNode(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{Limits: web.Limits{InFlightBytes: 1 << 20}}, nil)
	large := httpdtest.Request("POST", "/eureka/apps/ORDERS", strings.Replace(httpdtest.InstanceJSON, `"status":"UP"`, `"status":"UP","ignored":"`+strings.Repeat("x", 200<<10)+`"`, 1))
	for range 2 {
		n.Send(t, large).Says(t, http.StatusServiceUnavailable, "limits.in-flight-bytes", "200 KiB where 128 have room").With(t, "Retry-After", "1")
		n.Send(t, httpdtest.Register(httpdtest.InstanceJSON)).Says(t, http.StatusNoContent, "", "a small one after it")
	}
}

// keysOf fills a node with keys of half a MiB each.
func keysOf(t *testing.T, c *httpdtest.Coordinated, halves int) {
	t.Helper()
	value := strings.Repeat("v", 512<<10)
	for i := range halves {
		c.Put(t, fmt.Sprintf("/v1/kv/large/%03d", i), value)
	}
}

func TestBudgetRefusesReadsOfTooManyKeys(t *testing.T) {
	c := httpdtest.NewCoordinated(t, httpd.Config{})
	keysOf(t, c, 129) // a little over 64 MiB
	tree := httpdtest.KvOp(`"Verb":"get-tree","Key":"large/"`)
	for _, row := range []struct{ name, method, target, body, text string }{
		{"recurse", "GET", "/v1/kv/?recurse", "", "have more than 67108864 bytes"},
		{"a transaction that reads", "PUT", "/v1/txn", "[" + tree + "]", "have more than 67108864 bytes"},
		{"a transaction that also writes", "PUT", "/v1/txn", "[" + tree + "," + httpdtest.KvOp(`"Verb":"set","Key":"k"`) + "]", "has more than 8388608 bytes"},
	} {
		t.Run(row.name, func(t *testing.T) {
			c.Send(row.method, row.target, row.body).Says(t, http.StatusRequestEntityTooLarge, row.text, "it")
		})
	}
	expect.Equal(t, c.Get("/v1/kv/k").Status, http.StatusNotFound, "what the refused transaction set: got")
	expect.Equal(t, c.Get("/v1/kv/large/000?raw").Status, http.StatusOK, "one key: got")
}

// measured is a response writer that records the largest piece, and how many pieces got a time limit of their own.
type measured struct {
	*httptest.ResponseRecorder
	largest, hurried int
	ownTime          bool
}

// Write implements http.ResponseWriter.
func (m *measured) Write(p []byte) (int, error) {
	m.largest = max(m.largest, len(p))
	if !m.ownTime {
		m.hurried++
	}
	m.ownTime = false
	return m.ResponseRecorder.Write(p)
}

// SetWriteDeadline is what http.ResponseController calls.
func (m *measured) SetWriteDeadline(time.Time) error {
	m.ownTime = true
	return nil
}

// A large response written in pieces equals the text encoded whole, and only one piece at a time is in memory. Each
// piece has its own time limit: a client with a slow link gets them all.
func TestBudgetNeedsNothingForListsWrittenInPieces(t *testing.T) {
	c := httpdtest.NewCoordinated(t, httpd.Config{})
	keysOf(t, c, 8)
	tree := "[" + httpdtest.KvOp(`"Verb":"get-tree","Key":"large/"`) + "]"
	for _, row := range []struct{ method, target, body string }{
		{"GET", "/v1/kv/?recurse", ""},
		{"PUT", "/v1/txn?a", tree},
	} {
		t.Run(row.target, func(t *testing.T) {
			answered := func(target string) string {
				w := &measured{ResponseRecorder: httptest.NewRecorder()}
				c.Handler.ServeHTTP(w, httptest.NewRequest(row.method, target, strings.NewReader(row.body)))
				need.That(t, w.Code == http.StatusOK && w.Body.Len() >= 5<<20 && w.largest <= 1<<20 && w.hurried <= 0, "%s: got %d and %d bytes, the largest piece %d, %d pieces without a time limit of their own", target, w.Code, w.Body.Len(), w.largest, w.hurried)
				return w.Body.String()
			}
			plain, pretty := answered(row.target), answered(row.target+"&pretty")
			var want bytes.Buffer
			need.OK(t, json.Indent(&want, []byte(plain), "", "    "))
			want.WriteByte('\n')
			expect.Equal(t, pretty, want.String(), "indented it begins")
			expect.That(t, strings.Count(plain, `"Key":"large/`) == 8, "it has not the 8 keys: %.300q", plain)
		})
	}
}

// stuck is a response whose reader reads nothing until released.
type stuck struct {
	*httptest.ResponseRecorder
	released chan struct{}
}

// Write implements http.ResponseWriter.
func (s stuck) Write(p []byte) (int, error) {
	<-s.released
	return s.ResponseRecorder.Write(p)
}

// A response built as a whole holds memory of the node's budget until it was read. One that does not fit beside others
// waits a while and is then refused with the request to retry; a small one never waits.
func TestBudgetLetsLargeResponsesWaitAndRefusesThemInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := httpdtest.NewCoordinated(t, httpd.Config{Limits: web.Limits{InFlightBytes: 1 << 20}})
		for i := range 200 {
			body := strings.Replace(httpdtest.InstanceJSON, `"instanceId":"i1"`, fmt.Sprintf(`"instanceId":"orders-%d","vipAddress":"orders"`, i), 1)
			got := c.Send("POST", "/eureka/apps/ORDERS", body)
			need.That(t, got.Status == http.StatusNoContent, "registration %d: got %d %q", i, got.Status, got.Body)
		}
		for _, target := range []string{
			"/eureka/apps/ORDERS", "/eureka/vips/orders", "/v1/rollcall/apps", "/v1/catalog/service/orders", "/v1/health/service/orders",
			"/v1/health/state/any", "/v1/agent/services", "/v1/agent/checks", "/v1/catalog/node-services/rollcall",
		} {
			reader := stuck{httptest.NewRecorder(), make(chan struct{})}
			read := make(chan struct{})
			go func() {
				c.Handler.ServeHTTP(reader, httptest.NewRequest("GET", "/v1/rollcall/apps", nil))
				close(read)
			}()
			synctest.Wait()
			c.Send("GET", "/eureka/apps/ORDERS/orders-7", "").Says(t, http.StatusOK, "", "one instance beside a large answer")
			want := http.StatusServiceUnavailable
			if !strings.HasPrefix(target, "/eureka") && !strings.HasPrefix(target, "/v1/rollcall") {
				want = http.StatusInternalServerError // Consul's clients retry after no other status
			}
			c.Send("GET", target, "").Says(t, want, "", "%s beside a large answer", target).With(t, "Retry-After", "1")
			time.AfterFunc(time.Second, func() { close(reader.released) })
			c.Send("GET", target, "").Says(t, http.StatusOK, "", "%s, when that answer was read after a second", target)
			<-read
			expect.Equal(t, reader.Code, http.StatusOK, "the large answer: got")
		}
	})
}

const bareInstance = `{"instanceId":"i1","hostName":"h","app":"ORDERS","ipAddr":"10.0.0.1","lastDirtyTimestamp":"1000",` +
	`"dataCenterInfo":{"@class":"com.netflix.appinfo.MyDataCenterInfo","name":"MyOwn"}}`

const registerBatch = `{"replicationList":[{"appName":"ORDERS","id":"i1","lastDirtyTimestamp":1000,"status":"UP","action":"Register","instanceInfo":` + bareInstance + `}]}`

// Whatever a Eureka server sends belongs to it, in both formats; anything that only looks like a server's is a
// client's.
func TestEurekaServerOwnsTheInstancesThatItSends(t *testing.T) {
	const mark, batch, single = "x-netflix-discovery-replication: true", "/eureka/peerreplication/batch/", "/eureka/apps/ORDERS"
	for _, row := range []struct {
		name, request string
		want          registry.Origin
	}{
		{"a batch", httpdtest.Request("POST", batch, registerBatch, "DiscoveryIdentity-Id: 10.1.1.1"), registry.Origin{Kind: registry.RemoteDC, DC: "10.1.1.1 at 127.0.0.1"}},
		{"a batch without an identity", httpdtest.Request("POST", batch, registerBatch), registry.Origin{Kind: registry.RemoteDC, DC: " at 127.0.0.1"}},
		{"a single call", httpdtest.Request("POST", single, `{"instance":`+bareInstance+`}`, mark), registry.Origin{Kind: registry.RemoteDC, DC: " at 127.0.0.1"}},
		{"a client's call", httpdtest.Request("POST", single, `{"instance":`+bareInstance+`}`), registry.FromClient},
		{"a client's call that says it is no replication", httpdtest.Request("POST", single, `{"instance":`+bareInstance+`}`, "x-netflix-discovery-replication: TRUE"), registry.FromClient},
	} {
		t.Run(row.name, func(t *testing.T) {
			n := httpdtest.NewNode(t, httpd.Config{EurekaSender: func(identity, address string) string {
				host, _, err := net.SplitHostPort(address)
				expect.That(t, err == nil, "address %q is no host:port", address)
				return identity + " at " + host
			}}, nil)
			got := n.Send(t, row.request)
			need.That(t, got.Status/100 == 2, "answered %d %s", got.Status, got.Body)
			l, ok := n.Newest().Lease(registry.NewKey("ORDERS", "i1"))
			expect.That(t, ok && l.Origin == row.want, "registered %v with origin %+v, want %+v", ok, l.Origin, row.want)
		})
	}
}

func TestEurekaServerWithoutANameIsCalledEureka(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	n.Send(t, httpdtest.Request("POST", "/eureka/peerreplication/batch/", registerBatch))
	l, ok := n.Newest().Lease(registry.NewKey("ORDERS", "i1"))
	expect.That(t, ok && l.Origin == registry.FromEureka, "registered %v with origin %+v, want %+v", ok, l.Origin, registry.FromEureka)
}

// That a server is alive is recorded together with its operations, in the same unit of work, and not with each one.
func TestEurekaServersOperationsShowThatItsLinkIsAlive(t *testing.T) {
	const beat = `{"replicationList":[{"appName":"ORDERS","id":"i1","lastDirtyTimestamp":1000,"action":"Heartbeat"},{"appName":"A","id":"1","action":"Cancel"}]}`
	synctest.Test(t, func(t *testing.T) {
		n := httpdtest.NewBubbled(t, httpd.Config{Peers: &httpdtest.FakePeers{}, EurekaSender: func(string, string) string { return "old" }})
		send := func(method, target, body string, headers ...string) {
			t.Helper()
			got := n.Send(t, method, target, body, headers...)
			need.That(t, got.Status/100 == 2, "%s %s was answered %d", method, target, got.Status)
		}
		wants := func(when string, heard, applies int) {
			t.Helper()
			link, known := n.Newest().Link("old")
			expect.That(t, known && link.LastContact == int64(heard)+1 && link.Cut == time.Minute.Milliseconds() && n.Count() == applies, "%s: link %+v (known: %v) after %d calls of the service; want heard at %d, cut after a minute, %d calls", when, link, known, n.Count(), heard+1, applies)
		}
		send("POST", "/eureka/peerreplication/batch/", registerBatch)
		wants("first batch", 0, 1)
		time.Sleep(time.Second)
		if got := n.Send(t, "POST", "/eureka/peerreplication/batch/", beat); got.Body != `{"responseList":[{"statusCode":200},{"statusCode":404}]}` {
			t.Errorf("results %s: one per item are wanted, also beside a contact", got.Body)
		}
		wants("a second later", 0, 2)
		time.Sleep(time.Millisecond)
		if got := n.Send(t, "POST", "/eureka/peerreplication/batch/", beat); got.Body != `{"responseList":[{"statusCode":200},{"statusCode":404}]}` {
			t.Errorf("results %s: one per item are wanted, also beside a contact", got.Body)
		}
		wants("more than a second later", 1001, 3)
		time.Sleep(2 * time.Second)
		send("PUT", "/eureka/apps/ORDERS/i1?lastDirtyTimestamp=1000", "")
		wants("a client's heartbeat", 1001, 4)
		send("PUT", "/eureka/apps/ORDERS/i1?lastDirtyTimestamp=1000", "", "x-netflix-discovery-replication: true")
		wants("a single call", 3001, 5)
	})
}

func TestEurekaServersLinkIsNotRecordedWithoutPeers(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	n.Send(t, httpdtest.Request("POST", "/eureka/peerreplication/batch/", registerBatch))
	link, known := n.Newest().Link("eureka")
	expect.That(t, !known, "link %+v was noted", link)
}

// An operation can be too large for the log, and would take the whole batch down with it.
func TestBatchItemThatIsTooLargeSpoilsNoOther(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	large := strings.Replace(bareInstance, `"hostName":"h"`, `"hostName":"`+strings.Repeat("h", 600<<10)+`"`, 1)
	item := func(instance string) string {
		return `{"appName":"ORDERS","id":"i1","action":"Register","instanceInfo":` + instance + `}`
	}
	got := n.Send(t, httpdtest.Request("POST", "/eureka/peerreplication/batch/", `{"replicationList":[`+item(large)+","+item(bareInstance)+`]}`))
	expect.That(t, got.Body == `{"responseList":[{"statusCode":413},{"statusCode":200}]}`,
		"answered %d %s, want 413 and 200 for the items", got.Status, got.Body)
}

// heldPeers accepts messages of more than a MiB and does not finish them until told to.
type heldPeers struct {
	httpdtest.FakePeers
	inWork  atomic.Int32
	release chan struct{}
}

// Receive implements own.Peers.
func (p *heldPeers) Receive(_ context.Context, message []byte) ([]byte, error) {
	if len(message) > 1<<20 {
		p.inWork.Add(1)
		<-p.release
		p.inWork.Add(-1)
	}
	return []byte("{}"), nil
}

// sent returns a handler's response to a request from an address.
func sent(h http.Handler, from, method, path string, body io.Reader) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, body)
	r.RemoteAddr = from
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestBatchSenderOfLargeBatchesWaitsOnlyForItself(t *testing.T) {
	const large = 4 << 20
	const messages, eurekas = "/v1/rollcall/replication", "/eureka/peerreplication/batch"
	for _, row := range []struct{ name, attacker, neighbour, other string }{
		{"IPv4", "10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1"},
		{"IPv6", "[2001:db8::1]:1", "[2001:db8::ffff:2]:1", "[2001:db8:0:1::1]:1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &heldPeers{release: make(chan struct{})}
				h := need.Got(httpd.New(httpd.Config{Service: fsmtest.New(), Peers: p}))(t)
				defer h.Close()
				body := strings.Repeat(" ", large)
				codes := make(chan int, 6)
				for range cap(codes) {
					go func() { codes <- sent(h, row.attacker, "POST", messages, strings.NewReader(body)).Code }()
				}
				synctest.Wait()
				expect.Equal(t, p.inWork.Load(), 1, "large messages of one sender are in work at a time:")
				for name, refused := range map[string]*httptest.ResponseRecorder{
					"another message":           sent(h, row.neighbour, "POST", messages, strings.NewReader(body)),
					"one of unknown length":     sent(h, row.neighbour, "POST", messages, io.MultiReader(strings.NewReader("{}"))),
					"a batch of Eureka's peers": sent(h, row.neighbour, "POST", eurekas, strings.NewReader(`{"replicationList":[]}`)),
				} {
					expect.That(t, refused.Code == http.StatusServiceUnavailable && refused.Header().Get("Retry-After") == "1" && strings.Contains(refused.Body.String(), "this address"), "%s from its network: got %d %v %q, want 503 with Retry-After and why", name, refused.Code, refused.Header(), refused.Body)
				}
				for _, path := range []string{messages, eurekas} {
					got := sent(h, row.other, "POST", path, strings.NewReader(`{"replicationList":[]}`))
					expect.That(t, got.Code == http.StatusOK, "%s of another sender: got %d %q, want 200", path, got.Code, got.Body)
				}
				expect.Equal(t, sent(h, row.attacker, "GET", "/eureka/apps", nil).Code, http.StatusOK, "a list for the same address: got")
				close(p.release)
				var took int
				for range cap(codes) {
					if <-codes == http.StatusOK {
						took++
					}
				}
				expect.That(t, took == 1, "%d of the large ones were taken, want the one that was in work", took)
				got := sent(h, row.neighbour, "POST", messages, strings.NewReader(body))
				expect.That(t, got.Code == http.StatusOK, "a large one after them: got %d %q, want 200", got.Code, got.Body)
			})
		})
	}
}

// One sender has many ordinary messages in flight: Rollcall sends up to twenty.
func TestBatchesOfOneSenderAreInWorkTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &heldPeers{release: make(chan struct{})}
		// A share of 40 MiB, because a held message has more than one.
		h := need.Got(httpd.New(httpd.Config{Service: fsmtest.New(), Peers: p, Limits: web.Limits{BatchBytes: 80 << 20, InFlightBytes: 2 << 30}}))(t)
		defer h.Close()
		body := strings.Repeat(" ", 3<<19)
		codes := make(chan int, 20)
		for range cap(codes) {
			go func() {
				codes <- sent(h, "10.0.0.1:1", "POST", "/v1/rollcall/replication", strings.NewReader(body)).Code
			}()
		}
		synctest.Wait()
		expect.Equal(t, int(p.inWork.Load()), cap(codes), "of %d messages are in work:", cap(codes))
		close(p.release)
		for range cap(codes) {
			expect.Equal(t, <-codes, http.StatusOK, "got")
		}
	})
}

func TestBatchesLeaveHalfOfTheMemoryForRequestsToClients(t *testing.T) {
	h := need.Got(httpd.New(httpd.Config{Service: fsmtest.New(), Peers: &httpdtest.FakePeers{}, Limits: web.Limits{InFlightBytes: 1 << 20}}))(t)
	defer h.Close()
	body := strings.Repeat(" ", 100<<10) // of 128 MiB for all requests, and 64 for batches
	got := sent(h, "10.0.0.1:1", "POST", "/v1/rollcall/replication", strings.NewReader(body))
	expect.That(t, got.Code == http.StatusServiceUnavailable && strings.Contains(got.Body.String(), "limits.in-flight-bytes"),
		"a message: got %d %q, want 503", got.Code, got.Body)
	got = sent(h, "10.0.0.1:1", "POST", "/eureka/apps/ORDERS", strings.NewReader(body))
	expect.That(t, got.Code == http.StatusBadRequest, "a registration of the same size: got %d %q, want 400 for what it says", got.Code, got.Body)
}

// longResponses responds with more than a connection buffers without a reader.
type longResponses struct{ httpdtest.FakePeers }

// Receive implements own.Peers.
func (*longResponses) Receive(context.Context, []byte) ([]byte, error) {
	return []byte(strings.Repeat(" ", 64<<20)), nil
}

func TestBatchResponseThatIsNeverReadGivesItsShareBack(t *testing.T) {
	httpdtest.Bubble(t, func(t *testing.T) {
		n := httpdtest.NewBubbled(t, httpd.Config{Peers: &longResponses{}})
		message := httpdtest.Request("POST", "/v1/rollcall/replication", strings.Repeat(" ", 4<<20))
		status := func() int { // of a response whose head alone is read
			conn := n.Open(t)
			go func() { _, _ = io.WriteString(conn, message) }()
			return need.Got(http.ReadResponse(bufio.NewReader(conn), nil))(t).StatusCode
		}
		expect.Equal(t, status(), http.StatusOK, "the first: got")
		expect.Equal(t, status(), http.StatusServiceUnavailable, "while the sender's place is taken: got")
		time.Sleep(31 * time.Second)
		expect.Equal(t, status(), http.StatusOK, "when the time for the response is over: got")
	})
}
