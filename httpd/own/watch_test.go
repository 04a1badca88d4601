package own_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/httpdtest"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// changedLater returns an instance as its client changed it after its first registration.
func changedLater(i *registry.Instance) *registry.Instance {
	i.LastDirty += 1000
	return i
}

// watchedLife lists what happens to an instance, and what a watcher is told about it.
var watchedLife = []struct {
	op                  registry.Op
	action, why, status string
}{
	{registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")}, "ADDED", "registered", "UP"},
	{registry.SetOverride{Key: httpdtest.KeyOf("i1"), Status: registry.OutOfService}, "MODIFIED", "changed", "OUT_OF_SERVICE"},
	{registry.DeleteOverride{Key: httpdtest.KeyOf("i1"), Fallback: registry.Down}, "MODIFIED", "changed", "DOWN"},
	{registry.UpdateMetadata{Key: httpdtest.KeyOf("i1"), Pairs: []registry.Pair{{Key: "line", Value: "one\ntwo"}}}, "MODIFIED", "changed", "DOWN"},
	{registry.Register{Instance: changedLater(httpdtest.NewInstance("ORDERS", "i1"))}, "ADDED", "registered", "UP"},
	{registry.Quarantine{Key: httpdtest.KeyOf("i1"), For: 60_000, By: registry.Act{Author: "ops"}}, "DELETED", "quarantined", "UP"},
	{registry.Quarantine{Key: httpdtest.KeyOf("i1"), By: registry.Act{Author: "ops"}}, "ADDED", "changed", "UP"},
	{registry.Cancel{Key: httpdtest.KeyOf("i1")}, "DELETED", "canceled", "UP"},
}

func TestWatchSendsEveryChangeAtOnce(t *testing.T) {
	httpdtest.WithNode(t, func(t *testing.T, n *httpdtest.Bubbled) {
		n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "before")})
		s := n.Watch(t, "")
		expect.That(t, s.Start.Id == "test-1" && s.Start.Data.Index == "test-1", "it starts with %+v, want test-1", s.Start)
		for i, row := range watchedLife {
			time.Sleep(time.Second) // lets some quiet time pass
			begun := time.Now()
			n.Perform(t, row.op)
			e, index := s.Want("change"), fmt.Sprintf("test-%d", i+2)
			expect.That(t, e.Id == index && e.Data.Index == index && e.Data.Action == row.action && e.Data.Why == row.why && e.Data.Status == row.status && e.Data.App == "ORDERS" && e.Data.ID == "i1",
				"%T: got %s %s, want %s %s %s %s", row.op, e.Id, e.Text, index, row.action, row.why, row.status)
			expect.That(t, e.Data.Instance["instanceId"] == "i1" && e.Data.Instance["actionType"] == row.action && e.Data.Instance["status"] == row.status,
				"%T: the instance is %v", row.op, e.Data.Instance)
			expect.That(t, e.At.Equal(begun), "%T: it took %v", row.op, e.At.Sub(begun))
		}
	})
}

func TestWatchTellsAnEvictionFromACancel(t *testing.T) {
	httpdtest.WithNode(t, func(t *testing.T, n *httpdtest.Bubbled) {
		n.LeadAlways(t)
		s := n.Watch(t, "")
		n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
		s.Want("change")
		for {
			e, ok := s.Next()
			if ok && e.Name == "" {
				continue // it takes 90 s
			}
			expect.That(t, e.Data.Action == "DELETED" && e.Data.Why == "evicted", "got %s", e.Text)
			return
		}
	})
}

func TestWatchSendsTheRecordOfARemoval(t *testing.T) {
	httpdtest.WithNode(t, func(t *testing.T, n *httpdtest.Bubbled) {
		n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")}, registry.Cancel{Key: httpdtest.KeyOf("i1")})
		time.Sleep(10 * time.Minute)
		n.Lead() // moves the clock: the record is reduced
		want := `{"index":"test-2","action":"DELETED","why":"canceled","app":"ORDERS","id":"i1"}`
		expect.Equal(t, n.Watch(t, "?index=test-1").Want("change").Text, want, "got")
		expect.Equal(t, n.Get(t, "/v1/rollcall/watch?index=test-1&wait=1s").Body, `{"index":"test-2","changes":[`+want+"]}\n", "the poll got")
	})
}

