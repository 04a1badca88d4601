package integration

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/replication/wire"
)

// messageFrom is a message of a cluster of datacenter dc2, with an instance that was renewed just now. Its lease is
// short: for one duration after a link began, leases that have ended are taken.
func messageFrom(sender string, clock int64, id string) []byte {
	i := &registry.Instance{
		InstanceID: id, HostName: "x", App: "FAR", IPAddr: "10.0.0.9", Status: registry.Up, Port: registry.Port{Number: 80, Enabled: true},
		DataCenter: registry.DataCenter{Name: registry.MyOwn}, Duration: 1, LastDirty: 1,
	}
	return wire.Encode(&wire.Message{
		Head:  wire.Head{Datacenter: "dc2", Node: "x1", Sender: sender, Incarnation: 7, Clock: clock},
		Items: []wire.Item{wire.ItemOf(registry.Replica{Instance: i, Life: 1})},
	})
}

// tell posts a message of another server, of one item.
func (n *Node) tell(message []byte) (a wire.Answer, err error) {
	answer := n.Do(Request{Method: "POST", Path: messagePath, ContentType: "application/octet-stream", Body: message})
	if answer.Status != 200 {
		return a, fmt.Errorf("got %v", answer)
	}
	if err = wire.Decode(answer.Body, &a); err == nil && len(a.Results) != 1 {
		err = fmt.Errorf("%d results, want one", len(a.Results))
	}
	return a, err
}

// TestASenderThatIsForgottenIsHeardAgain speaks as a server whose clock went back by ten hours and which does not,
// as one of Rollcall does, begin another incarnation. Nothing that it says counts, until an operator has it forgotten.
func TestASenderThatIsForgottenIsHeardAgain(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ap bool) {
		cfg := steadfast(fewer(ap, 2))
		cfg.Settings["replication.datacenters"] = "dc2=http://" + FreeAddr(t)
		c := StartCluster(t, cfg)
		deaf, other := c.Nodes[0], c.Nodes[1]
		const sender, hours = "x-77", 3_600_000
		if v, err := deaf.tell(messageFrom(sender, 10*hours, "before")); err != nil || v.Late != 0 || v.Results[0].Status != 200 {
			t.Fatalf("the first message: %+v, %v", v, err)
		}
		var clock int64
		say := func(what string, status int) (id string) {
			t.Helper()
			Eventually(t, replicated, fmt.Sprintf("a message with what is %s has the answer %d", what, status), func() error {
				clock++
				id = fmt.Sprint(what, clock)
				v, err := deaf.tell(messageFrom(sender, clock, id))
				if err == nil && (v.Results[0].Status != status || (v.Late > 9*hours) != (status == 410)) {
					err = fmt.Errorf("got %+v", v)
				}
				return err
			})
			return id
		}
		say("silenced", 410)
		_, shown, _ := strings.Cut(string(rollcall(t, "peers", "--addr", deaf.URL())), "\n"+sender)
		row := strings.Fields(shown)
		expect.That(t, len(row) >= 4 && row[0] == "dc2" && strings.HasPrefix(row[3], "9h59m"),
			"peers shows of the sender %q, want that it is of dc2 and ten hours late", shown)
		// With consensus all nodes forget, without each for itself.
		at := other
		if ap {
			at = deaf
			mustForgetNobody(t, other, sender)
		}
		mustForgetNobody(t, at, "x-78")
		expect.Equal(t, string(rollcall(t, "peers", "forget", sender, "--addr", at.URL(), "--author", "ann")), "forgotten  "+sender+"\n", "forget said")
		// The lease is so short that a busy machine may read of it too late.
		Eventually(t, ReadyLimit, "what it says is there", func() error {
			id := say("heard", 200)
			if answer := deaf.Get(path("FAR", id)); answer.Status != 200 {
				return fmt.Errorf("%s at %s: %v", id, deaf.Name, answer)
			}
			return nil
		})
	})
}

// mustForgetNobody has a sender forgotten of which the node heard nothing.
func mustForgetNobody(t *testing.T, n *Node, sender string) {
	t.Helper()
	out, err := exec.Command(Binary(t), "peers", "forget", sender, "--addr", n.URL()).CombinedOutput()
	expect.That(t, err != nil && strings.Contains(string(out), fmt.Sprintf("forget sender %q: no such sender", sender)),
		"forget of a sender that %s did not hear: %v, %q", n.Name, err, out)
}
