package httpd_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// fromDC2 is what the servers of datacenter dc2 send.
var fromDC2 = registry.Origin{Kind: registry.RemoteDC, DC: "dc2"}

// remote registers ORDERS/i1 as an instance of dc2; heard, of which the link's contact is noted too.
func (n *bubbled) remote(t *testing.T, heard bool) {
	t.Helper()
	ops := []registry.Op{registry.Replica{Instance: newInstance("ORDERS", "i1"), Life: 1}}
	if heard {
		ops = append([]registry.Op{registry.Contact{DC: "dc2", Cut: 15_000}}, ops...)
	}
	need.Got(n.Apply(context.Background(), fromDC2, ops...))(t)
}

// cutPolicy is a status of the peer dc2.
func cutPolicy(onCut string) string {
	return `{"peers":[{"name":"dc3","incoming":{"on_cut":"expire"}},{"name":"dc2","incoming":{"on_cut":"` + onCut + `"}}]}`
}

// Leases are 90 s; those of other datacenters get 30 s more.
func TestAnInstanceOfAnotherDatacenterIsShownWithItsOwner(t *testing.T) {
	const known = "ORDERS/i1 is listed as UP."
	for _, row := range []struct {
		name    string
		heard   bool
		silent  time.Duration
		peers   httpd.Peers
		unheard int64
		says    string // the end of the summary
	}{
		{name: "of which nothing was heard", silent: 10 * time.Second, says: "It belongs to datacenter dc2, of which nothing was heard yet."},
		{name: "heard lately", heard: true, silent: 10 * time.Second, says: "at 2000-01-01 00:02:00 UTC. It belongs to datacenter dc2, last heard 10s ago."},
		{name: "its link is cut", heard: true, silent: 41 * time.Second, peers: &peers{status: cutPolicy("keep")}, unheard: 41_000,
			says: "It belongs to datacenter dc2, last heard 41s ago: while the link is cut its lease is kept (replication.on-cut: keep)."},
		{name: "kept beyond its time", heard: true, silent: time.Hour, peers: &peers{status: cutPolicy("keep")}, unheard: time.Hour.Milliseconds(),
			says: "at 2000-01-01 00:02:00 UTC. It belongs to datacenter dc2, last heard 1h ago: while the link is cut its lease is kept (replication.on-cut: keep)."},
		{name: "kept for a time", heard: true, silent: 2 * time.Minute, peers: &peers{status: cutPolicy("keep for 2m0s")}, unheard: 120_000,
			says: "while the link is cut its lease is kept (replication.on-cut: keep for 2m0s)."},
		{name: "kept for a time that has passed", heard: true, silent: 3 * time.Minute, peers: &peers{status: cutPolicy("keep for 2m0s")}, unheard: 180_000,
			says: "last heard 3m ago: the link is cut, and its lease ends all the same (replication.on-cut: keep for 2m0s). It goes with one of the next eviction rounds, each of which takes a part of the registry."},
		{name: "not kept", heard: true, silent: 41 * time.Second, peers: &peers{status: cutPolicy("expire")}, unheard: 41_000,
			says: "last heard 41s ago: the link is cut, and its lease ends all the same (replication.on-cut: expire)."},
		{name: "of what is a peer no more", heard: true, silent: 41 * time.Second, peers: &peers{status: `{"peers":[]}`}, unheard: 41_000,
			says: "It belongs to datacenter dc2, last heard 41s ago: the link is cut."},
		{name: "of a state that cannot be read", heard: true, silent: 41 * time.Second, peers: &peers{status: `[`}, unheard: 41_000,
			says: "last heard 41s ago: the link is cut."},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newBubbled(t, httpd.Config{Peers: row.peers})
				n.remote(t, row.heard)
				time.Sleep(row.silent) // virtual
				e := n.explain(t, "i1")
				expect.That(t, strings.HasPrefix(e.Summary, known) && strings.HasSuffix(e.Summary, row.says), "it says %s\nwant the end %s", e.Summary, row.says)
				var shown []struct {
					Datacenter string
					Unheard    int64 `json:"unheard_ms"`
				}
				got := n.get(t, "/v1/rollcall/apps")
				err := json.Unmarshal([]byte(got.body), &shown)
				expect.That(t, err == nil && len(shown) == 1 && shown[0].Datacenter == "dc2" && shown[0].Unheard == row.unheard,
					"listed: %v, %s; want dc2, unheard for %d ms", err, got.body, row.unheard)
				page := n.get(t, "/").body
				expect.That(t, strings.Contains(page, `title="belongs to datacenter dc2">dc2<`), "the dashboard does not say whose it is")
			})
		})
	}
}

func TestAnOwnInstanceIsShownWithoutAnOwner(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newBubbled(t, httpd.Config{Datacenter: "dc1"})
		i := newInstance("ORDERS", "i1")
		i.Metadata = []registry.Pair{{Key: "zone", Value: "a"}}
		n.Perform(t, registry.Register{Instance: i})
		got := n.get(t, "/v1/rollcall/apps").body
		expect.That(t, !strings.Contains(got, "datacenter") && !strings.Contains(got, "unheard") && strings.Contains(got, `"metadata":{"zone":"a"}`),
			"listed: %s", got)
		e := n.explain(t, "i1")
		expect.That(t, !strings.Contains(e.Summary, "datacenter"), "it says %s", e.Summary)
		page := n.get(t, "/").body
		expect.That(t, !strings.Contains(page, "belongs to") && strings.Contains(page, "in <b>dc1</b>"),
			"the dashboard names an owner, or not the node's datacenter")
	})
}

func TestTheDashboardShowsReplication(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newBubbled(t, httpd.Config{Peers: &peers{status: `{"sender":"n2","peers":[
			{"name":"10.0.0.2:8761","kind":"node","state":"ok","last_success":946684800000},
			{"name":"<dc2>","kind":"datacenter","state":"failing","reason":"<b>refused</b>","lag_changes":5000,"lag_ms":90500,
			 "incoming":{"instances":20,"heard_ms":41000,"cut":true,"on_cut":"keep for 1h0m0s","kept":7}},
			{"name":"old","kind":"eureka","state":"paused","incoming":{"instances":0,"on_cut":"keep"}}]}`}})
		page := n.get(t, "/").body
		for _, want := range []string{
			"<h2>Replication <small>n2 sends</small>", "10.0.0.2:8761", `peer-ok">ok<`, "2000-01-01 00:00:00 UTC",
			"&lt;dc2&gt;", `peer-failing">failing<`, "&lt;b&gt;refused&lt;/b&gt;", ">5000<", ">1m31s<", "20 instances, heard 41s ago", "7 kept although their time has passed", "on cut: keep for 1h0m0s",
			`peer-paused">paused<`, "0 instances, never heard",
		} {
			expect.That(t, strings.Contains(page, want), "the page lacks %q", want)
		}
		expect.That(t, !strings.Contains(page, "<dc2>") && !strings.Contains(page, "<b>refused"), "the page shows what a peer says as it is")
	})
	bubble(t, func(t *testing.T) {
		page := newBubbled(t, httpd.Config{}).get(t, "/").body
		expect.That(t, !strings.Contains(page, "Replication"), "the page of a node without peers tells of replication")
	})
}
