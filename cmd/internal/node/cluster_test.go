package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/own"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store/backup"
	"github.com/seed-20419f34/rollcall/store/consensus/membership"
)

// removing is a store whose removals all return one error.
type removing struct{ err error }

func (r removing) RemoveMember(context.Context, string) error { return r.err }

func (r removing) Transfer(_ context.Context, name string) (string, error) {
	return name, r.err
}

// Verify returns a comparison where n2 differs, and n3 has no digest.
func (r removing) Verify(context.Context) membership.Comparison {
	one, other := new(membership.Digest), new(membership.Digest)
	one.Index, one.Parts = 7, []uint64{1}
	other.Index, other.Parts = 7, []uint64{2}
	return membership.Comparison{Index: 7, Age: time.Second, Verdict: "differ", Nodes: []membership.ComparedNode{
		{Name: "n1", Digest: one}, {Name: "n2", Digest: other, Differs: []string{"keys"}}, {Name: "n3"},
	}}
}

func TestVerificationIsAComparisonInTheDocumentsOfTheAPI(t *testing.T) {
	got := members{removing{}}.Verify(t.Context())
	need.That(t, got.Verdict == "differ" && got.Index == 7 && got.Age == 1000 && len(got.Nodes) == 3, "got %+v", got)
	n2, n3 := got.Nodes[1], got.Nodes[2]
	expect.That(t, n2.Index == 7 && n2.Digest != got.Nodes[0].Digest && slices.Equal(n2.Differs, []string{"keys"}), "n2: got %+v", n2)
	expect.That(t, n3.Index == 0 && n3.Digest == "" && strings.Contains(n3.Sentence, "no digest"), "n3: got %+v", n3)
}

func TestMembersReturnErrorsInTheTermsOfTheAPI(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error // of the store
		want error // as httpd knows it
	}{
		{name: "unknown node", err: membership.ErrUnknownMember, want: own.ErrUnknownMember},
		{name: "refused", err: membership.ErrMembership, want: own.ErrMembership},
		{name: "no leader", err: registry.ErrNoLeader, want: registry.ErrNoLeader},
		{name: "unknown outcome", err: registry.ErrUnknownOutcome, want: registry.ErrUnknownOutcome},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cause := fmt.Errorf("remove node \"n1\": %w: a reason", tc.err)
			got := members{removing{cause}}.Remove(t.Context(), "n1")
			expect.That(t, errors.Is(got, tc.want) && got.Error() == cause.Error(), "got %v, want %v in the words %q", got, tc.want, cause)
			_, got = members{removing{cause}}.Transfer(t.Context(), "n1")
			expect.That(t, errors.Is(got, tc.want) && got.Error() == cause.Error(), "transfer: got %v, want %v in the words %q", got, tc.want, cause)
		})
	}
	expect.OKf(t, (members{removing{}}).Remove(t.Context(), "n1"), "a removal that succeeded")
}

func TestNodeStatusHasTheIndexOfTheNodesResponses(t *testing.T) {
	n := membership.NodeStatus{
		ID: "n1", HTTP: "a", Cluster: "b", Role: "follower", Applied: 9, Index: 7, Reachable: true, Voter: true, Version: "v1", Zone: "z",
		Contact: 1500 * time.Microsecond, Lag: 3, DiskFree: 8,
	}
	want := api.NodeStatus{
		ID: "n1", HTTP: "a", Cluster: "b", Role: "follower", Applied: 9, Index: "c0ffee-7", Voter: true, Version: "v1", Zone: "z", Contact: 1, Lag: 3, DiskFree: 8,
	}
	expect.Equal(t, nodeStatus("c0ffee", n), want, "got")
	got := nodeStatus("c0ffee", membership.NodeStatus{ID: "n1", Role: "unreachable"})
	expect.That(t, got.Index == "", "an unreachable node is at %q, want no index", got.Index)
}

// nodesWith returns nodes with votes in these roles, named n1, n2 and so on.
func nodesWith(roles ...string) (nodes []api.NodeStatus) {
	for i, role := range roles {
		nodes = append(nodes, api.NodeStatus{ID: "n" + string(rune('1'+i)), Role: role, Voter: role != "learner" && role != "serving"})
	}
	return nodes
}

