package client

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestPeersAreReadAsTheServerTellsThem(t *testing.T) {
	c := servers{"a": always(200, `{"datacenter":"dc1","node":"n1","sender":"n2","peers":[{"name":"dc2","kind":"datacenter","urls":["http://b:1"],"url":"http://b:1",
		"state":"failing","reason":"refused","cursor":"e-7","lag_changes":3,"lag_ms":1500,"pending":2,"in_flight":1,"last_success":1000,"last_error":{"at":2000,"text":"refused"},
		"sent":{"register":5},"dropped":{"expired":1},"repairs":{"digest":2},"last_repair":{"at":3000,"reason":"digest","sent":4,"removed":1},
		"incoming":{"instances":9,"heard_ms":41000,"cut":true,"on_cut":"keep","kept":2}}],
		"receiver":"n1","senders":[{"sender":"s","datacenter":"dc2","heard_ms":5,"late_ms":6,"late":7,"refused":8}]}`)}.client(t, "a")
	got, err := c.Peers(t.Context())
	need.That(t, err == nil && got.Datacenter == "dc1" && got.Node == "n1" && got.Sender == "n2" && len(got.Peers) == 1, "got %+v, %v", got, err)
	expect.That(t, got.Receiver == "n1" && len(got.Senders) == 1 && got.Senders[0] == (PeerSender{Sender: "s", Datacenter: "dc2", HeardMS: 5, LateMS: 6, Late: 7, Refused: 8}),
		"got %+v", got)
	p := got.Peers[0]
	if p.Name != "dc2" || p.Kind != "datacenter" || len(p.URLs) != 1 || p.URL != "http://b:1" || p.State != "failing" || p.Reason != "refused" || p.Cursor != "e-7" ||
		p.LagChanges != 3 || p.LagMS != 1500 || p.Pending != 2 || p.InFlight != 1 || p.LastSuccess != 1000 || *p.LastError != (PeerError{At: 2000, Text: "refused"}) ||
		p.Sent["register"] != 5 || p.Dropped["expired"] != 1 || p.Repairs["digest"] != 2 || *p.LastRepair != (PeerRepair{At: 3000, Reason: "digest", Sent: 4, Removed: 1}) {
		t.Errorf("got %+v", p)
	}
	in := p.Incoming
	expect.That(t, in.Instances == 9 && *in.HeardMS == 41000 && in.Cut && in.OnCut == "keep" && in.Kept == 2, "got %+v", in)
}

func TestAnUnknownSenderIsNoUnknownPeer(t *testing.T) {
	err := servers{"a": always(404, `{"error":"no such sender"}`)}.client(t, "a").ForgetSender(t.Context(), "s", by)
	expect.That(t, errors.Is(err, ErrUnknownSender) && !errors.Is(err, ErrUnknownPeer) && strings.Contains(err.Error(), `"s"`),
		"got %v, want ErrUnknownSender and the name", err)
	j := newJournal()
	if err := (servers{"a": j.around(always(204, ""))}).client(t, "a").ForgetSender(t.Context(), "a:1/b", by); err != nil || j.String() != "POST /v1/rollcall/peers/a:1%2Fb/forget" {
		t.Errorf("sent %s, got %v", j, err)
	}
}

// actsOnPeers are the calls about one peer, and what they send.
var actsOnPeers = map[string]func(ctx context.Context, c *Client) error{
	"GET /v1/rollcall/peers/a:1%2Fb/diff":    func(ctx context.Context, c *Client) error { _, err := c.PeerDiff(ctx, "a:1/b"); return err },
	"POST /v1/rollcall/peers/a:1%2Fb/repair": func(ctx context.Context, c *Client) error { _, err := c.RepairPeer(ctx, "a:1/b"); return err },
	"POST /v1/rollcall/peers/a:1%2Fb/pause":  func(ctx context.Context, c *Client) error { return c.PausePeer(ctx, "a:1/b", by) },
	"POST /v1/rollcall/peers/a:1%2Fb/resume": func(ctx context.Context, c *Client) error { return c.ResumePeer(ctx, "a:1/b", by) },
}

func TestActsOnPeersNameThePeerInThePathAndSayWhatBecameOfThem(t *testing.T) {
	for _, tc := range []struct {
		name          string
		first, second func(*http.Request) (*http.Response, error)
		want          error  // nil: done, unless says is set
		says          string // in the text of the error
	}{
		{name: "done", first: always(200, `{"apps":1}`), second: cutOff},
		{name: "no such peer", first: always(404, `{"error":"no"}`), second: cutOff, want: ErrUnknownPeer, says: `peer "a:1/b"`},
		{name: "not there, elsewhere", first: always(503, ""), second: always(200, "{}")},
		{name: "a Eureka server", first: always(409, `{"error":"not offered"}`), second: cutOff, says: "409 Conflict: not offered"},
		{name: "no peers", first: always(501, `{"error":"nothing"}`), second: cutOff, says: "501 Not Implemented: nothing"},
		{name: "nobody", first: unreachable, second: unreachable, says: "refused"},
	} {
		for request, act := range actsOnPeers {
			j := newJournal()
			err := act(t.Context(), servers{"a": j.around(tc.first), "b": tc.second}.client(t, "a", "b"))
			if failed := tc.want != nil || tc.says != ""; (err != nil) != failed {
				t.Errorf("%s, %s: got %v, want an error: %t", tc.name, request, err, failed)
				continue
			}
			if tc.want != nil && !errors.Is(err, tc.want) || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s, %s: got %v, want %v and %q in it", tc.name, request, err, tc.want, tc.says)
			}
			expect.That(t, j.String() == request, "%s: sent %s, want %s", tc.name, j, request)
		}
	}
}

// A comparison asks a peer that may be far away for much.
func TestAComparisonMayTakeMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := servers{"a": func(r *http.Request) (*http.Response, error) {
			select {
			case <-time.After(2 * time.Minute): // virtual
				return answered(200, `{"apps":1,"missing":2,"extra":3,"items":[{"app":"A","id":"1","what":"older"}]}`)
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		}}.client(t, "a")
		got, err := c.PeerDiff(t.Context(), "dc2")
		expect.That(t, err == nil && got.Apps == 1 && got.Missing == 2 && got.Extra == 3 && len(got.Items) == 1 && got.Items[0] == (DiffedItem{App: "A", ID: "1", What: "older"}),
			"got %+v, %v", got, err)
	})
}
