package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestPeersCommandsSendTheirRequests(t *testing.T) {
	for _, tc := range []struct {
		name   string
		args   []string
		status int
		body   string
		want   string // request
		prints string
	}{
		{name: "peers", args: []string{"peers"}, status: 200, body: `{"peers":[{"name":"dc2","kind":"datacenter","state":"ok"}]}`, want: "GET /v1/rollcall/peers", prints: "\ndc2   datacenter  ok"},
		{name: "status, in JSON", args: []string{"peers", "status", "-o", "json"}, status: 200, body: `{"node":"n1"}`, want: "GET /v1/rollcall/peers", prints: `"peers": []`},
		{name: "diff", args: []string{"peers", "diff", "10.0.0.1:8761"}, status: 200, body: `{"apps":1,"missing":1,"items":[{"app":"ORDERS","id":"o1","what":"missing"}]}`,
			want: "GET /v1/rollcall/peers/10.0.0.1:8761/diff", prints: "\nORDERS/o1  missing\n"},
		{name: "diff of nothing, in JSON", args: []string{"peers", "diff", "dc2", "-o", "json"}, status: 200, body: `{"items":null}`, want: "GET /v1/rollcall/peers/dc2/diff", prints: `"items": []`},
		{name: "repair", args: []string{"peers", "repair", "a/b"}, status: 200, body: `{"apps":2,"missing":3,"extra":4}`, want: "POST /v1/rollcall/peers/a%2Fb/repair", prints: "\n2     3        4\n"},
		{name: "pause", args: []string{"peers", "pause", "dc2", "--author=me", "--reason=rebuilt"}, status: 204, want: "POST /v1/rollcall/peers/dc2/pause?author=me&reason=rebuilt", prints: "paused  dc2\n"},
		{name: "resume", args: []string{"peers", "resume", "dc2", "--author=me", "-o", "json"}, status: 204, want: "POST /v1/rollcall/peers/dc2/resume?author=me", prints: `"done": "resumed"`},
		{name: "forget", args: []string{"peers", "forget", "n2.902c570f70f5", "--author=me"}, status: 204, want: "POST /v1/rollcall/peers/n2.902c570f70f5/forget?author=me", prints: "forgotten  n2.902c570f70f5\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newFakeServer(t, tc.status, tc.body)
			stdout, stderr, code := rollcall(t, append(tc.args, "--addr", s.URL)...)
			expect.That(t, code == cli.ExitOK && strings.Contains(stdout, tc.prints), "exit %d, printed %q and %q, want %q", code, stdout, stderr, tc.prints)
			expect.That(t, len(s.requests) == 1 && s.requests[0] == tc.want, "sent %q, want %q", s.requests, tc.want)
		})
	}
}

func TestPeersCommandsSayWhyTheyFail(t *testing.T) {
	for _, tc := range []struct {
		name   string
		args   []string
		status int
		body   string
		code   int
		says   string
	}{
		{name: "none are configured", args: []string{"peers"}, status: 501, body: `{"error":"this node replicates nothing"}`, code: cli.ExitError, says: "this node replicates nothing"},
		{name: "unknown", args: []string{"peers", "pause", "dc9"}, status: 404, body: `{"error":"no such peer: \"dc9\""}`, code: cli.ExitError, says: `pause peer "dc9": no such peer`},
		{name: "an unknown sender", args: []string{"peers", "forget", "n9"}, status: 404, body: `{"error":"no such sender: nothing was heard of \"n9\""}`, code: cli.ExitError, says: `forget sender "n9": no such sender`},
		{name: "a Eureka server", args: []string{"peers", "diff", "old"}, status: 409, body: `{"error":"not offered for Eureka servers"}`, code: cli.ExitError, says: "not offered for Eureka servers"},
		{name: "unreachable", args: []string{"peers", "repair", "dc2"}, status: 503, body: `{"error":"dial tcp: refused"}`, code: cli.ExitError, says: "dial tcp: refused"},
		{name: "no name", args: []string{"peers", "repair"}, code: cli.ExitUsage, says: "accepts 1 arg"},
		{name: "another word", args: []string{"peers", "stop"}, code: cli.ExitUsage, says: "unknown command"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newFakeServer(t, tc.status, tc.body)
			stdout, stderr, code := rollcall(t, append(tc.args, "--addr", s.URL)...)
			expect.That(t, code == tc.code && strings.Contains(stderr, tc.says) && stdout == "",
				"exit %d, printed %q, said %q; want exit %d, nothing and %q", code, stdout, stderr, tc.code, tc.says)
		})
	}
}

func TestPeersShowsSendersAndRepairs(t *testing.T) {
	heard := int64(41000)
	found := peerTables{client.Peers{Peers: []client.Peer{
		{Name: "127.0.0.1:8762", Kind: "node", State: "ok", LastSuccess: 1000},
		{Name: "dc2", Kind: "datacenter", State: "failing", Reason: "dial tcp: connection refused", LagChanges: 5000, LagMS: 90500, LastSuccess: 2000,
			LastRepair: &client.PeerRepair{At: 3000, Reason: "too-old", Sent: 12, Removed: 3},
			Incoming:   &client.Incoming{Instances: 20, HeardMS: &heard, Cut: true, OnCut: "keep for 1h0m0s", Kept: 7}},
		{Name: "old", Kind: "eureka", State: "paused", Incoming: &client.Incoming{OnCut: "expire"}},
	}, Senders: []client.PeerSender{
		{Sender: "n2-4f2a", Datacenter: "dc1", HeardMS: 400},
		{Sender: "c-77", Datacenter: "dc2", HeardMS: 41000, LateMS: 90000, Late: 12, Refused: 3},
	}}}
	want := `NAME            KIND        STATE    LAG(CHANGES)  LAG(TIME)  LAST SUCCESS          REASON
127.0.0.1:8762  node        ok       0             0s         1970-01-01T00:00:01Z  -
dc2             datacenter  failing  5000          1m30.5s    1970-01-01T00:00:02Z  dial tcp: connection refused
old             eureka      paused   0             0s         -                     -

FROM  INSTANCES  LAST HEARD  LINK  ON CUT           KEPT
dc2   20         41s ago     cut   keep for 1h0m0s  7
old   0          never       up    expire           0

SENDER   DATACENTER  HEARD      LATE BY  LATE  REFUSED
n2-4f2a  dc1         400ms ago  0s       0     0
c-77     dc2         41s ago    1m30s    12    3

REPAIRED  TIME                  WHY      SENT  REMOVED
dc2       1970-01-01T00:00:03Z  too-old  12    3
`
	var out bytes.Buffer
	err := cli.Table.Print(&out, found)
	expect.That(t, err == nil && out.String() == want, "%v, got\n%s\nwant\n%s", err, out.String(), want)
	out.Reset()
	err = cli.Table.Print(&out, peerTables{})
	expect.That(t, err == nil && strings.Count(out.String(), "\n") == 1, "%v, without peers it prints\n%s\nwant one head", err, out.String())
}