func TestStatusSaysInASentenceHowTheClusterIs(t *testing.T) {
	behind := nodesWith("leader", "follower", "follower")
	behind[2].Lag = 10_001
	silentLearner := append(nodesWith("leader", "follower", "follower"), api.NodeStatus{ID: "n4", Role: "unreachable"})
	for name, tc := range map[string]struct {
		status    api.Status
		condition string
		summary   string
	}{
		"three well":         {api.Status{Leader: "n1", Nodes: nodesWith("leader", "follower", "follower")}, well, "Healthy: one node may fail."},
		"five well":          {api.Status{Leader: "n1", Nodes: nodesWith("leader", "follower", "follower", "follower", "follower")}, well, "Healthy: two nodes may fail."},
		"one alone":          {api.Status{Leader: "n1", Nodes: nodesWith("leader")}, well, "Healthy: no node may fail."},
		"a learner":          {api.Status{Leader: "n1", Nodes: nodesWith("leader", "follower", "learner")}, well, "Healthy: no node may fail."},
		"a newcomer":         {api.Status{Leader: "n1", Nodes: nodesWith("learner")}, degraded, "This node does not know the members of its cluster yet: ask again in a second."},
		"one of three down":  {api.Status{Leader: "n1", Nodes: nodesWith("leader", "follower", "unreachable")}, degraded, "Degraded: n3 cannot be reached; no node may fail."},
		"one of five down":   {api.Status{Leader: "n1", Nodes: nodesWith("leader", "follower", "follower", "follower", "unreachable")}, degraded, "Degraded: n5 cannot be reached; one node may fail."},
		"one behind":         {api.Status{Leader: "n1", Nodes: behind}, degraded, "Degraded: n3 is 10001 entries behind; no node may fail."},
		"two of three down":  {api.Status{Leader: "n1", Nodes: nodesWith("leader", "unreachable", "unreachable")}, degraded, "Degraded: n2 cannot be reached, n3 cannot be reached; a majority of the voters is not there."},
		"a learner down":     {api.Status{Leader: "n1", Nodes: silentLearner}, degraded, "Degraded: n4 cannot be reached; one node may fail."},
		"no leader":          {api.Status{Nodes: nodesWith("candidate", "unreachable", "unreachable")}, leaderless, "No leader: nothing can be written, and reads are stale, until a majority of the voters is in touch. Of these, n1 hears no leader, n2 cannot be reached, n3 cannot be reached."},
		"a leader unheard":   {api.Status{Nodes: nodesWith("follower", "leader", "follower")}, leaderless, "This node hears no leader yet, and n2 says that it leads: ask again in a second."},
		"ap, all well":       {api.Status{Mode: "ap", Nodes: nodesWith("serving", "serving")}, well, "Healthy: one node may fail."},
		"ap, one is lacking": {api.Status{Mode: "ap", Nodes: nodesWith("serving", "unreachable")}, degraded, "Degraded: n2 cannot be reached."},
	} {
		describe(&tc.status)
		expect.That(t, tc.status.Condition == tc.condition && tc.status.Summary == tc.summary, "%s: got %s, %q, want %s, %q", name, tc.status.Condition, tc.status.Summary, tc.condition, tc.summary)
	}
}

func TestStatusWarnsOfAZoneThatHasAMajority(t *testing.T) {
	for zones, want := range map[string]bool{"a a b": true, "a b c": false, "a a a": true, "- - -": false, "a - -": false, "a": false} {
		var nodes []api.NodeStatus
		for _, zone := range strings.Fields(zones) {
			nodes = append(nodes, api.NodeStatus{Voter: true, Zone: strings.Trim(zone, "-")})
		}
		s := api.Status{Leader: "n1", Nodes: nodes}
		describe(&s)
		expect.That(t, (s.Warning != "") == want, "zones %s: warned %q, want a warning: %v", zones, s.Warning, want)
	}
}

// A snapshot that brings more than the node may keep is refused before any of it goes into the log.
func TestRestoreBeyondTheLimitsIsRefused(t *testing.T) {
	for setting, change := range map[string]func(*config.Config){
		"limits.state-bytes":     func(c *config.Config) { c.Quota.StateBytes = 1 },
		"limits.instances-total": func(c *config.Config) { c.HTTPD.Limits.InstancesTotal = 1 },
		"has room for":           func(c *config.Config) { c.MinFree = 1 << 60 },
	} {
		t.Run(setting, func(t *testing.T) {
			full := serving(t, oneNode(t))
			responds(t, http.MethodPut, full+"/v1/kv/a", "value", http.StatusOK, "true")
			for _, id := range []string{"a1", "a2"} {
				responds(t, http.MethodPost, full+"/eureka/apps/A", instance(id), http.StatusNoContent, "")
			}
			saved := responds(t, http.MethodGet, full+"/v1/rollcall/snapshot", "", http.StatusOK, "ROLLBACK")
			small := oneNode(t)
			change(small)
			url := serving(t, small)
			responds(t, http.MethodPut, url+"/v1/rollcall/snapshot?another-cluster&reason=test", saved, http.StatusInsufficientStorage, setting)
			responds(t, http.MethodGet, url+"/v1/kv/a?stale", "", http.StatusNotFound, "")
		})
	}
}