func TestWatchSendsChangesWithinTheGapTogether(t *testing.T) {
	httpdtest.WithNode(t, func(t *testing.T, n *httpdtest.Bubbled) {
		s := n.Watch(t, "")
		time.Sleep(time.Second)
		begun := time.Now()
		n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
		if e := s.Want("change"); e.At.Sub(begun) != 0 {
			t.Errorf("the first change took %v", e.At.Sub(begun))
		}
		for _, status := range []registry.Status{registry.Down, registry.Starting, registry.OutOfService} {
			time.Sleep(10 * time.Millisecond)
			n.Perform(t, registry.SetOverride{Key: httpdtest.KeyOf("i1"), Status: status}, registry.Register{Instance: httpdtest.NewInstance("ORDERS", status.String())})
		}
		var told []string
		for range 4 {
			e := s.Want("change")
			told = append(told, e.Data.ID+" "+e.Data.Status)
			expect.Equal(t, e.At.Sub(begun), 50*time.Millisecond, "%s came after", e.Text)
		}
		expect.Equal(t, strings.Join(told, ", "), "DOWN UP, STARTING UP, i1 OUT_OF_SERVICE, OUT_OF_SERVICE UP", "got")
	})
}

// The server's time limits for a whole request would end it after half a minute.
func TestWatchThatIsQuietLivesAndSaysWhereItIs(t *testing.T) {
	httpdtest.WithNode(t, func(t *testing.T, n *httpdtest.Bubbled) {
		s := n.Watch(t, "?app=ORDERS")
		begun := time.Now()
		for i := range 240 {
			n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("OTHER", "i1")})
			e, ok := s.Next()
			want := fmt.Sprintf("test-%d", i+1)
			need.That(t, ok && e.Name == "" && e.Id == want && e.Comment == "age 0.000", "got %+v, %v, want only the id %s", e, ok, want)
		}
		expect.Equal(t, time.Since(begun).Round(time.Minute), time.Hour, "240 signs of life took")
		n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
		s.Want("change")
	})
}

func TestWatchIsNotWokenByOtherApplications(t *testing.T) {
	httpdtest.WithNode(t, func(t *testing.T, n *httpdtest.Bubbled) {
		s := n.Watch(t, "?app=ORDERS")
		for range 100 {
			n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("OTHER", "i1")})
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		expect.That(t, n.Woken() == 0, "it was woken %d times", n.Woken())
		n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
		e := s.Want("change")
		expect.That(t, e.Id == "test-101" && n.Woken() == 1, "got %s after %d wakes, want test-101 after 1", e.Text, n.Woken())
	})
}

func TestWatchFromALostPositionIsReset(t *testing.T) {
	for _, row := range []struct{ name, index, reason string }{
		{"too old", "test-1", "too_old"},
		{"of another history", "other-3", "foreign"},
		{"of another history, ahead", "other-300", "foreign"},
		{"of no history", "-0", "foreign"},
	} {
		httpdtest.InBubble(t, row.name, func(t *testing.T) {
			metrics := prometheus.NewRegistry()
			n := httpdtest.NewBubbled(t, httpd.Config{Metrics: metrics})
			n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")}, registry.Cancel{Key: httpdtest.KeyOf("i1")})
			n.Pass(30 * time.Hour) // records of removals are pruned
			n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i2")})
			s := n.Watch(t, "?index="+row.index)
			expect.That(t, s.Start.Id == row.index, "it starts at %s", s.Start.Id)
			e := s.Want("reset")
			expect.That(t, e.Id == "test-3" && e.Data.Index == "test-3" && strings.Contains(e.Data.Reason, "fetch everything"), "got %s %s", e.Id, e.Text)
			n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i3")})
			expect.Equal(t, s.Want("change").Id, "test-4", "it goes on with")
			got := n.Get(t, "/v1/rollcall/watch?wait=1m&index="+row.index)
			var doc api.Error
			err := httpdtest.Strictly(got.Body, &doc)
			expect.That(t, err == nil && got.Status == http.StatusGone && doc.Index == "test-4" && strings.Contains(doc.Error, "fetch everything"),
				"the poll got %d %s", got.Status, got.Body)
			if got := httpdtest.Gathered(t, metrics, "rollcall_http_watch_resets_total", map[string]string{"reason": row.reason}); got != 2 {
				t.Errorf("%v resets were counted as %s, want 2", got, row.reason)
			}
		})
	}
}

