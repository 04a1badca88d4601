package httpd_test

import (
	"cmp"
	"context"
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
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// peers is an httpd.Peers that answers everything alike and remembers what it was asked.
type peers struct {
	err    error
	status string // response of Status; "": {}
	calls  []string
	state  func(w io.Writer) error
	takes  time.Duration // a comparison
	waits  string        // its name, while it waits for a node to copy from
}

func (p *peers) record(asked string) ([]byte, error) {
	p.calls = append(p.calls, asked)
	return []byte(`{"done":true}`), p.err
}

// Receive implements httpd.Peers.
func (p *peers) Receive(_ context.Context, message []byte) ([]byte, error) {
	return p.record(fmt.Sprintf("receive %d %.20s", len(message), message))
}

// Compare implements httpd.Peers.
func (p *peers) Compare(_ context.Context, message []byte) ([]byte, error) {
	return p.record(fmt.Sprintf("compare %d %.20s", len(message), message))
}

// State implements httpd.Peers.
func (p *peers) State(ctx context.Context, datacenter string, w io.Writer) error {
	if _, err := p.record("state " + datacenter); err != nil {
		return err
	}
	return errors.Join(p.state(w), ctx.Err())
}

// Levels implements httpd.Peers.
func (p *peers) Levels() string { return "0 1 1 1 0 0.1" }

func (p *peers) Waits() string { return p.waits }

func (p *peers) AuthFile() string { return "none" }

// Cut implements httpd.Peers.
func (p *peers) Cut(string) time.Duration { return time.Minute }

// Status implements httpd.Peers.
func (p *peers) Status(context.Context) (status api.Peers, err error) {
	if p.status != "" {
		return status, errors.Join(json.Unmarshal([]byte(p.status), &status), p.err)
	}
	_, err = p.record("status")
	return api.Peers{Node: "done"}, err
}

// Diff implements httpd.Peers.
func (p *peers) Diff(ctx context.Context, peer string) (_ api.PeerDiff, err error) {
	select {
	case <-time.After(p.takes):
		_, err = p.record("diff " + peer)
	case <-ctx.Done():
		err = fmt.Errorf("ask %s: %w", peer, ctx.Err())
	}
	return api.PeerDiff{Items: []api.DiffedItem{{What: "done"}}}, err
}

// Repair implements httpd.Peers.
func (p *peers) Repair(_ context.Context, peer string) (_ api.PeerDiff, err error) {
	_, err = p.record("repair " + peer)
	return api.PeerDiff{Items: []api.DiffedItem{{What: "done"}}}, err
}

// Pause implements httpd.Peers.
func (p *peers) Pause(_ context.Context, peer string, paused bool, by registry.Act) error {
	_, err := p.record(fmt.Sprintf("pause %s %t by %s (%s)", peer, paused, by.Author, by.Reason))
	return err
}

// Forget implements httpd.Peers.
func (p *peers) Forget(_ context.Context, sender string, by registry.Act) error {
	_, err := p.record(fmt.Sprintf("forget %s by %s (%s)", sender, by.Author, by.Reason))
	return err
}

// peerRequests are all requests about peers, and what they ask of an httpd.Peers.
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
			p := &peers{state: writeNothing}
			n := newNode(t, httpd.Config{Peers: p}, nil)
			got := n.send(t, request(row.method, row.path, row.body)).says(t, row.status, "", "it")
			expect.That(t, row.status != 200 || strings.HasPrefix(row.asks, "state") || strings.Contains(got.body, `"done"`), "got %q, want that it is done", got.body)
			expect.That(t, len(p.calls) == 1 && p.calls[0] == row.asks, "asked %q, want %q", p.calls, row.asks)
		})
	}
}

func TestPeerRequestsAreNotOfferedWithoutPeers(t *testing.T) {
	n := newNode(t, httpd.Config{}, nil)
	for _, row := range peerRequests {
		n.send(t, request(row.method, row.path, row.body)).says(t, http.StatusNotImplemented, "replication.nodes", "%s %s", row.method, row.path)
	}
}

func TestPeerErrorsKeepTheirStatus(t *testing.T) {
	refused := func(status int) error {
		return fmt.Errorf("ask dc2: %w", &httpd.PeerRefusal{Status: status, Text: "because it is so"})
	}
	for _, row := range []struct {
		name             string
		err              error
		status           int
		toSender, toAsks string // texts: of the routes of other servers, and of operators
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
			n := newNode(t, httpd.Config{Peers: &peers{err: row.err}}, nil)
			for _, r := range peerRequests {
				got := n.send(t, request(r.method, r.path, r.body))
				status, says := row.status, row.toAsks
				if r.method == "POST" && strings.Contains(r.path, "/replication") {
					says = row.toSender
					if row.senderStatus != 0 {
						status = row.senderStatus
					}
				}
				var doc struct{ Error string }
				expect.That(t, json.Unmarshal([]byte(got.body), &doc) == nil && got.status == status && strings.Contains(doc.Error, says) && !strings.Contains(got.body, "secret"), "%s %s: got %d %s, want %d and an error in JSON with %q", r.method, r.path, got.status, got.body, status, says)
				expect.Equal(t, got.header.Get("X-Rollcall-Outcome") == "unknown", row.unknown, "%s %s: the outcome is told as unknown:", r.method, r.path)
				retry := got.header.Get("Retry-After")
				expect.That(t, row.retry == "" || retry == row.retry, "%s %s: Retry-After is %q, want %q", r.method, r.path, retry, row.retry)
			}
		})
	}
}