func TestRestoreUpToTheLimitsIsAccepted(t *testing.T) {
	var h backup.Header
	h.Counts.Instances = 2
	expect.OK(t, restoreLimits{stateBytes: 5, instances: 2}.check(h, 5))
}

// A dry run says what a restore then does, in mode ap too: what was canceled since stays away, and there are no keys.
func TestDryRunWithoutConsensusSaysWhatARestoreDoes(t *testing.T) {
	c := oneNode(t)
	c.Mode = config.AP
	url := serving(t, c)
	responds(t, http.MethodPost, url+"/eureka/apps/A", instance("a1"), http.StatusNoContent, "")
	saved := responds(t, http.MethodGet, url+"/v1/rollcall/snapshot", "", http.StatusOK, "ROLLBACK")
	responds(t, http.MethodDelete, url+"/eureka/apps/A/a1", "", http.StatusOK, "")

	would := responds(t, http.MethodPut, url+"/v1/rollcall/snapshot?dry-run", saved, http.StatusOK, "")
	done := responds(t, http.MethodPut, url+"/v1/rollcall/snapshot?reason=test", saved, http.StatusOK, `"instances":0`)
	expect.That(t, strings.Contains(would, `"instances":0`), "the dry run says %s, and the restore %s", would, done)
	responds(t, http.MethodPut, url+"/v1/rollcall/snapshot?dry-run&keys-only", saved, http.StatusNotImplemented, "keys-only")
}

// The node removes its oldest files, and what it had written of one when it was killed. Files with other names stay.
// A directory that cannot be written to is reported once.
func TestBackupsKeepTheNewestOfTheNodesOwn(t *testing.T) {
	c := oneNode(t)
	c.Backup = config.BackupConfig{Dir: t.TempDir(), Interval: time.Hour, Keep: 2}
	others := []string{"rollcall-n2-20260101T000000Z.snap", "rollcall-n1-monday.snap", "notes.txt"}
	for _, name := range append(others, "rollcall-n1-20260101T000000Z.snap.123.tmp", "rollcall-n1-20260101T000000Z.snap", "rollcall-n1-20260102T000000Z.snap", "rollcall-n1-20260103T000000Z.snap") {
		need.OK(t, os.WriteFile(filepath.Join(c.Backup.Dir, name), []byte("x"), 0o600))
	}
	running(t, c)
	var names []string
	await(t, "the other files, the new one and the newest one before are left", func() bool {
		names = filesIn(t, c.Backup.Dir)
		return len(names) == len(others)+2 && slices.Contains(names, "rollcall-n1-20260103T000000Z.snap") && !strings.Contains(strings.Join(names, ""), ".tmp")
	})
	for _, other := range others {
		expect.That(t, slices.Contains(names, other), "%s is gone; there are %v", other, names)
	}
}

func filesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	for _, e := range need.Got(os.ReadDir(dir))(t) {
		names = append(names, e.Name())
	}
	return names
}

// The clock was ahead when a file was written. The schedule goes on by the current clock, and what it writes stays.
func TestBackupsGoOnAfterTheClockWentBack(t *testing.T) {
	c := oneNode(t)
	c.Backup = config.BackupConfig{Dir: t.TempDir(), Interval: time.Hour, Keep: 1}
	early := "rollcall-n1-" + time.Now().UTC().Add(24*365*time.Hour).Format(timeForm) + ".snap"
	need.OK(t, os.WriteFile(filepath.Join(c.Backup.Dir, early), []byte("x"), 0o600))
	running(t, c)
	await(t, "the schedule writes a snapshot, though the newest file is of next year", func() bool {
		return slices.ContainsFunc(filesIn(t, c.Backup.Dir), func(name string) bool { return name != early })
	})
}

func limited(t *testing.T, change func(*config.Quota)) (url string) {
	t.Helper()
	c := oneNode(t)
	change(&c.Quota)
	return serving(t, c)
}

func responds(t *testing.T, method, url, body string, want int, says string) (text string) {
	t.Helper()
	status, text := request(t, method, url, body)
	need.That(t, status == want && strings.Contains(text, says), "%s %s: %d %.200q, want %d with %q", method, url, status, text, want, says)
	return text
}

