package httpd_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// bubble runs a test in virtual time.
func bubble(t *testing.T, test func(t *testing.T)) { synctest.Test(t, test) }

// withNode runs a test in a bubble with a node.
func withNode(t *testing.T, test func(t *testing.T, n *bubbled)) {
	bubble(t, func(t *testing.T) { test(t, newBubbled(t, httpd.Config{})) })
}

// withInstance is withNode where the instance i1 of ORDERS is registered.
func withInstance(t *testing.T, test func(t *testing.T, n *bubbled)) {
	withNode(t, func(t *testing.T, n *bubbled) {
		n.Perform(t, registry.Register{Instance: newInstance("ORDERS", "i1")})
		test(t, n)
	})
}

// inBubble runs a test of that name in a bubble.
func inBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { bubble(t, test) })
}

func keyOf(id string) registry.Key { return registry.NewKey("ORDERS", id) }

// changedLater is an instance as its client changed it after its first registration.
func changedLater(i *registry.Instance) *registry.Instance {
	i.LastDirty += 1000
	return i
}

// watchedLife is what happens to an instance, and what a watcher is told of it.
var watchedLife = []struct {
	op                  registry.Op
	action, why, status string
}{
	{registry.Register{Instance: newInstance("ORDERS", "i1")}, "ADDED", "registered", "UP"},
	{registry.SetOverride{Key: keyOf("i1"), Status: registry.OutOfService}, "MODIFIED", "changed", "OUT_OF_SERVICE"},
	{registry.DeleteOverride{Key: keyOf("i1"), Fallback: registry.Down}, "MODIFIED", "changed", "DOWN"},
	{registry.UpdateMetadata{Key: keyOf("i1"), Pairs: []registry.Pair{{Key: "line", Value: "one\ntwo"}}}, "MODIFIED", "changed", "DOWN"},
	{registry.Register{Instance: changedLater(newInstance("ORDERS", "i1"))}, "ADDED", "registered", "UP"},
	{registry.Quarantine{Key: keyOf("i1"), For: 60_000, By: registry.Act{Author: "ops"}}, "DELETED", "quarantined", "UP"},
	{registry.Quarantine{Key: keyOf("i1"), By: registry.Act{Author: "ops"}}, "ADDED", "changed", "UP"},
	{registry.Cancel{Key: keyOf("i1")}, "DELETED", "canceled", "UP"},
}

func TestWatchSendsEveryChangeAtOnce(t *testing.T) {
	withNode(t, func(t *testing.T, n *bubbled) {
		n.Perform(t, registry.Register{Instance: newInstance("ORDERS", "before")})
		s := n.watch(t, "")
		expect.That(t, s.start.id == "test-1" && s.start.data.Index == "test-1", "it starts with %+v, want test-1", s.start)
		for i, row := range watchedLife {
			time.Sleep(time.Second) // nothing was sent lately
			begun := time.Now()
			n.Perform(t, row.op)
			e, index := s.want("change"), fmt.Sprintf("test-%d", i+2)
			expect.That(t, e.id == index && e.data.Index == index && e.data.Action == row.action && e.data.Why == row.why && e.data.Status == row.status && e.data.App == "ORDERS" && e.data.ID == "i1",
				"%T: got %s %s, want %s %s %s %s", row.op, e.id, e.text, index, row.action, row.why, row.status)
			expect.That(t, e.data.Instance["instanceId"] == "i1" && e.data.Instance["actionType"] == row.action && e.data.Instance["status"] == row.status,
				"%T: the instance is %v", row.op, e.data.Instance)
			expect.That(t, e.at.Equal(begun), "%T: it took %v", row.op, e.at.Sub(begun))
		}
	})
}