func TestPeerMessageMayBeEightMiBDecoded(t *testing.T) {
	random := make([]byte, 32<<10) // a body that gets a hundred times smaller by compression is refused
	_, _ = rand.NewChaCha8([32]byte{}).Read(random)
	varied := hex.EncodeToString(random)
	for _, path := range []string{"/v1/rollcall/replication", "/v1/rollcall/replication/digest"} {
		for _, row := range []struct {
			name, body string
			limit      int64 // 0: the default
			headers    []string
			status     int
		}{
			{name: "8 MiB", body: strings.Repeat("a", 8<<20), status: 200},
			{name: "8 MiB and a byte", body: strings.Repeat("a", 8<<20+1), status: 413},
			{name: "the limit, compressed", body: gzipped(varied), limit: 64 << 10, headers: []string{"Content-Encoding: gzip"}, status: 200},
			{name: "a byte more, compressed", body: gzipped(varied + "a"), limit: 64 << 10, headers: []string{"Content-Encoding: gzip"}, status: 413},
			{name: "compressed in another way", body: "a", headers: []string{"Content-Encoding: br"}, status: 415},
		} {
			p := &peers{}
			n := newNode(t, httpd.Config{Peers: p, Limits: web.Limits{BatchBytes: row.limit}}, nil)
			n.send(t, request("POST", path, row.body, row.headers...)).says(t, row.status, "", "%s", row.name)
			size := fmt.Sprint(" ", cmp.Or(row.limit, 8<<20), " ")
			expect.Equal(t, len(p.calls) == 1 && strings.Contains(p.calls[0], size), row.status == 200, "%s: it was asked %q:", row.name, p.calls)
		}
	}
}

// A copy takes as long as it takes, if each piece of it is read in time.
func TestPeerStateCopyOutlastsTheServersTimeLimits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const lines = 30
		p := &peers{state: func(w io.Writer) error {
			for i := range lines {
				time.Sleep(10 * time.Second) // virtual
				if _, err := fmt.Fprintf(w, "%d%s\n", i, strings.Repeat(".", 64<<10)); err != nil {
					return err
				}
			}
			return nil
		}}
		n := newBubbled(t, httpd.Config{Peers: p})
		got := n.get(t, "/v1/rollcall/replication/state?datacenter=dc1")
		expect.That(t, got.status == 200 && strings.Count(got.body, "\n") == lines && got.header.Get("Content-Type") == "application/octet-stream", "got %d, %d lines with %v, want %d", got.status, strings.Count(got.body, "\n"), got.header, lines)
	})
}

func TestPeerIsToldThatThisNodeWaitsForACopyToo(t *testing.T) {
	for _, waits := range []string{"node1", ""} {
		p := &peers{waits: waits, state: func(io.Writer) error {
			return &httpd.PeerRefusal{Status: http.StatusServiceUnavailable, Text: "not ready"}
		}}
		newNode(t, httpd.Config{Peers: p}, nil).send(t, request("GET", "/v1/rollcall/replication/state?datacenter=dc1", "")).says(t, 503, "", "it").with(t, "X-Rollcall-Waits", waits)
	}
}

func TestPeerStateCopyThatFailsBreaksOff(t *testing.T) {
	for _, row := range []struct {
		name string
		sent int // bytes before it fails
		want int // status; 0: none, the response breaks off
	}{
		{"before it began", 10, 500},
		{"in the middle", 1 << 20, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := &peers{state: func(w io.Writer) error {
				if _, err := io.WriteString(w, strings.Repeat(".", row.sent)); err != nil {
					return err
				}
				return errors.New("failed")
			}}
			n := newNode(t, httpd.Config{Peers: p}, nil)
			resp, err := http.Get("http://" + n.addr + "/v1/rollcall/replication/state?datacenter=dc1")
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
	bubble(t, func(t *testing.T) {
		failed := make(chan error, 1)
		p := &peers{state: func(w io.Writer) error {
			for {
				if _, err := io.WriteString(w, strings.Repeat(".", 1<<20)); err != nil {
					failed <- err
					return err
				}
			}
		}}
		n := newBubbled(t, httpd.Config{Peers: p})
		begun := time.Now()
		need.Got(n.openRequest(t, request("GET", "/v1/rollcall/replication/state?datacenter=dc1", "")))(t)
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
		bubble(t, func(t *testing.T) {
			n := newBubbled(t, httpd.Config{Peers: &peers{takes: row.takes}})
			n.get(t, "/v1/rollcall/peers/dc2/diff").says(t, row.status, row.says, "%v", row.takes)
		})
	}
}
