package integration

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// messageFrom is a message of a cluster of datacenter dc2, with an instance that was renewed just now. Its lease is
// short: for one duration after a link began, leases that have ended are taken.
func messageFrom(sender string, clock int64, id string) []byte {
	return fmt.Appendf(nil, `{"version":1,"datacenter":"dc2","node":"x1","sender":%q,"incarnation":7,"clock":%d,"items":[
		{"do":"register","app":"FAR","id":%[3]q,"life":1,"instance":{"instanceId":%[3]q,"hostName":"x","ipAddr":"10.0.0.9","status":"UP",
		"port":{"number":80,"enabled":true},"dataCenter":{"name":"MyOwn"},"duration":1,"lastDirty":1}}]}`, sender, clock, id)
}

// verdict is the answer to a message of one item.
type verdict struct {
	Late    int64
	Results []struct{ Status int }
}

// tell posts a message of another server.
func (n *Node) tell(message []byte) (verdict, error) {
	v, err := decoded[verdict](n, "/v1/rollcall/replication", n.Do(Request{Method: "POST", Path: "/v1/rollcall/replication", ContentType: "application/json", Body: message}))
	if err == nil && len(v.Results) != 1 {
		err = fmt.Errorf("%d results, want one", len(v.Results))
	}
	return v, err
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
		if row := strings.Fields(shown); len(row) < 4 || row[0] != "dc2" || !strings.HasPrefix(row[3], "9h59m") {
			t.Errorf("peers shows of the sender %q, want that it is of dc2 and ten hours late", shown)
		}
		// With consensus all nodes forget, without each for itself.
		at := other
		if ap {
			at = deaf
			mustForgetNobody(t, other, sender)
		}
		mustForgetNobody(t, at, "x-78")
		if said := string(rollcall(t, "peers", "forget", sender, "--addr", at.URL(), "--author", "ann")); said != "forgotten  "+sender+"\n" {
			t.Errorf("forget said %q", said)
		}
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
	if err == nil || !strings.Contains(string(out), fmt.Sprintf("forget sender %q: no such sender", sender)) {
		t.Errorf("forget of a sender that %s did not hear: %v, %q", n.Name, err, out)
	}
}