func TestWatchTellsAnEvictionFromACancel(t *testing.T) {
	withNode(t, func(t *testing.T, n *bubbled) {
		n.LeadAlways(t)
		s := n.watch(t, "")
		n.Perform(t, registry.Register{Instance: newInstance("ORDERS", "i1")})
		s.want("change")
		for {
			e, ok := s.next()
			if ok && e.name == "" {
				continue // it takes 90 s
			}
			expect.That(t, e.data.Action == "DELETED" && e.data.Why == "evicted", "got %s", e.text)
			return
		}
	})
}

func TestWatchSendsTheRecordOfARemoval(t *testing.T) {
	withNode(t, func(t *testing.T, n *bubbled) {
		n.Perform(t, registry.Register{Instance: newInstance("ORDERS", "i1")}, registry.Cancel{Key: keyOf("i1")})
		time.Sleep(10 * time.Minute)
		n.Lead() // moves the clock: the record is reduced
		want := `{"index":"test-2","action":"DELETED","why":"canceled","app":"ORDERS","id":"i1"}`
		expect.Equal(t, n.watch(t, "?index=test-1").want("change").text, want, "got")
		expect.Equal(t, n.get(t, "/v1/rollcall/watch?index=test-1&wait=1s").body, `{"index":"test-2","changes":[`+want+"]}\n", "the poll got")
	})
}

func TestWatchSendsChangesWithinTheGapTogether(t *testing.T) {
	withNode(t, func(t *testing.T, n *bubbled) {
		s := n.watch(t, "")
		time.Sleep(time.Second)
		begun := time.Now()
		n.Perform(t, registry.Register{Instance: newInstance("ORDERS", "i1")})
		if e := s.want("change"); e.at.Sub(begun) != 0 {
			t.Errorf("the first change took %v", e.at.Sub(begun))
		}
		for _, status := range []registry.Status{registry.Down, registry.Starting, registry.OutOfService} {
			time.Sleep(10 * time.Millisecond)
			n.Perform(t, registry.SetOverride{Key: keyOf("i1"), Status: status}, registry.Register{Instance: newInstance("ORDERS", status.String())})
		}
		var told []string
		for range 4 {
			e := s.want("change")
			told = append(told, e.data.ID+" "+e.data.Status)
			expect.Equal(t, e.at.Sub(begun), 50*time.Millisecond, "%s came after", e.text)
		}
		expect.Equal(t, strings.Join(told, ", "), "DOWN UP, STARTING UP, i1 OUT_OF_SERVICE, OUT_OF_SERVICE UP", "got")
	})
}

// The server's time limits for a whole request would end it after half a minute.
func TestWatchThatIsQuietLivesAndSaysWhereItIs(t *testing.T) {
	withNode(t, func(t *testing.T, n *bubbled) {
		s := n.watch(t, "?app=ORDERS")
		begun := time.Now()
		for i := range 240 {
			n.Perform(t, registry.Register{Instance: newInstance("OTHER", "i1")})
			e, ok := s.next()
			want := fmt.Sprintf("test-%d", i+1)
			need.That(t, ok && e.name == "" && e.id == want && e.comment == "age 0.000", "got %+v, %v, want only the id %s", e, ok, want)
		}
		expect.Equal(t, time.Since(begun).Round(time.Minute), time.Hour, "240 signs of life took")
		n.Perform(t, registry.Register{Instance: newInstance("ORDERS", "i1")})
		s.want("change")
	})
}

