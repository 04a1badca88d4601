package compare

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// tells starts nodes that answer with what each is given about its leader; "" answers 503.
func tells(t *testing.T, answers ...string) []Node {
	t.Helper()
	var nodes []Node
	for i, answer := range answers {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if answer == "" || r.URL.Path != "/v1/rollcall/status" {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			fmt.Fprint(w, answer)
		}))
		t.Cleanup(s.Close)
		nodes = append(nodes, Node{Name: fmt.Sprintf("node%d", i+1), Datacenter: "dc1", HTTP: s.Listener.Addr().String()})
	}
	return nodes
}

func TestTheLeaderIsThatOfTheNewestTerm(t *testing.T) {
	nodes := tells(t,
		`{"leader": "node1", "term": 3, "quorum": true}`,
		`{"leader": "node3", "term": 4, "quorum": true}`,
		``,
	)
	if got, err := leaderOf(nodes)(t.Context()); got != 2 || err != nil {
		t.Errorf("leader is %d, %v, want 2", got, err)
	}
}

func TestTheLeaderOfAnotherDatacenterDoesNotCount(t *testing.T) {
	nodes := tells(t,
		`{"leader": "node1", "term": 3, "quorum": true}`,
		`{"leader": "node2", "term": 4, "quorum": true}`,
	)
	nodes[1].Datacenter = "dc2"
	if got, err := leaderOf(nodes)(t.Context()); got != 0 || err != nil {
		t.Errorf("leader is %d, %v, want 0", got, err)
	}
}

func TestAnElectionIsAwaited(t *testing.T) {
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) < 3 {
			fmt.Fprint(w, `{"leader": "", "term": 5, "quorum": false}`)
			return
		}
		fmt.Fprint(w, `{"leader": "node1", "term": 6, "quorum": true}`)
	}))
	t.Cleanup(s.Close)
	nodes := []Node{{Name: "node1", Datacenter: "dc1", HTTP: s.Listener.Addr().String()}}
	if got, err := leaderOf(nodes)(t.Context()); got != 0 || err != nil {
		t.Errorf("leader is %d, %v, want 0", got, err)
	}
}

func TestNoLeaderIsAnError(t *testing.T) {
	nodes := tells(t, `{"leader": "node1", "term": 3, "quorum": false}`, ``)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if got, err := leaderOf(nodes)(ctx); err == nil || !strings.Contains(err.Error(), "find the leader") {
		t.Errorf("leader is %d, %v, want an error", got, err)
	}
}
