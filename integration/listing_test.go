package integration

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// replicated is how long a change may take until every node has it: more than ten times the usual second, because a
// node that was away is tried again after a pause that grows.
const replicated = 60 * time.Second

// mustConverge waits until all nodes list the same instances in the same status, and returns them.
func mustConverge(t *testing.T, nodes []*Node) map[string]string {
	t.Helper()
	var all map[string]string
	Eventually(t, replicated, "all nodes list the same", func() error {
		all = nil
		for _, n := range nodes {
			listing, err := n.Listing()
			if err != nil {
				return err
			}
			shown := statuses(listing)
			if all == nil {
				all = shown
			}
			if !maps.Equal(all, shown) {
				return fmt.Errorf("node %s lists %s, node %s %s", nodes[0].HTTP, summary(all), n.HTTP, summary(shown))
			}
		}
		return nil
	})
	return all
}

// statuses are the listed instances, by id.
func statuses(listing map[string]Listed) map[string]string {
	shown := make(map[string]string, len(listing))
	for id, instance := range listing {
		shown[id] = instance.Status + " " + instance.Overridden
	}
	return shown
}

func summary(shown map[string]string) string {
	if len(shown) > 20 {
		return fmt.Sprintf("%d instances", len(shown))
	}
	return fmt.Sprint(shown)
}

func wantListed(ids ...string) func(map[string]Listed) error {
	slices.Sort(ids)
	return func(listing map[string]Listed) error {
		got := slices.Sorted(maps.Keys(listing))
		return unless(slices.Equal(got, ids), "listed are %d: %.300s, want %d: %.300s", len(got), strings.Join(got, " "), len(ids), strings.Join(ids, " "))
	}
}

// awaitListed waits until a node's listing is as it should be.
func awaitListed(t *testing.T, n *Node, want func(map[string]Listed) error) {
	t.Helper()
	Eventually(t, replicated, "the listing of node "+n.HTTP, func() error {
		listing, err := n.Listing()
		if err != nil {
			return err
		}
		return want(listing)
	})
}

// mustAgreeWithPeers expects a node to find no difference between itself and its peers.
func mustAgreeWithPeers(t *testing.T, n *Node) {
	t.Helper()
	all, err := n.Peers()
	need.That(t, err == nil && len(all.Peers) != 0, "peers of node %s: %+v, %v", n.Name, all, err)
	for _, p := range all.Peers {
		Eventually(t, replicated, "node "+n.Name+" and "+p.Name+" are equal", func() error {
			diff, err := n.DiffWith(p.Name)
			if err == nil && diff.Apps+diff.Missing+diff.Extra != 0 {
				err = fmt.Errorf("they differ: %+v", diff)
			}
			return err
		})
	}
}

// index is the version of the node's registry.
func index(t *testing.T, n *Node) string {
	t.Helper()
	response := untilNotRefused(func() Response { return n.Get("/eureka/apps") })
	need.That(t, response.Status == http.StatusOK, "node %s: %v", n.HTTP, response)
	return response.Header.Get("X-Rollcall-Index")
}