func TestWatchIsNotWokenByOtherApplications(t *testing.T) {
	withNode(t, func(t *testing.T, n *bubbled) {
		s := n.watch(t, "?app=ORDERS")
		for range 100 {
			n.Perform(t, registry.Register{Instance: newInstance("OTHER", "i1")})
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		expect.That(t, n.Woken() == 0, "it was woken %d times", n.Woken())
		n.Perform(t, registry.Register{Instance: newInstance("ORDERS", "i1")})
		e := s.want("change")
		expect.That(t, e.id == "test-101" && n.Woken() == 1, "got %s after %d wakes, want test-101 after 1", e.text, n.Woken())
	})
}

func TestWatchFromALostPositionIsReset(t *testing.T) {
	for _, row := range []struct{ name, index, reason string }{
		{"too old", "test-1", "too_old"},
		{"of another history", "other-3", "foreign"},
		{"of another history, ahead", "other-300", "foreign"},
		{"of no history", "-0", "foreign"},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			metrics := prometheus.NewRegistry()
			n := newBubbled(t, httpd.Config{Metrics: metrics})
			n.Perform(t, registry.Register{Instance: newInstance("ORDERS", "i1")}, registry.Cancel{Key: keyOf("i1")})
			n.Pass(30 * time.Hour) // records of removals are pruned
			n.Perform(t, registry.Register{Instance: newInstance("ORDERS", "i2")})
			s := n.watch(t, "?index="+row.index)
			expect.That(t, s.start.id == row.index, "it starts at %s", s.start.id)
			e := s.want("reset")
			expect.That(t, e.id == "test-3" && e.data.Index == "test-3" && strings.Contains(e.data.Reason, "fetch everything"), "got %s %s", e.id, e.text)
			n.Perform(t, registry.Register{Instance: newInstance("ORDERS", "i3")})
			expect.Equal(t, s.want("change").id, "test-4", "it goes on with")
			got := n.get(t, "/v1/rollcall/watch?wait=1m&index="+row.index)
			var doc api.Error
			err := strictly(got.body, &doc)
			expect.That(t, err == nil && got.status == http.StatusGone && doc.Index == "test-4" && strings.Contains(doc.Error, "fetch everything"),
				"the poll got %d %s", got.status, got.body)
			if got := gathered(t, metrics, "rollcall_http_watch_resets_total", map[string]string{"reason": row.reason}); got != 2 {
				t.Errorf("%v resets were counted as %s, want 2", got, row.reason)
			}
		})
	}
}

func TestWatchThatCannotBeginSaysWhy(t *testing.T) {
	withInstance(t, func(t *testing.T, n *bubbled) {
		for _, row := range []struct {
			name, query, header string
			status              int
			says                string
		}{
			{name: "from the future", query: "?index=test-2", status: 400, says: "has not happened yet"},
			{name: "from the future, resumed", header: "Last-Event-ID: test-2", status: 400, says: "has not happened yet"},
			{name: "without an epoch", query: "?index=1", status: 400, says: "epoch-index"},
			{name: "without a number", query: "?index=test-", status: 400, says: "epoch-index"},
			{name: "an empty one", query: "?index=", status: 400, says: "epoch-index"},
			{name: "a negative one", query: "?index=test--1x", status: 400, says: "epoch-index"},
			{name: "a number too many", query: "?index=test-18446744073709551616", status: 400, says: "epoch-index"},
			{name: "spelled otherwise", query: "?index=test-01", status: 400, says: "epoch-index"},
			{name: "a line break", query: "?index=te%0ast-1", status: 400, says: "epoch-index"},
			{name: "a malformed id", header: "Last-Event-ID: x", status: 400, says: "epoch-index"},
			{name: "a negative wait", query: "?wait=-1s", status: 400, says: "0s to 10m"},
			{name: "an endless wait", query: "?wait=11m", status: 400, says: "0s to 10m"},
			{name: "a wait without a unit", query: "?wait=30", status: 400, says: "0s to 10m"},
			{name: "an unknown consistency", query: "?consistency=x", status: 400, says: "linearizable"},
		} {
			headers := []string{"Accept-Encoding: gzip"}
			if row.header != "" {
				headers = append(headers, row.header)
			}
			got := n.get(t, "/v1/rollcall/watch"+row.query, headers...)
			var doc struct{ Error string }
			err := json.Unmarshal([]byte(got.body), &doc)
			expect.That(t, err == nil && got.status == row.status && strings.Contains(doc.Error, row.says),
				"%s: got %d %s, want %d %q", row.name, got.status, got.body, row.status, row.says)
		}
		n.Set(func(m *registrytest.Memory) { m.ViewErr = registry.ErrNoLeader })
		for _, query := range []string{"", "?wait=1s", "?index=test-2", "?index=other-1"} {
			got := n.get(t, "/v1/rollcall/watch"+query)
			expect.That(t, got.status == 503 && got.header.Get("Retry-After") != "", "%q without a quorum: got %d %s", query, got.status, got.body)
		}
		for _, query := range []string{"?consistency=stale", "?index=test-1"} { // needs no other node
			n.watch(t, query)
		}
	})
}

