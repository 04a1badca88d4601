package own_test

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/httpdtest"
	"github.com/seed-20419f34/rollcall/httpd/own"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// peerRequests are all requests about peers, and the calls of own.Peers that they cause.
var peerRequests = []struct {
	method, path, body string
	asks               string
	status             int
}{
	{"POST", "/v1/rollcall/replication", `{"version":1}`, `receive 13 {"version":1}`, 200},
	{"POST", "/v1/rollcall/replication/digest", `{"version":1}`, `compare 13 {"version":1}`, 200},
	{"GET", "/v1/rollcall/replication/state?datacenter=dc%201", "", "state dc 1", 200},
	{"GET", "/v1/rollcall/peers", "", "status", 200},
	{"GET", "/v1/rollcall/peers/10.0.0.1:8761/diff", "", "diff 10.0.0.1:8761", 200},
	{"POST", "/v1/rollcall/peers/http:%2F%2Fa:1%2Feureka/repair", "{}", "repair http://a:1/eureka", 200},
	{"POST", "/v1/rollcall/peers/dc%32/pause?author=ops&reason=works", "", "pause dc2 true by ops (works)", 204},
	{"POST", "/v1/rollcall/peers/n2%2D4f/forget?author=ops&reason=works", "", "forget n2-4f by ops (works)", 204},
	{"POST", "/v1/rollcall/peers/dc2/resume", "", "pause dc2 false by from 127.0.0.1 ()", 204},
}

func writeNothing(io.Writer) error { return nil }

func TestPeerRequestsReachReplication(t *testing.T) {
	for _, row := range peerRequests {
		t.Run(row.asks, func(t *testing.T) {
			p := &httpdtest.FakePeers{WriteState: writeNothing}
			n := httpdtest.NewNode(t, httpd.Config{Peers: p}, nil)
			got := n.Send(t, httpdtest.Request(row.method, row.path, row.body)).Says(t, row.status, "", "it")
			expect.That(t, row.status != 200 || strings.HasPrefix(row.asks, "state") || strings.Contains(got.Body, `"done"`), "got %q, want that it is done", got.Body)
			expect.That(t, len(p.Calls) == 1 && p.Calls[0] == row.asks, "asked %q, want %q", p.Calls, row.asks)
		})
	}
}

func TestPeerRequestsAreNotOfferedWithoutPeers(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	for _, row := range peerRequests {
		n.Send(t, httpdtest.Request(row.method, row.path, row.body)).Says(t, http.StatusNotImplemented, "replication.nodes", "%s %s", row.method, row.path)
	}
}

func TestPeerErrorsKeepTheirStatus(t *testing.T) {
	refused := func(status int) error {
		return fmt.Errorf("ask dc2: %w", &own.PeerRefusal{Status: status, Text: "because it is so"})
	}
	for _, row := range []struct {
		name             string
		err              error
		status           int
		toSender, toAsks string // error texts: on the routes for servers, and on those for operators
		retry            string
		unknown          bool
		senderStatus     int // if it differs
	}{
		{name: "malformed", err: refused(400), status: 400, toSender: "because it is so", toAsks: "because it is so"},
		{name: "stranger", err: refused(403), status: 403, toSender: "because it is so", toAsks: "because it is so"},
		{name: "unknown peer", err: refused(404), status: 404, toSender: "because it is so", toAsks: "because it is so"},
		{name: "no digests", err: refused(409), status: 409, toSender: "because it is so", toAsks: "because it is so"},
		{name: "unreachable", err: refused(503), status: 503, toSender: "because it is so", toAsks: "because it is so", retry: "1"},
		{name: "no leader", err: registry.ErrNoLeader, status: 503, toSender: "no leader", toAsks: "no leader", retry: "1"},
		{name: "shutting down", err: registry.ErrClosed, status: 503, toSender: "shutting down", toAsks: "shutting down", retry: "1"},
		{name: "unknown outcome", err: registry.ErrUnknownOutcome, status: 504, toSender: "it is not known", toAsks: "it is not known", unknown: true, senderStatus: 503},
		{name: "a defect", err: errors.New("secret"), status: 500, toSender: "Internal Server Error", toAsks: "Internal Server Error"},
	} {
		t.Run(row.name, func(t *testing.T) {
			n := httpdtest.NewNode(t, httpd.Config{Peers: &httpdtest.FakePeers{Err: row.err}}, nil)
			for _, r := range peerRequests {
				got := n.Send(t, httpdtest.Request(r.method, r.path, r.body))
				status, says := row.status, row.toAsks
				if r.method == "POST" && strings.Contains(r.path, "/replication") {
					says = row.toSender
					if row.senderStatus != 0 {
						status = row.senderStatus
					}
				}
				var doc struct{ Error string }
				expect.That(t, json.Unmarshal([]byte(got.Body), &doc) == nil && got.Status == status && strings.Contains(doc.Error, says) && !strings.Contains(got.Body, "secret"), "%s %s: got %d %s, want %d and an error in JSON with %q", r.method, r.path, got.Status, got.Body, status, says)
				expect.Equal(t, got.Header.Get("X-Rollcall-Outcome") == "unknown", row.unknown, "%s %s: the outcome is told as unknown:", r.method, r.path)
				retry := got.Header.Get("Retry-After")
				expect.That(t, row.retry == "" || retry == row.retry, "%s %s: Retry-After is %q, want %q", r.method, r.path, retry, row.retry)
			}
		})
	}
}

