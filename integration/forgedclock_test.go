package integration

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/wire"
)

// TestOneMessageMakesNoNodeDeafToAnother posts, to one node without consensus, messages in the name of
// another whose clocks are far ahead. Who may speak in that name nobody can tell yet; but the node that is
// meant must be heard as before, by clients of the first, at once and after a restart.
func TestOneMessageMakesNoNodeDeafToAnother(t *testing.T) {
	t.Parallel()
	const lease = 10
	c := StartCluster(t, Config{AP: true, Nodes: 2})
	attacked, named := c.Nodes[0], c.Nodes[1]
	h := startHerdOf(t, "HERD", 2, lease, []*Node{named})
	c.mustListEverywhere(t, h.ids()...)

	var state wire.State
	given := named.Get("/v1/rollcall/replication/state?datacenter=" + named.datacenter(t)).Body
	need.OKf(t, wire.ReadFrame(bytes.NewReader(given), &state), "the state of %s", named.Name)
	const years = 9 * 365 * 24 * 60 * 60 * 1000
	for _, forged := range []struct {
		clock  int64
		answer int
	}{{math.MaxInt64, 400}, {years, 200}} {
		message := wire.Message{Head: wire.Head{
			Datacenter: state.Datacenter, Node: named.Name, Sender: state.Sender, Incarnation: math.MaxUint64, Clock: forged.clock,
		}}
		answer := attacked.Do(Request{Method: "POST", Path: messagePath, ContentType: "application/octet-stream", Body: wire.Encode(&message)})
		expect.That(t, answer.Status == forged.answer, "a clock of %d ms: %v, want %d", forged.clock, answer, forged.answer)
		if answer.Status == 400 && !strings.Contains(string(answer.Body), "no lease clock has run for longer") {
			t.Errorf("a clock of %d ms is refused with %q", forged.clock, answer.Body)
		}
	}
	mustRegister(t, named, Instance{App: "ORDERS", ID: "new"})
	all := append(h.ids(), "new")
	c.mustListEverywhere(t, all...)
	Pass(t, (lease+2)*time.Second) // in which a node that hears no heartbeats would end the leases
	mustListExactly(t, attacked, all)
	attacked.Stop(t)
	attacked.Start(t)
	attacked.WaitReady(t)
	c.mustListEverywhere(t, all...)
	h.stop()
	h.check(t)
}

// datacenter is the name of the node's datacenter.
func (n *Node) datacenter(t *testing.T) string {
	t.Helper()
	peers := need.Got(n.Peers())(t)
	return peers.Datacenter
}