func TestWatchStreamIsNeverCompressedAndHasNoHead(t *testing.T) {
	n := newNode(t, httpd.Config{}, nil)
	conn := n.dial(t)
	need.Got(io.WriteString(conn, request("GET", "/v1/rollcall/watch", "", "Accept-Encoding: gzip")))(t)
	resp := readHead(t, conn)
	for name, want := range map[string]string{"Content-Type": "text/event-stream", "Content-Encoding": "", "Cache-Control": "no-store", "Content-Length": ""} {
		expect.Equal(t, resp.Header.Get(name), want, "%s is", name)
	}
	newEvents(t, resp.Body).want("start")
	n.send(t, request("HEAD", "/v1/rollcall/watch", "")).says(t, 405, "", "HEAD").with(t, "Allow", "GET")
}

func TestWatchersHaveALimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		metrics := prometheus.NewRegistry()
		n := newBubbled(t, httpd.Config{Metrics: metrics, Limits: web.Limits{Watchers: 2}})
		n.watch(t, "")
		go func() { _, _ = n.roundTrip(t, request("GET", "/v1/rollcall/watch?wait=1s", "")) }() // its place counts, not its response
		synctest.Wait()
		if got := gathered(t, metrics, "rollcall_http_watchers", nil); got != 2 {
			t.Errorf("%v watchers are counted, want 2", got)
		}
		for _, query := range []string{"", "?wait=0s"} {
			got := n.get(t, "/v1/rollcall/watch"+query)
			expect.That(t, got.status == 503 && got.header.Get("Retry-After") != "" && strings.Contains(got.body, "limits.watchers"),
				"%q: got %d %s", query, got.status, got.body)
		}
		time.Sleep(time.Second) // the poll ends
		synctest.Wait()
		n.watch(t, "")
		n.get(t, "/v1/rollcall/watch").says(t, 503, "", "it")
	})
}

func TestWatchEndsAtShutdown(t *testing.T) {
	withInstance(t, func(t *testing.T, n *bubbled) {
		s := n.watch(t, "")
		polled := make(chan reply, 1)
		go func() {
			got, _ := n.roundTrip(t, request("GET", "/v1/rollcall/watch?wait=10m&index=test-1", "")) // an error leaves no response
			polled <- got
		}()
		synctest.Wait()
		begun := time.Now()
		down := make(chan error, 1)
		go func() { down <- n.server.Shutdown(t.Context()) }()
		e, ok := s.next()
		expect.That(t, !ok, "the stream has %+v, want its end", e)
		(<-polled).is(t, 200, `{"index":"test-1","changes":[]}`+"\n", "the poll")
		err := <-down
		expect.That(t, err == nil && time.Since(begun) <= time.Second, "shutdown: %v after %v", err, time.Since(begun))
	})
}

func TestWatchThatBeginsAtShutdownIsRefused(t *testing.T) {
	n := newNode(t, httpd.Config{}, nil)
	n.handler.EndWatches()
	n.send(t, request("GET", "/v1/rollcall/watch", "")).says(t, 503, "shutting down", "it")
}

func (n *bubbled) poll(t *testing.T, query string) api.Changes {
	t.Helper()
	got := n.get(t, "/v1/rollcall/watch"+query)
	var p api.Changes
	err := strictly(got.body, &p)
	need.That(t, err == nil && got.status == 200 && p.Changes != nil && got.header.Get("X-Rollcall-Index") == p.Index,
		"%s: %d %s, %v", query, got.status, got.body, err)
	return p
}