func TestPeerMessageMayBeEightMiBDecoded(t *testing.T) {
	random := make([]byte, 32<<10) // a body that compression makes a hundred times smaller is refused
	_, _ = rand.NewChaCha8([32]byte{}).Read(random)
	varied := hex.EncodeToString(random)
	for _, path := range []string{"/v1/rollcall/replication", "/v1/rollcall/replication/digest"} {
		for _, row := range []struct {
			name, body string
			limit      int64 // 0 means the default
			headers    []string
			status     int
		}{
			{name: "8 MiB", body: strings.Repeat("a", 8<<20), status: 200},
			{name: "8 MiB and a byte", body: strings.Repeat("a", 8<<20+1), status: 413},
			{name: "the limit, compressed", body: httpdtest.Gzipped(varied), limit: 64 << 10, headers: []string{"Content-Encoding: gzip"}, status: 200},
			{name: "a byte more, compressed", body: httpdtest.Gzipped(varied + "a"), limit: 64 << 10, headers: []string{"Content-Encoding: gzip"}, status: 413},
			{name: "compressed in another way", body: "a", headers: []string{"Content-Encoding: br"}, status: 415},
		} {
			p := &httpdtest.FakePeers{}
			n := httpdtest.NewNode(t, httpd.Config{Peers: p, Limits: web.Limits{BatchBytes: row.limit}}, nil)
			n.Send(t, httpdtest.Request("POST", path, row.body, row.headers...)).Says(t, row.status, "", "%s", row.name)
			size := fmt.Sprint(" ", cmp.Or(row.limit, 8<<20), " ")
			expect.Equal(t, len(p.Calls) == 1 && strings.Contains(p.Calls[0], size), row.status == 200, "%s: it was asked %q:", row.name, p.Calls)
		}
	}
}

// A copy may take any time, if each piece of it is read in time.
func TestPeerStateCopyOutlastsTheServersTimeLimits(t *testing.T) {
	httpdtest.Bubble(t, func(t *testing.T) {
		const lines = 30
		p := &httpdtest.FakePeers{WriteState: func(w io.Writer) error {
			for i := range lines {
				time.Sleep(10 * time.Second) // virtual
				if _, err := fmt.Fprintf(w, "%d%s\n", i, strings.Repeat(".", 64<<10)); err != nil {
					return err
				}
			}
			return nil
		}}
		n := httpdtest.NewBubbled(t, httpd.Config{Peers: p})
		got := n.Get(t, "/v1/rollcall/replication/state?datacenter=dc1")
		expect.That(t, got.Status == 200 && strings.Count(got.Body, "\n") == lines && got.Header.Get("Content-Type") == "application/octet-stream", "got %d, %d lines with %v, want %d", got.Status, strings.Count(got.Body, "\n"), got.Header, lines)
	})
}

func TestPeerIsToldThatThisNodeWaitsForACopyToo(t *testing.T) {
	for _, waits := range []string{"node1", ""} {
		p := &httpdtest.FakePeers{Waiting: waits, WriteState: func(io.Writer) error {
			return &own.PeerRefusal{Status: http.StatusServiceUnavailable, Text: "not ready"}
		}}
		httpdtest.NewNode(t, httpd.Config{Peers: p}, nil).Send(t, httpdtest.Request("GET", "/v1/rollcall/replication/state?datacenter=dc1", "")).Says(t, 503, "", "it").With(t, "X-Rollcall-Waits", waits)
	}
}

func TestPeerStateCopyThatFailsBreaksOff(t *testing.T) {
	for _, row := range []struct {
		name string
		sent int // bytes sent before it fails
		want int // status; 0 if the response breaks off without one
	}{
		{"before it began", 10, 500},
		{"in the middle", 1 << 20, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := &httpdtest.FakePeers{WriteState: func(w io.Writer) error {
				if _, err := io.WriteString(w, strings.Repeat(".", row.sent)); err != nil {
					return err
				}
				return errors.New("failed")
			}}
			n := httpdtest.NewNode(t, httpd.Config{Peers: p}, nil)
			resp, err := http.Get("http://" + n.Addr + "/v1/rollcall/replication/state?datacenter=dc1")
			need.OK(t, err)
			defer resp.Body.Close()
			_, err = io.ReadAll(resp.Body)
			broke := err != nil
			expect.That(t, broke == (row.want == 0) && (broke || resp.StatusCode == row.want), "got %d, %v, want %d (0: broken off)", resp.StatusCode, err, row.want)
			http.DefaultClient.CloseIdleConnections()
		})
	}
}

func TestPeerStateCopyWithoutAReaderIsCutOff(t *testing.T) {
	httpdtest.Bubble(t, func(t *testing.T) {
		failed := make(chan error, 1)
		p := &httpdtest.FakePeers{WriteState: func(w io.Writer) error {
			for {
				if _, err := io.WriteString(w, strings.Repeat(".", 1<<20)); err != nil {
					failed <- err
					return err
				}
			}
		}}
		n := httpdtest.NewBubbled(t, httpd.Config{Peers: p})
		begun := time.Now()
		need.Got(n.OpenRequest(t, httpdtest.Request("GET", "/v1/rollcall/replication/state?datacenter=dc1", "")))(t)
		<-failed
		took := time.Since(begun)
		expect.That(t, took >= 30*time.Second && took <= time.Minute, "it was cut off after %v, want 30s", took)
	})
}

func TestPeerComparisonMayTakeTwoMinutes(t *testing.T) {
	for _, row := range []struct {
		takes  time.Duration
		status int
		says   string
	}{
		{2*time.Minute - time.Second, 200, `"what":"done"`},
		{2*time.Minute + time.Second, 503, "the comparison did not end within 2m0s"},
	} {
		httpdtest.Bubble(t, func(t *testing.T) {
			n := httpdtest.NewBubbled(t, httpd.Config{Peers: &httpdtest.FakePeers{Takes: row.takes}})
			n.Get(t, "/v1/rollcall/peers/dc2/diff").Says(t, row.status, row.says, "%v", row.takes)
		})
	}
}