func TestWatchThatCannotBeginSaysWhy(t *testing.T) {
	httpdtest.WithInstance(t, func(t *testing.T, n *httpdtest.Bubbled) {
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
			got := n.Get(t, "/v1/rollcall/watch"+row.query, headers...)
			var doc struct{ Error string }
			err := json.Unmarshal([]byte(got.Body), &doc)
			expect.That(t, err == nil && got.Status == row.status && strings.Contains(doc.Error, row.says),
				"%s: got %d %s, want %d %q", row.name, got.Status, got.Body, row.status, row.says)
		}
		n.Set(func(m *fsmtest.Memory) { m.ViewErr = registry.ErrNoLeader })
		for _, query := range []string{"", "?wait=1s", "?index=test-2", "?index=other-1"} {
			got := n.Get(t, "/v1/rollcall/watch"+query)
			expect.That(t, got.Status == 503 && got.Header.Get("Retry-After") != "", "%q without a quorum: got %d %s", query, got.Status, got.Body)
		}
		for _, query := range []string{"?consistency=stale", "?index=test-1"} { // need no other node
			n.Watch(t, query)
		}
	})
}

func TestWatchStreamIsNeverCompressedAndHasNoHead(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	conn := n.Dial(t)
	need.Got(io.WriteString(conn, httpdtest.Request("GET", "/v1/rollcall/watch", "", "Accept-Encoding: gzip")))(t)
	resp := httpdtest.ReadHead(t, conn)
	for name, want := range map[string]string{"Content-Type": "text/event-stream", "Content-Encoding": "", "Cache-Control": "no-store", "Content-Length": ""} {
		expect.Equal(t, resp.Header.Get(name), want, "%s is", name)
	}
	httpdtest.NewEvents(t, resp.Body).Want("start")
	n.Send(t, httpdtest.Request("HEAD", "/v1/rollcall/watch", "")).Says(t, 405, "", "HEAD").With(t, "Allow", "GET")
}

func TestWatchersHaveALimit(t *testing.T) {
	httpdtest.Bubble(t, func(t *testing.T) {
		metrics := prometheus.NewRegistry()
		n := httpdtest.NewBubbled(t, httpd.Config{Metrics: metrics, Limits: web.Limits{Watchers: 2}})
		n.Watch(t, "")
		// only its place counts, not its response
		go func() { _, _ = n.RoundTrip(t, httpdtest.Request("GET", "/v1/rollcall/watch?wait=1s", "")) }()
		synctest.Wait()
		if got := httpdtest.Gathered(t, metrics, "rollcall_http_watchers", nil); got != 2 {
			t.Errorf("%v watchers are counted, want 2", got)
		}
		for _, query := range []string{"", "?wait=0s"} {
			got := n.Get(t, "/v1/rollcall/watch"+query)
			expect.That(t, got.Status == 503 && got.Header.Get("Retry-After") != "" && strings.Contains(got.Body, "limits.watchers"),
				"%q: got %d %s", query, got.Status, got.Body)
		}
		time.Sleep(time.Second) // the poll ends
		synctest.Wait()
		n.Watch(t, "")
		n.Get(t, "/v1/rollcall/watch").Says(t, 503, "", "it")
	})
}

func TestWatchEndsAtShutdown(t *testing.T) {
	httpdtest.WithInstance(t, func(t *testing.T, n *httpdtest.Bubbled) {
		s := n.Watch(t, "")
		polled := make(chan httpdtest.Reply, 1)
		go func() {
			// no response after an error
			got, _ := n.RoundTrip(t, httpdtest.Request("GET", "/v1/rollcall/watch?wait=10m&index=test-1", ""))
			polled <- got
		}()
		synctest.Wait()
		begun := time.Now()
		down := make(chan error, 1)
		go func() { down <- n.Server.Shutdown(t.Context()) }()
		e, ok := s.Next()
		expect.That(t, !ok, "the stream has %+v, want its end", e)
		(<-polled).Is(t, 200, `{"index":"test-1","changes":[]}`+"\n", "the poll")
		err := <-down
		expect.That(t, err == nil && time.Since(begun) <= time.Second, "shutdown: %v after %v", err, time.Since(begun))
	})
}