func TestLongPollRespondsAtOnceWithEarlierChanges(t *testing.T) {
	withNode(t, func(t *testing.T, n *bubbled) {
		n.Perform(t, registry.Register{Instance: newInstance("A", "1")}, registry.Register{Instance: newInstance("B", "2")})
		for _, wait := range []string{"0s", "10m"} {
			begun := time.Now()
			p := n.poll(t, "?index=test-0&app=a&wait="+wait)
			expect.That(t, p.Index == "test-2" && len(p.Changes) == 1 && p.Changes[0].ID == "1" && p.Changes[0].Index == "test-1", "got %+v", p)
			expect.Equal(t, time.Since(begun), 0, "it took")
		}
	})
}

func TestLongPollRespondsWhenSomethingChanges(t *testing.T) {
	withNode(t, func(t *testing.T, n *bubbled) {
		begun := time.Now()
		time.AfterFunc(9*time.Minute, func() { n.Perform(t, registry.Register{Instance: newInstance("A", "1")}) })
		p := n.poll(t, "?index=test-0&wait=10m")
		took := time.Since(begun)
		expect.That(t, p.Index == "test-1" && len(p.Changes) == 1 && took == 9*time.Minute, "got %+v after %v", p, took)
	})
}

func TestLongPollEndsInTimeAndSaysWhereToGoOn(t *testing.T) {
	withNode(t, func(t *testing.T, n *bubbled) {
		begun := time.Now()
		time.AfterFunc(time.Second, func() { n.Perform(t, registry.Register{Instance: newInstance("OTHER", "1")}) })
		p := n.poll(t, "?index=test-0&app=A&wait=10m")
		took := time.Since(begun)
		expect.That(t, p.Index == "test-1" && len(p.Changes) == 0 && took == 10*time.Minute, "got %+v after %v", p, took)
		if p := n.poll(t, "?wait=0s"); p.Index != "test-1" || len(p.Changes) != 0 {
			t.Errorf("without an index: got %+v, want where it is now", p)
		}
	})
}

func TestWatchReadsManyChangesInParts(t *testing.T) {
	withNode(t, func(t *testing.T, n *bubbled) {
		const many = 5000
		for i := range many {
			n.Perform(t, registry.Register{Instance: newInstance("A", fmt.Sprint(i))})
		}
		at, next := "test-0", 0
		for range 3 {
			p := n.poll(t, "?wait=1m&index="+at)
			for _, c := range p.Changes {
				need.That(t, c.ID == fmt.Sprint(next), "got %+v, want %d", c, next)
				next++
			}
			at = p.Index
		}
		expect.That(t, next == many && at == fmt.Sprintf("test-%d", many), "three polls got %d changes up to %s", next, at)
		s := n.watch(t, "?index=test-0")
		for i := range many {
			e := s.want("change")
			need.That(t, e.data.ID == fmt.Sprint(i) && e.at.Equal(s.start.at), "got %s after %v, want %d at once", e.text, e.at.Sub(s.start.at), i)
		}
	})
}

// certified is the certificate of package httptest, for example.com, and a pool that trusts it.
func certified(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	return server.TLS.Certificates[0], pool
}

// newSecure is a server with its own settings in a bubble, and a client that speaks HTTP/2 with it.
func newSecure(t *testing.T, certificate tls.Certificate, trusted *x509.CertPool) (*registrytest.Memory, *http.Client) {
	t.Helper()
	m := registrytest.New()
	handler := need.Got(httpd.New(httpd.Config{Service: m}))(t)
	server := httpd.NewServer("", handler, nil)
	server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2", "http/1.1"}}
	p := &pipes{dialed: make(chan net.Conn), closed: make(chan struct{})}
	served := make(chan error, 1)
	go func() { served <- handler.Serve(server, p) }()
	transport := &http.Transport{DialContext: p.dial, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: trusted, ServerName: "example.com"}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
		handler.Close()
		<-served
	})
	return m, &http.Client{Transport: transport}
}

