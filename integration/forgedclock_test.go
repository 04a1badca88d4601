package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/need"
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

	var head struct {
		Sender      string
		Boot        uint64
		Incarnation uint64
	}
	first, _ := bufio.NewReader(bytes.NewReader(named.Get("/v1/rollcall/replication/state?datacenter=" + named.datacenter(t)).Body)).ReadBytes('\n')
	if err := json.Unmarshal(first, &head); err != nil || head.Sender == "" {
		t.Fatalf("the state of %s begins %q: %v", named.Name, first, err)
	}
	const years = 9 * 365 * 24 * 60 * 60 * 1000
	for _, forged := range []struct {
		clock  uint64
		answer int
	}{{math.MaxInt64, 400}, {years, 200}} {
		body := fmt.Sprintf(`{"version":1,"datacenter":%q,"node":%q,"sender":%q,"boot":%d,"incarnation":%d,"clock":%d,"items":[]}`,
			named.datacenter(t), named.Name, head.Sender, uint64(math.MaxUint64), uint64(math.MaxUint64), forged.clock)
		answer := attacked.Do(Request{Method: "POST", Path: "/v1/rollcall/replication", ContentType: "application/json", Body: []byte(body)})
		if answer.Status != forged.answer {
			t.Errorf("a clock of %d ms: %v, want %d", forged.clock, answer, forged.answer)
		}
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
