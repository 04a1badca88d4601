package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// fill sends requests through all nodes in turn until every node refuses one because of a limit, in words that name
// it, and returns how many were taken. A node looks at its own copy, which may be a moment behind.
func fill(t *testing.T, c *Cluster, limit string, method string, request func(i int) (path, body string)) (taken int) {
	t.Helper()
	refusing := 0
	for i := 0; refusing < len(c.Nodes); i++ {
		path, body := request(i)
		switch status, text := browse(t, c.Nodes[i%len(c.Nodes)], method, path, "", "", []byte(body), nil); {
		case status == http.StatusOK && i < 1000:
			taken, refusing = taken+1, 0
		case status == http.StatusInsufficientStorage && strings.Contains(text, limit):
			refusing++
		default:
			t.Fatalf("%s %s, request %d: got %d %q, want 507 and %q in the end", method, path, i, status, text, limit)
		}
	}
	return taken
}

// TestWhatIsKeptIsBoundedAndWhatIsThereGoesOn: sessions without a TTL, nodes of the catalog and keys fill a cluster
// up to their limits. All nodes refuse more in words, take everything that adds nothing, and have room again when
// something was deleted.
func TestWhatIsKeptIsBoundedAndWhatIsThereGoesOn(t *testing.T) {
	t.Parallel()
	cfg := steadfast(Config{})
	maps.Copy(cfg.Settings, map[string]string{"limits.state-bytes": "300000", "limits.sessions": "20", "limits.nodes": "10"})
	c := StartCluster(t, cfg)
	first := c.Nodes[0]
	mustRegister(t, first, Instance{App: "ORDERS", ID: "orders-1"})
	status, text := browse(t, first, "PUT", "/v1/session/create", "", "", []byte("{}"), nil)
	var session struct{ ID string }
	err := json.Unmarshal([]byte(text), &session)
	need.That(t, err == nil && status == http.StatusOK, "session: got %d %q", status, text)
	lock := "/v1/rollcall/locks/l?session=" + session.ID
	if status, text := browse(t, first, "PUT", lock, "", "", nil, nil); status != http.StatusOK {
		t.Fatalf("lock: got %d %q", status, text)
	}

	if n := fill(t, c, "limits.sessions is 20", "PUT", func(int) (string, string) { return "/v1/session/create", "{}" }); n < 19 || n > 19+len(c.Nodes) {
		t.Errorf("%d sessions were taken beside the first one, want 19", n)
	}
	node := func(i int) (path, body string) {
		return "/v1/catalog/register", fmt.Sprintf(`{"Node":"n%d","Address":"10.0.0.1"}`, i)
	}
	if n := fill(t, c, "limits.nodes is 10", "PUT", node); n < 10 || n > 10+len(c.Nodes) {
		t.Errorf("%d nodes were taken, want 10", n)
	}
	value := strings.Repeat("v", 20<<10)
	key := func(i int) (path, body string) { return fmt.Sprintf("/v1/kv/k%d", i), value }
	keys := fill(t, c, "limits.state-bytes is 300000", "PUT", key)

	for _, n := range c.Nodes {
		for _, row := range []struct {
			name, method, path, body string
			want                     int
		}{
			{"a heartbeat", "PUT", "/eureka/apps/ORDERS/orders-1", "", http.StatusOK},
			{"the renewal of a session", "PUT", "/v1/session/renew/" + session.ID, "", http.StatusOK},
			{"a lock that is held", "PUT", lock, "", http.StatusOK},
			{"a node that is there", "PUT", "/v1/catalog/register", `{"Node":"n0","Address":"10.0.0.1"}`, http.StatusOK},
			{"a read", "GET", "/v1/kv/k0?raw", "", http.StatusOK},
			{"another lock", "PUT", "/v1/rollcall/locks/m?session=" + session.ID, "", http.StatusInsufficientStorage},
			{"a larger node", "PUT", "/v1/catalog/register", `{"Node":"n0","Address":"10.0.0.1","NodeMeta":{"k":"v"}}`, http.StatusInsufficientStorage},
			{"a transaction that sets", "PUT", "/v1/txn", `[{"KV":{"Verb":"set","Key":"t","Value":"eA=="}}]`, http.StatusInsufficientStorage},
		} {
			status, text := browse(t, n, row.method, row.path, "", "", []byte(row.body), nil)
			expect.That(t, status == row.want, "%s at %s: got %d %.200q, want %d", row.name, n.Name, status, text, row.want)
		}
	}

	for i := range min(keys, 5) {
		status, text := browse(t, c.Nodes[i%len(c.Nodes)], "DELETE", fmt.Sprintf("/v1/kv/k%d", i), "", "", nil, nil)
		need.That(t, status == http.StatusOK, "delete of a key: got %d %q", status, text)
	}
	for _, n := range c.Nodes {
		Eventually(t, ReadyLimit, "room for a key at "+n.Name, func() error {
			if status, text := browse(t, n, "PUT", "/v1/kv/more", "", "", []byte("v"), nil); status != http.StatusOK {
				return fmt.Errorf("%d %q", status, text)
			}
			return nil
		})
	}
}