// A connection over TLS ends within an hour, in good order: a stream is ended, and what comes later goes over another one.
func TestConnectionOverTLSEndsWithinAnHour(t *testing.T) {
	certificate, trusted := certified(t)
	bubble(t, func(t *testing.T) {
		_, client := newSecure(t, certificate, trusted)
		begun := time.Now()
		resp := need.Got(client.Get("https://example.com/v1/rollcall/watch"))(t)
		defer resp.Body.Close()
		_, err := io.ReadAll(resp.Body)
		took := time.Since(begun)
		expect.That(t, err == nil && took >= 40*time.Minute && took < 50*time.Minute, "the stream ended after %v, with %v, want it to end between 40 and 50 minutes", took, err)
		reused := func() (is bool) {
			trace := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { is = i.Reused }})
			resp := need.Got(client.Do(need.Got(http.NewRequestWithContext(trace, "GET", "https://example.com/healthz", nil))(t)))(t)
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			time.Sleep(time.Second) // until the client knows that the connection takes no more
			return is
		}
		first, second := reused(), reused()
		expect.That(t, first && !second, "the connection did not end with the first response after the stream: reused %v, then %v", first, second)
	})
}

// In HTTP/2 a time limit for writes ends a stream on which nothing is written, too.
func TestWatchThatIsQuietLivesOverHTTP2(t *testing.T) {
	certificate, trusted := certified(t)
	bubble(t, func(t *testing.T) {
		m, client := newSecure(t, certificate, trusted)
		resp := need.Got(client.Get("https://example.com/v1/rollcall/watch"))(t)
		defer resp.Body.Close()
		need.That(t, resp.ProtoMajor == 2, "it speaks %s", resp.Proto)
		s := newEvents(t, resp.Body)
		s.want("start")
		time.AfterFunc(5*time.Minute, func() {
			_, _ = m.Apply(context.Background(), registry.FromClient, registry.Register{Instance: newInstance("A", "1")})
		})
		polled := need.Got(client.Get("https://example.com/v1/rollcall/watch?wait=10m&index=test-0"))(t)
		defer polled.Body.Close()
		body, err := io.ReadAll(polled.Body)
		expect.That(t, err == nil && strings.HasPrefix(string(body), `{"index":"test-1","changes":[{"index":"test-1","action":"ADDED"`),
			"the poll got %s, %v", body, err)
		for {
			e, ok := s.next()
			need.That(t, ok, "the stream ended")
			if e.name == "change" {
				return
			}
		}
	})
}

// event is a server-sent event as a browser understands it. One without a name and data is an id alone.
type event struct {
	name, id, comment string
	data              struct {
		Index, Action, Why, App, ID, Status, Reason string
		Instance                                    map[string]any
	}
	text string // of data
	at   time.Time
}

// events reads a stream of events.
type events struct {
	t     testing.TB
	in    *bufio.Reader
	start event
}

// documents are what the data of an event is, by its name. Servers write them by hand.
var documents = map[string]any{"start": &api.Start{}, "change": &api.Change{}, "reset": &api.Reset{}}

// strictly reads a document that has no member which package api does not declare.
func strictly(text string, into any) error {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	return dec.Decode(into)
}

func newEvents(t testing.TB, body io.Reader) *events { return &events{t: t, in: bufio.NewReader(body)} }

// next reads an event; ok is false at the end of the stream.
func (s *events) next() (e event, ok bool) {
	s.t.Helper()
	for {
		line, err := s.in.ReadString('\n')
		if err == io.EOF && line == "" && e.name+e.id == "" {
			return e, false
		}
		need.OKf(s.t, err, "the stream broke off after %+v", e)
		line = strings.TrimSuffix(line, "\n")
		field, value, _ := strings.Cut(line, ": ")
		switch field {
		case "":
			if line == "" {
				e.at = time.Now()
				return e, true
			}
			e.comment = value
		case "event":
			e.name = value
		case "id":
			e.id = value
		case "data":
			e.text = value
			if err := errors.Join(json.Unmarshal([]byte(value), &e.data), strictly(value, documents[e.name])); err != nil {
				s.t.Fatalf("%v in %q", err, value)
			}
		default:
			s.t.Fatalf("a line of an unknown kind: %q", line)
		}
	}
}