func TestWatchThatBeginsAtShutdownIsRefused(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	n.Handler.EndWatches()
	n.Send(t, httpdtest.Request("GET", "/v1/rollcall/watch", "")).Says(t, 503, "shutting down", "it")
}

func TestLongPollEndsInTimeAndSaysWhereToGoOn(t *testing.T) {
	httpdtest.WithNode(t, func(t *testing.T, n *httpdtest.Bubbled) {
		begun := time.Now()
		time.AfterFunc(time.Second, func() { n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("OTHER", "1")}) })
		p := n.Poll(t, "?index=test-0&app=A&wait=10m")
		took := time.Since(begun)
		expect.That(t, p.Index == "test-1" && len(p.Changes) == 0 && took == 10*time.Minute, "got %+v after %v", p, took)
		if p := n.Poll(t, "?wait=0s"); p.Index != "test-1" || len(p.Changes) != 0 {
			t.Errorf("without an index: got %+v, want where it is now", p)
		}
	})
}

func TestWatchReadsManyChangesInParts(t *testing.T) {
	httpdtest.WithNode(t, func(t *testing.T, n *httpdtest.Bubbled) {
		const many = 5000
		for i := range many {
			n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("A", fmt.Sprint(i))})
		}
		at, next := "test-0", 0
		for range 3 {
			p := n.Poll(t, "?wait=1m&index="+at)
			for _, c := range p.Changes {
				need.That(t, c.ID == fmt.Sprint(next), "got %+v, want %d", c, next)
				next++
			}
			at = p.Index
		}
		expect.That(t, next == many && at == fmt.Sprintf("test-%d", many), "three polls got %d changes up to %s", next, at)
		s := n.Watch(t, "?index=test-0")
		for i := range many {
			e := s.Want("change")
			need.That(t, e.Data.ID == fmt.Sprint(i) && e.At.Equal(s.Start.At), "got %s after %v, want %d at once", e.Text, e.At.Sub(s.Start.At), i)
		}
	})
}

// newSecure starts a server with its own settings in a bubble, and returns a client that speaks HTTP/2 with it.
func newSecure(t *testing.T, certificate tls.Certificate, trusted *x509.CertPool) (*fsmtest.Memory, *http.Client) {
	t.Helper()
	m := fsmtest.New()
	handler := need.Got(httpd.New(httpd.Config{Service: m}))(t)
	server := httpd.NewServer("", handler, nil)
	server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2", "http/1.1"}}
	p := &httpdtest.Pipes{Dialed: make(chan net.Conn), Closed: make(chan struct{})}
	served := make(chan error, 1)
	go func() { served <- handler.Serve(server, p) }()
	transport := &http.Transport{DialContext: p.Dial, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: trusted, ServerName: "example.com"}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
		handler.Close()
		<-served
	})
	return m, &http.Client{Transport: transport}
}

// A TLS connection ends within an hour, gracefully: a stream is ended, and later requests use another connection.
func TestConnectionOverTLSEndsWithinAnHour(t *testing.T) {
	certificate, trusted := httpdtest.Certified(t)
	httpdtest.Bubble(t, func(t *testing.T) {
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
			time.Sleep(time.Second) // until the client knows that the connection accepts no more requests
			return is
		}
		first, second := reused(), reused()
		expect.That(t, first && !second, "the connection did not end with the first response after the stream: reused %v, then %v", first, second)
	})
}