func TestLimitsRefuseSessionsUntilOneIsDestroyed(t *testing.T) {
	url := limited(t, func(l *config.Quota) { l.Sessions = 3 })
	var made struct{ ID string }
	for range 3 {
		need.OK(t, json.Unmarshal([]byte(responds(t, "PUT", url+"/v1/session/create", "{}", http.StatusOK, "")), &made))
	}
	responds(t, "PUT", url+"/v1/session/create", "{}", http.StatusInsufficientStorage, "limits.sessions is 3")
	responds(t, "POST", url+"/v1/rollcall/sessions", "{}", http.StatusInsufficientStorage, "limits.sessions is 3")
	responds(t, "PUT", url+"/v1/session/renew/"+made.ID, "", http.StatusOK, made.ID)
	responds(t, "PUT", url+"/v1/kv/k", "v", http.StatusOK, "true")
	responds(t, "PUT", url+"/v1/session/destroy/"+made.ID, "", http.StatusOK, "true")
	responds(t, "PUT", url+"/v1/session/create", "{}", http.StatusOK, "")
}

func TestLimitsRefuseKeysBeyondTheBytesOfTheStateUntilOneIsDeleted(t *testing.T) {
	url := limited(t, func(l *config.Quota) { l.StateBytes = 100 << 10 })
	value := strings.Repeat("x", 20<<10)
	for i := range 5 {
		responds(t, "PUT", fmt.Sprintf("%s/v1/kv/k%d", url, i), value, http.StatusOK, "true")
	}
	session := url + "/v1/session/create"
	responds(t, "PUT", url+"/v1/kv/more", value, http.StatusInsufficientStorage, "limits.state-bytes is 102400")
	responds(t, "PUT", url+"/v1/txn", `[{"KV":{"Verb":"set","Key":"more","Value":"eA=="}}]`, http.StatusInsufficientStorage, "limits.state-bytes")
	responds(t, "PUT", session, "{}", http.StatusInsufficientStorage, "limits.state-bytes")
	responds(t, "GET", url+"/v1/kv/k0?raw", "", http.StatusOK, value)
	responds(t, "DELETE", url+"/v1/kv/k0", "", http.StatusOK, "true")
	responds(t, "PUT", url+"/v1/kv/more", "v", http.StatusOK, "true")
	responds(t, "PUT", session, "{}", http.StatusOK, "ID")
}

func TestLimitsRefuseNewNodesOfTheCatalogAndAcceptThoseThere(t *testing.T) {
	url := limited(t, func(l *config.Quota) { l.Nodes = 2 })
	register := url + "/v1/catalog/register"
	node := func(name string) string { return fmt.Sprintf(`{"Node":%q,"Address":"10.0.0.1"}`, name) }
	for _, name := range []string{"a", "b"} {
		responds(t, "PUT", register, node(name), http.StatusOK, "true")
	}
	responds(t, "PUT", register, node("c"), http.StatusInsufficientStorage, "limits.nodes is 2")
	responds(t, "PUT", register, node("b"), http.StatusOK, "true")
	responds(t, "PUT", url+"/v1/catalog/deregister", `{"Node":"a"}`, http.StatusOK, "true")
	responds(t, "PUT", register, node("c"), http.StatusOK, "true")
}