// want reads an event, which must have a name.
func (s *events) want(name string) event {
	s.t.Helper()
	e, ok := s.next()
	need.That(s.t, ok && e.name == name, "got %+v, %v, want an event %q", e, ok, name)
	return e
}

func TestWatchSendsASlowReaderAResetAsItsLastEvent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		metrics := prometheus.NewRegistry()
		n := newBubbled(t, httpd.Config{Metrics: metrics})
		s := n.watch(t, "")
		n.Perform(t, registry.Register{Instance: newInstance("A", "1")})
		time.Sleep(4 * time.Second) // not too slow yet
		s.want("change")
		n.Perform(t, registry.Register{Instance: newInstance("A", "2")})
		time.Sleep(6 * time.Second)
		n.Perform(t, registry.Register{Instance: newInstance("A", "3")})
		e := s.want("change")
		expect.That(t, e.id == "test-2", "got %s, want what it was slow to read", e.text)
		e = s.want("reset")
		expect.That(t, e.id == "test-3" && strings.Contains(e.data.Reason, "too slowly"), "got %s %s", e.id, e.text)
		if e, ok := s.next(); ok {
			t.Errorf("got %+v after the reset, want the end", e)
		}
		expect.Equal(t, gathered(t, metrics, "rollcall_http_watch_resets_total", map[string]string{"reason": "slow"}), 1, "slow watchers are counted:")
		expect.Equal(t, gathered(t, metrics, "rollcall_http_watch_events_total", nil), 2, "events are counted:")
	})
}

func TestWatchWithoutAReaderIsCutOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		metrics := prometheus.NewRegistry()
		n := newBubbled(t, httpd.Config{Metrics: metrics})
		resp := need.Got(n.openRequest(t, request("GET", "/v1/rollcall/watch", "")))(t)
		newEvents(t, resp.Body).want("start")
		n.Perform(t, registry.Register{Instance: newInstance("A", "1")})
		time.Sleep(31 * time.Second)
		rest, err := io.ReadAll(resp.Body)
		expect.That(t, err != nil, "the stream ended in order, after %q", rest)
		expect.Equal(t, gathered(t, metrics, "rollcall_http_watch_resets_total", map[string]string{"reason": "cut"}), 1, "cut watchers are counted:")
		expect.Equal(t, gathered(t, metrics, "rollcall_http_watchers", nil), 0, "watchers are left:")
	})
}

func TestWatchSendsALargeChangeWhole(t *testing.T) {
	withNode(t, func(t *testing.T, n *bubbled) {
		s := n.watch(t, "")
		for _, size := range []int{31 << 10, 32 << 10, 64 << 10, 65 << 10, 250 << 10} {
			n.Perform(t, registry.Register{Instance: largeInstance("A", fmt.Sprint(size), size)})
			expect.Equal(t, len(s.want("change").data.Instance["metadata"].(map[string]any)["large"].(string)), size, "bytes of %d arrived:", size)
		}
	})
}

func largeInstance(app, id string, size int) *registry.Instance {
	i := newInstance(app, id)
	i.Metadata = []registry.Pair{{Key: "large", Value: strings.Repeat("x", size)}}
	return i
}

// slowService holds writes back while hold is set, until release is closed.
type slowService struct {
	*registrytest.Memory
	hold           atomic.Bool
	begun, release chan struct{}
}

// Apply implements registry.Service.
func (s *slowService) Apply(ctx context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	if s.hold.Load() {
		close(s.begun)
		<-s.release
	}
	return s.Memory.Apply(ctx, origin, ops...)
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(liveness); !holds(); {
		need.That(t, !time.Now().After(end), "waited %v until %s", liveness, what)
		time.Sleep(time.Millisecond)
	}
}