// In HTTP/2 a write time limit also ends a stream on which nothing is written.
func TestWatchThatIsQuietLivesOverHTTP2(t *testing.T) {
	certificate, trusted := httpdtest.Certified(t)
	httpdtest.Bubble(t, func(t *testing.T) {
		m, client := newSecure(t, certificate, trusted)
		resp := need.Got(client.Get("https://example.com/v1/rollcall/watch"))(t)
		defer resp.Body.Close()
		need.That(t, resp.ProtoMajor == 2, "it speaks %s", resp.Proto)
		s := httpdtest.NewEvents(t, resp.Body)
		s.Want("start")
		time.AfterFunc(5*time.Minute, func() {
			_, _ = m.Apply(context.Background(), registry.FromClient, registry.Register{Instance: httpdtest.NewInstance("A", "1")})
		})
		polled := need.Got(client.Get("https://example.com/v1/rollcall/watch?wait=10m&index=test-0"))(t)
		defer polled.Body.Close()
		body, err := io.ReadAll(polled.Body)
		expect.That(t, err == nil && strings.HasPrefix(string(body), `{"index":"test-1","changes":[{"index":"test-1","action":"ADDED"`),
			"the poll got %s, %v", body, err)
		for {
			e, ok := s.Next()
			need.That(t, ok, "the stream ended")
			if e.Name == "change" {
				return
			}
		}
	})
}

func TestWatchSendsASlowReaderAResetAsItsLastEvent(t *testing.T) {
	httpdtest.Bubble(t, func(t *testing.T) {
		metrics := prometheus.NewRegistry()
		n := httpdtest.NewBubbled(t, httpd.Config{Metrics: metrics})
		s := n.Watch(t, "")
		n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("A", "1")})
		time.Sleep(4 * time.Second) // not too slow yet
		s.Want("change")
		n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("A", "2")})
		time.Sleep(6 * time.Second)
		n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("A", "3")})
		e := s.Want("change")
		expect.That(t, e.Id == "test-2", "got %s, want what it was slow to read", e.Text)
		e = s.Want("reset")
		expect.That(t, e.Id == "test-3" && strings.Contains(e.Data.Reason, "too slowly"), "got %s %s", e.Id, e.Text)
		if e, ok := s.Next(); ok {
			t.Errorf("got %+v after the reset, want the end", e)
		}
		expect.Equal(t, httpdtest.Gathered(t, metrics, "rollcall_http_watch_resets_total", map[string]string{"reason": "slow"}), 1, "slow watchers are counted:")
		expect.Equal(t, httpdtest.Gathered(t, metrics, "rollcall_http_watch_events_total", nil), 2, "events are counted:")
	})
}

func TestWatchWithoutAReaderIsCutOff(t *testing.T) {
	httpdtest.Bubble(t, func(t *testing.T) {
		metrics := prometheus.NewRegistry()
		n := httpdtest.NewBubbled(t, httpd.Config{Metrics: metrics})
		resp := need.Got(n.OpenRequest(t, httpdtest.Request("GET", "/v1/rollcall/watch", "")))(t)
		httpdtest.NewEvents(t, resp.Body).Want("start")
		n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("A", "1")})
		time.Sleep(31 * time.Second)
		rest, err := io.ReadAll(resp.Body)
		expect.That(t, err != nil, "the stream ended in order, after %q", rest)
		expect.Equal(t, httpdtest.Gathered(t, metrics, "rollcall_http_watch_resets_total", map[string]string{"reason": "cut"}), 1, "cut watchers are counted:")
		expect.Equal(t, httpdtest.Gathered(t, metrics, "rollcall_http_watchers", nil), 0, "watchers are left:")
	})
}

func TestWatchSendsALargeChangeWhole(t *testing.T) {
	httpdtest.WithNode(t, func(t *testing.T, n *httpdtest.Bubbled) {
		s := n.Watch(t, "")
		for _, size := range []int{31 << 10, 32 << 10, 64 << 10, 65 << 10, 250 << 10} {
			n.Perform(t, registry.Register{Instance: largeInstance("A", fmt.Sprint(size), size)})
			expect.Equal(t, len(s.Want("change").Data.Instance["metadata"].(map[string]any)["large"].(string)), size, "bytes of %d arrived:", size)
		}
	})
}

func largeInstance(app, id string, size int) *registry.Instance {
	i := httpdtest.NewInstance(app, id)
	i.Metadata = []registry.Pair{{Key: "large", Value: strings.Repeat("x", size)}}
	return i
}
