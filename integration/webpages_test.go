package integration

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// browse sends what a browser sends for a page: the page decides the method, the body and, by its own name, the Host.
func browse(t *testing.T, n *Node, method, path, host, contentType string, body []byte, headers map[string]string) (int, string) {
	t.Helper()
	req := need.Got(http.NewRequest(method, n.URL()+path, bytes.NewReader(body)))(t)
	if host != "" {
		req.Host = host
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	resp := need.Got(transport.RoundTrip(req))(t)
	defer resp.Body.Close()
	return resp.StatusCode, string(need.Got(io.ReadAll(resp.Body))(t))
}

func TestWebPagesOfOtherSitesNeitherWriteNorRead(t *testing.T) {
	t.Parallel()
	for _, ap := range []bool{false, true} {
		t.Run(fmt.Sprintf("ap %v", ap), func(t *testing.T) {
			t.Parallel()
			n := StartCluster(t, Config{Nodes: 1, AP: ap}).Nodes[0]
			mustRegister(t, n, Instance{App: "orders", ID: "victim"})
			evil := map[string]string{"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}
			cancel := `{"replicationList":[{"appName":"ORDERS","id":"victim","action":"Cancel"}]}`
			for _, attack := range []struct{ name, method, path, body string }{
				{"a registration", "POST", "/eureka/apps/orders", string(Instance{App: "orders", ID: "bad"}.document())},
				{"a batch that cancels", "POST", "/eureka/peerreplication/batch", cancel},
				{"self-preservation", "POST", "/v1/rollcall/self-preservation/hold?for=168h&author=root", ""},
				{"a session", "POST", "/v1/rollcall/sessions", "{}"},
				{"replication", "POST", "/v1/rollcall/replication", "{}"},
			} {
				status, answer := browse(t, n, attack.method, attack.path, "", "text/plain", []byte(attack.body), evil)
				expect.That(t, status == http.StatusForbidden && strings.Contains(answer, "another site"),
					"%s by a page of another site: %d %q, want 403 in words", attack.name, status, answer)
			}
			for _, attack := range []struct{ method, path string }{
				{"DELETE", "/eureka/apps/ORDERS/victim"}, {"GET", "/v1/kv/secret?raw"}, {"DELETE", "/v1/rollcall/members/n1"}, {"PUT", path("orders", "victim")},
			} {
				status, answer := browse(t, n, attack.method, attack.path, "rebound.evil.example", "", nil, nil)
				expect.That(t, status == http.StatusMisdirectedRequest && strings.Contains(answer, "http.hosts"),
					"%s %s by a page whose name was rebound: %d %q, want 421 that names http.hosts", attack.method, attack.path, status, answer)
			}
			expect.OKf(t, n.Get(path("orders", "victim")).is(200), "the victim after the attacks")
			expect.OKf(t, n.Get(path("orders", "bad")).is(404), "the attacker's instance")
			own := map[string]string{"Origin": n.URL(), "Sec-Fetch-Site": "same-origin"}
			status, answer := browse(t, n, "DELETE", path("orders", "victim"), "", "", nil, own)
			expect.That(t, status == 200, "a write by the node's own page: %d %q", status, answer)
		})
	}
}
