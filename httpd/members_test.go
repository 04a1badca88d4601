package httpd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// members is an httpd.Members that answers every removal alike and remembers the names.
type members struct {
	err     error
	removed []string
}

// Remove implements httpd.Members.
func (m *members) Remove(_ context.Context, name string) error {
	m.removed = append(m.removed, name)
	return m.err
}

func TestANodeIsRemovedByItsName(t *testing.T) {
	for _, name := range []string{"n1", "rack-7_b", "a%2Fb"} {
		m := &members{}
		n := newNode(t, httpd.Config{Members: m}, nil)
		got := n.send(t, request("DELETE", "/v1/rollcall/members/"+name, "{}"))
		plain := strings.ReplaceAll(name, "%2F", "/")
		want := fmt.Sprintf("{\"removed\":%q}\n", plain)
		expect.That(t, got.status == 200 && got.body == want, "%s: got %d %s, want 200 %s", name, got.status, got.body, want)
		expect.That(t, len(m.removed) == 1 && m.removed[0] == plain, "%s: removed %q, want it once", name, m.removed)
	}
}

func TestARemovalThatFailsSaysWhetherAnythingWasDone(t *testing.T) {
	refused := fmt.Errorf("remove node \"n1\": %w: only n3 would be left", httpd.ErrMembership)
	for _, row := range []struct {
		name           string
		err            error
		status         int
		says           string
		outcome, retry string
	}{
		{name: "unknown node", err: fmt.Errorf("remove: %w", httpd.ErrUnknownMember), status: 404, says: `no node "n1"; GET /v1/rollcall/status lists`},
		{name: "refused", err: refused, status: 503, says: "only n3 would be left"},
		{name: "no leader", err: fmt.Errorf("remove: %w", registry.ErrNoLeader), status: 503, says: `node "n1" was not removed: no leader`, retry: "1"},
		{name: "shutting down", err: registry.ErrClosed, status: 503, says: "ask another one", retry: "1"},
		{name: "unknown outcome", err: registry.ErrUnknownOutcome, status: 504, says: "nobody knows", outcome: "unknown"},
		{name: "refused, or not: nobody knows", err: fmt.Errorf("%w: %w", refused, registry.ErrUnknownOutcome), status: 504, says: "nobody knows", outcome: "unknown"},
		{name: "too late", err: context.DeadlineExceeded, status: 504, says: "nobody knows", outcome: "unknown"},
	} {
		t.Run(row.name, func(t *testing.T) {
			n := newNode(t, httpd.Config{Members: &members{err: row.err}}, nil)
			got := n.send(t, request("DELETE", "/v1/rollcall/members/n1", ""))
			var doc struct{ Error string }
			if err := json.Unmarshal([]byte(got.body), &doc); err != nil || got.status != row.status || !strings.Contains(doc.Error, row.says) {
				t.Errorf("got %d %s, want %d and an error in JSON with %q", got.status, got.body, row.status, row.says)
			}
			expect.Equal(t, got.header.Get("X-Rollcall-Outcome"), row.outcome, "X-Rollcall-Outcome is")
			expect.Equal(t, got.header.Get("Retry-After"), row.retry, "Retry-After is")
		})
	}
}

func TestMembersAreOnlyRemovedByAWellFormedDelete(t *testing.T) {
	for _, row := range []struct {
		name, request string
		status        int
		allow         string
	}{
		{name: "read", request: request("GET", "/v1/rollcall/members/n1", ""), status: 405, allow: "DELETE"},
		{name: "put", request: request("PUT", "/v1/rollcall/members/n1", ""), status: 405, allow: "DELETE"},
		{name: "no name", request: request("DELETE", "/v1/rollcall/members/", ""), status: 404},
		{name: "dots", request: request("DELETE", "/v1/rollcall/members/%2e%2e", ""), status: 400},
		{name: "a name of 256 bytes", request: request("DELETE", "/v1/rollcall/members/"+strings.Repeat("n", 256), ""), status: 400},
		{name: "33 parameters", request: request("DELETE", "/v1/rollcall/members/n1?"+strings.Repeat("a=b&", 32)+"a=b", ""), status: 400},
		{name: "a large body", request: request("DELETE", "/v1/rollcall/members/n1", strings.Repeat("a", 65<<10)), status: 413},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := &members{}
			n := newNode(t, httpd.Config{Members: m}, nil)
			got := n.send(t, row.request)
			if got.status != row.status || got.header.Get("Allow") != row.allow || !strings.HasPrefix(got.body, `{"error":`) {
				t.Errorf("got %d, Allow %q, %s; want %d, Allow %q and an error in JSON", got.status, got.header.Get("Allow"), got.body, row.status, row.allow)
			}
			expect.That(t, len(m.removed) <= 0, "it removed %q", m.removed)
		})
	}
}

func TestANodeWithoutMembersSaysSo(t *testing.T) {
	n := newNode(t, httpd.Config{}, nil)
	got := n.send(t, request("DELETE", "/v1/rollcall/members/n1", ""))
	expect.That(t, got.status == 501 && strings.Contains(got.body, "mode cp"), "got %d %s, want 501 and what would be right", got.status, got.body)
}
