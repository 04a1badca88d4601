package integration

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/wire"
)

// TestMadeUpDatacentersAreRefusedInWords has somebody who speaks as a node of the datacenter tell of links that
// there are not. Nothing is kept of them, and what the node is told of its own peer is noted as before.
func TestMadeUpDatacentersAreRefusedInWords(t *testing.T) {
	t.Parallel()
	n := StartCluster(t, Config{AP: true, Nodes: 1, DC: "dc1", Settings: map[string]string{"replication.datacenters": "dc2=http://" + FreeAddr(t)}}).Nodes[0]
	heard := map[string]int64{"dc2": 1}
	for i := range 900 {
		heard[fmt.Sprintf("made-up-%d", i)] = 1
	}
	for clock := range int64(3) {
		m := wire.Message{Head: wire.Head{Datacenter: "dc1", Node: "n9", Sender: "n9", Clock: clock * 2000, Heard: heard}}
		answer := n.Do(Request{Method: "POST", Path: messagePath, ContentType: "application/octet-stream", Body: wire.Encode(&m)})
		expect.That(t, answer.Status == 200 && strings.Contains(string(answer.Body), "900 datacenters that are no peers of this node is not noted"),
			"made-up datacenters: %v, want an answer that says that they are not noted", answer)
	}
	peer, err := n.Peer("dc2")
	expect.That(t, err == nil && peer.Incoming != nil && !peer.Incoming.Cut, "the peer: %+v, %v, want that it was heard", peer, err)
	n.Stop(t) // and writes everything to its disk
	kept := need.Got(os.ReadFile(filepath.Join(n.Dir, "registry.db")))(t)
	expect.That(t, bytes.Contains(kept, []byte("dc2")) && !bytes.Contains(kept, []byte("made-up-")),
		"the node's disk must have the name of its peer, and none that was made up")
}
