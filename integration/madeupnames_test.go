package integration

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// TestMadeUpDatacentersAreRefusedInWords has somebody who speaks as a node of the datacenter tell of links that
// there are not. Nothing is kept of them, and what the node is told of its own peer is noted as before.
func TestMadeUpDatacentersAreRefusedInWords(t *testing.T) {
	t.Parallel()
	n := StartCluster(t, Config{AP: true, Nodes: 1, DC: "dc1", Settings: map[string]string{"replication.datacenters": "dc2=http://" + FreeAddr(t)}}).Nodes[0]
	var told []string
	for i := range 900 {
		told = append(told, fmt.Sprintf(`"made-up-%d":1`, i))
	}
	for clock := range 3 {
		message := fmt.Sprintf(`{"version":1,"datacenter":"dc1","node":"n9","sender":"n9","clock":%d,"heard":{"dc2":1,%s},"items":[]}`, clock*2000, strings.Join(told, ","))
		answer := n.Do(Request{Method: "POST", Path: "/v1/rollcall/replication", ContentType: "application/json", Body: []byte(message)})
		if answer.Status != 200 || !strings.Contains(string(answer.Body), "900 datacenters that are no peers of this node is not noted") {
			t.Errorf("made-up datacenters: %v, want an answer that says that they are not noted", answer)
		}
	}
	peer, err := n.Peer("dc2")
	if err != nil || peer.Incoming == nil || peer.Incoming.Cut {
		t.Errorf("the peer: %+v, %v, want that it was heard", peer, err)
	}
	n.Stop(t) // and writes everything to its disk
	kept := need.Got(os.ReadFile(filepath.Join(n.Dir, "registry.db")))(t)
	if !bytes.Contains(kept, []byte("dc2")) || bytes.Contains(kept, []byte("made-up-")) {
		t.Error("the node's disk must have the name of its peer, and none that was made up")
	}
}
