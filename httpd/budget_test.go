package httpd_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// Twice: what a request took is given back, answered or refused.
func TestBudgetRefusesRequestsBeyondTheMemoryOfTheNode(t *testing.T) {
	n := newNode(t, httpd.Config{Limits: web.Limits{InFlightBytes: 1 << 20}}, nil)
	large := request("POST", "/eureka/apps/ORDERS", strings.Replace(instanceJSON, `"status":"UP"`, `"status":"UP","ignored":"`+strings.Repeat("x", 200<<10)+`"`, 1))
	for range 2 {
		n.send(t, large).says(t, http.StatusServiceUnavailable, "limits.in-flight-bytes", "200 KiB where 128 have room").with(t, "Retry-After", "1")
		n.send(t, register(instanceJSON)).says(t, http.StatusNoContent, "", "a small one after it")
	}
}

// keysOf fills a node with keys of half a MiB each.
func keysOf(t *testing.T, c *coordinated, halves int) {
	t.Helper()
	value := strings.Repeat("v", 512<<10)
	for i := range halves {
		c.put(t, fmt.Sprintf("/v1/kv/large/%03d", i), value)
	}
}

func TestBudgetRefusesReadsOfTooManyKeys(t *testing.T) {
	c := newCoordinated(t, httpd.Config{})
	keysOf(t, c, 129) // 64 MiB and some
	tree := kvOp(`"Verb":"get-tree","Key":"large/"`)
	for _, row := range []struct{ name, method, target, body, text string }{
		{"recurse", "GET", "/v1/kv/?recurse", "", "have more than 67108864 bytes"},
		{"a transaction that reads", "PUT", "/v1/txn", "[" + tree + "]", "have more than 67108864 bytes"},
		{"a transaction that also writes", "PUT", "/v1/txn", "[" + tree + "," + kvOp(`"Verb":"set","Key":"k"`) + "]", "has more than 8388608 bytes"},
	} {
		t.Run(row.name, func(t *testing.T) {
			c.send(row.method, row.target, row.body).says(t, http.StatusRequestEntityTooLarge, row.text, "it")
		})
	}
	expect.Equal(t, c.get("/v1/kv/k").status, http.StatusNotFound, "what the refused transaction set: got")
	expect.Equal(t, c.get("/v1/kv/large/000?raw").status, http.StatusOK, "one key: got")
}

// measured is a response of which the largest piece is known, and how many pieces had the time that others took.
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

// A large response is the text that encoding it whole would give, and only a piece of it is in memory at a time. Each
// piece has a time limit of its own: a client with a slow link gets them all.
func TestBudgetNeedsNothingForListsWrittenInPieces(t *testing.T) {
	c := newCoordinated(t, httpd.Config{})
	keysOf(t, c, 8)
	tree := "[" + kvOp(`"Verb":"get-tree","Key":"large/"`) + "]"
	for _, row := range []struct{ method, target, body string }{
		{"GET", "/v1/kv/?recurse", ""},
		{"PUT", "/v1/txn?a", tree},
	} {
		t.Run(row.target, func(t *testing.T) {
			answered := func(target string) string {
				w := &measured{ResponseRecorder: httptest.NewRecorder()}
				c.handler.ServeHTTP(w, httptest.NewRequest(row.method, target, strings.NewReader(row.body)))
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

// stuck is a response whose reader takes nothing until released.
type stuck struct {
	*httptest.ResponseRecorder
	released chan struct{}
}

// Write implements http.ResponseWriter.
func (s stuck) Write(p []byte) (int, error) {
	<-s.released
	return s.ResponseRecorder.Write(p)
}

// A response that is built as a whole takes memory of the node's budget until it was read. What has no place beside
// others waits a while for it, and is then to be asked for again; what is small never waits.
func TestBudgetLetsLargeResponsesWaitAndRefusesThemInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCoordinated(t, httpd.Config{Limits: web.Limits{InFlightBytes: 1 << 20}})
		for i := range 200 {
			body := strings.Replace(instanceJSON, `"instanceId":"i1"`, fmt.Sprintf(`"instanceId":"orders-%d","vipAddress":"orders"`, i), 1)
			got := c.send("POST", "/eureka/apps/ORDERS", body)
			need.That(t, got.status == http.StatusNoContent, "registration %d: got %d %q", i, got.status, got.body)
		}
		for _, target := range []string{
			"/eureka/apps/ORDERS", "/eureka/vips/orders", "/v1/rollcall/apps", "/v1/catalog/service/orders", "/v1/health/service/orders",
			"/v1/health/state/any", "/v1/agent/services", "/v1/agent/checks", "/v1/catalog/node-services/rollcall",
		} {
			reader := stuck{httptest.NewRecorder(), make(chan struct{})}
			read := make(chan struct{})
			go func() {
				c.handler.ServeHTTP(reader, httptest.NewRequest("GET", "/v1/rollcall/apps", nil))
				close(read)
			}()
			synctest.Wait()
			c.send("GET", "/eureka/apps/ORDERS/orders-7", "").says(t, http.StatusOK, "", "one instance beside a large answer")
			want := http.StatusServiceUnavailable
			if !strings.HasPrefix(target, "/eureka") && !strings.HasPrefix(target, "/v1/rollcall") {
				want = http.StatusInternalServerError // Consul's clients go on after no other
			}
			c.send("GET", target, "").says(t, want, "", "%s beside a large answer", target).with(t, "Retry-After", "1")
			time.AfterFunc(time.Second, func() { close(reader.released) })
			c.send("GET", target, "").says(t, http.StatusOK, "", "%s, when that answer was read after a second", target)
			<-read
			expect.Equal(t, reader.Code, http.StatusOK, "the large answer: got")
		}
	})
}