func TestLimitsRefuseLocksAndNodesBeyondTheBytesOfTheStateAndAcceptThoseThere(t *testing.T) {
	url := limited(t, func(l *config.Quota) { l.StateBytes = 200 << 10 })
	var made [2]struct{ ID string }
	for i := range made {
		need.OK(t, json.Unmarshal([]byte(responds(t, "PUT", url+"/v1/session/create", "{}", http.StatusOK, "ID")), &made[i]))
	}
	holder, other := made[0].ID, made[1].ID
	lock := func(name, session string) string {
		return fmt.Sprintf("%s/v1/rollcall/locks/%s?session=%s", url, name, session)
	}
	node := func(name string, bytes int) string {
		return fmt.Sprintf(`{"Node":%q,"Address":"10.0.0.1","NodeMeta":{"k":%q}}`, name, strings.Repeat("x", bytes))
	}
	register, deregister := url+"/v1/catalog/register", url+"/v1/catalog/deregister"
	value := strings.Repeat("v", 4096)
	responds(t, "PUT", register, node("first", 100), http.StatusOK, "true")
	responds(t, "PUT", lock("first", holder), "", http.StatusOK, `"acquired":true`)
	for i := range 10 {
		responds(t, "PUT", lock(fmt.Sprint("l", i), holder), value, http.StatusOK, `"acquired":true`)
	}
	for i := range 40 {
		responds(t, "PUT", register, node(fmt.Sprint("n", i), 4000), http.StatusOK, "true")
		if status, text := request(t, "PUT", register, node("more", 4000)); status == http.StatusInsufficientStorage {
			expect.That(t, strings.Contains(text, "limits.state-bytes is 204800"), "the refusal says %q, want limits.state-bytes in it", text)
			break
		}
		responds(t, "PUT", deregister, `{"Node":"more"}`, http.StatusOK, "true")
	}
	full := func(method, target, body string) {
		t.Helper()
		responds(t, method, target, body, http.StatusInsufficientStorage, "limits.state-bytes is 204800")
	}
	full("PUT", register, node("first", 5000))
	full("PUT", register, `{"Node":"first","Address":"10.0.0.1","Check":{"Name":"c","Status":"passing"}}`)
	full("PUT", lock("another", holder), "")
	full("PUT", lock("first", other)+"&wait=10s", "")
	full("PUT", url+"/v1/kv/k", "v")
	responds(t, "PUT", register, node("first", 100), http.StatusOK, "true")
	responds(t, "PUT", lock("first", holder), "", http.StatusOK, `"acquired":true`)
	responds(t, "PUT", lock("first", other), "", http.StatusInsufficientStorage, "")
	responds(t, "POST", url+"/eureka/apps/A", instance("i"), http.StatusNoContent, "")
	responds(t, "PUT", url+"/eureka/apps/A/i", "", http.StatusOK, "")
	responds(t, "DELETE", lock("l0", holder), "", http.StatusOK, "")
	for i := range 3 {
		responds(t, "PUT", deregister, fmt.Sprintf(`{"Node":"n%d"}`, i), http.StatusOK, "true")
	}
	responds(t, "PUT", lock("another", holder), "", http.StatusOK, `"acquired":true`)
	responds(t, "PUT", register, node("first", 5000), http.StatusOK, "true")
}

// instance is the body of a registration in the application A.
func instance(id string) string {
	return fmt.Sprintf(`{"instance":{"instanceId":%q,"app":"A","hostName":"h","ipAddr":"10.0.0.1","status":"UP","vipAddress":"a","dataCenterInfo":{"name":"MyOwn"}}}`, id)
}

func request(t *testing.T, method, url, body string) (status int, text string) {
	t.Helper()
	r := need.Got(http.NewRequest(method, url, strings.NewReader(body)))(t)
	r.Header.Set("Content-Type", "application/json")
	resp := need.Got(http.DefaultClient.Do(r))(t)
	defer resp.Body.Close()
	b := need.Got(io.ReadAll(resp.Body))(t)
	return resp.StatusCode, string(b)
}

func TestFullDiskRefusesWhatAddsAndNothingElse(t *testing.T) {
	c := oneNode(t)
	n := opened(t, c)
	var free atomic.Int64
	free.Store(int64(c.MinFree))
	n.disk.Free = func(string) (int64, error) { return free.Load(), nil }
	defer started(t, n)()
	url := readyURL(t, n)
	responds(t, "POST", url+"/eureka/apps/A", instance("i"), http.StatusNoContent, "")
	responds(t, "PUT", url+"/v1/kv/k", "v", http.StatusOK, "")
	free.Store(int64(c.MinFree) - 1)
	n.disk.Measure()
	for _, tt := range []struct {
		method, path, body string
		want               int
	}{
		{"POST", "/eureka/apps/A", instance("i"), http.StatusInsufficientStorage},
		{"PUT", "/v1/kv/other", "v", http.StatusInsufficientStorage},
		{"PUT", "/v1/session/create", "{}", http.StatusInsufficientStorage},
		{"PUT", "/eureka/apps/A/i", "", http.StatusOK},
		{"GET", "/eureka/apps/A/i", "", http.StatusOK},
		{"GET", "/v1/kv/k", "", http.StatusOK},
		{"GET", "/readyz", "", http.StatusOK},
		{"DELETE", "/v1/kv/k", "", http.StatusOK},
		{"DELETE", "/eureka/apps/A/i", "", http.StatusOK},
	} {
		status, text := request(t, tt.method, url+tt.path, tt.body)
		expect.That(t, status == tt.want && (tt.want != http.StatusInsufficientStorage || !strings.HasPrefix(tt.path, "/v1") || strings.Contains(text, "data.min-free")),
			"%s %s: %d %q, want %d", tt.method, tt.path, status, text, tt.want)
	}
	free.Store(int64(c.MinFree))
	n.disk.Measure()
	responds(t, "POST", url+"/eureka/apps/A", instance("i"), http.StatusNoContent, "")
}
