package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/seed-20419f34/rollcall/client"
	own "github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// An operator deletes a prefix and cancels instances by mistake, and brings both back from a snapshot, while clients of every
// kind go on.
func TestRestoreBringsBackWhatWasDeletedAndLeavesTheRest(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{})
	n, other := c.Leader(), c.Others(c.Leader())[0]
	kv := patientConsul(t, n).KV()
	for key, value := range map[string]string{"config/a": "1", "config/b": "2", "other/x": "old"} {
		need.Got(kv.Put(&api.KVPair{Key: key, Value: []byte(value)}, nil))(t)
	}
	for _, id := range []string{"kept-1", "lost-1", "lost-2"} {
		n.Register(Instance{App: "ORDERS", ID: id, Duration: 300})
	}
	need.Equal(t, other.Override("ORDERS", "lost-1", "OUT_OF_SERVICE").Status, 200, "the override is answered")
	session, _, err := patientConsul(t, n).Session().Create(&api.SessionEntry{Name: "holder", TTL: "600s", LockDelay: time.Second}, nil)
	need.OK(t, err)
	held, _, err := kv.Acquire(&api.KVPair{Key: "config/leader", Value: []byte("n1"), Session: session}, nil)
	need.That(t, held && err == nil, "acquire: %t, %v", held, err)
	before, _, err := kv.Get("config/leader", nil)
	need.OK(t, err)

	file := filepath.Join(t.TempDir(), "monday.snap")
	said := string(rollcall(t, "snapshot", "save", file, "--addr", other.URL()))
	expect.That(t, strings.Contains(said, "3 instances, 4 keys, 1 sessions") && strings.Contains(said, "verified"), "save says %s", said)

	need.Got(kv.DeleteTree("config/", nil))(t)
	need.Got(kv.Put(&api.KVPair{Key: "other/x", Value: []byte("new")}, nil))(t)
	need.Got(kv.Put(&api.KVPair{Key: "other/y", Value: []byte("newer")}, nil))(t)
	n.Cancel("ORDERS", "lost-1")
	n.Cancel("ORDERS", "lost-2")
	n.Register(Instance{App: "ORDERS", ID: "newer-1", Duration: 300})
	diff := string(rollcall(t, "snapshot", "diff", file, "--addr", n.URL()))
	for _, line := range []string{"-       instance  ORDERS/lost-1", "+       instance  ORDERS/newer-1", "-       key       config/a", "~       key       other/x"} {
		expect.That(t, strings.Contains(diff, line), "the difference lacks %q:\n%s", line, diff)
	}

	// By prefix first: nothing else changes.
	rollcall(t, "snapshot", "restore", file, "--reason", "config/ was deleted", "--keys-only", "--prefix", "config/", "--addr", other.URL())
	for key, want := range map[string]string{"config/a": "1", "config/b": "2", "other/x": "new", "other/y": "newer"} {
		p, _, err := kv.Get(key, &api.QueryOptions{RequireConsistent: true})
		expect.That(t, err == nil && p != nil && string(p.Value) == want, "%s is %+v, %v, want %s", key, p, err, want)
	}
	listed := need.Got(other.Listing())(t)
	expect.That(t, len(listed) == 2, "after a restore of keys alone %d instances are listed, want 2", len(listed))

	var plan own.Restored
	decode(t, rollcall(t, "snapshot", "restore", file, "--dry-run", "-o", "json", "--addr", other.URL()), &plan)
	expect.That(t, plan.DryRun && fmt.Sprint(plan.Plan.Instances) == "[ORDERS/lost-1 ORDERS/lost-2]" && fmt.Sprint(plan.Plan.KeysDeleted) == "[other/y]" &&
		fmt.Sprint(plan.Plan.KeysWritten) == "[other/x]" && plan.Plan.InstancesNewer == 1, "the plan is %+v %+v", plan, plan.Plan)

	// A blocking query of a key that does not change, a watch, and fargo through the whole restore.
	unchanged, meta, err := kv.Get("config/a", nil)
	need.That(t, unchanged != nil && err == nil, "config/a: %v", err)
	returned := make(chan uint64, 1)
	go func() {
		_, later, err := kv.Get("config/a", &api.QueryOptions{WaitIndex: meta.LastIndex, WaitTime: 5 * time.Minute})
		if err == nil {
			returned <- later.LastIndex
		}
	}()
	watch := other.Watch(t, "")
	fargo := newFargoClient(t, true)
	need.OK(t, fargo.Start(strings.TrimSuffix(n.Eureka(), "/"), "fargo-app", "fargo-1", 90))

	var done own.Restored
	decode(t, rollcall(t, "snapshot", "restore", file, "--reason", "monday was better", "-o", "json", "--addr", other.URL()), &done)
	expect.That(t, done.Instances == 2 && done.InstancesStayed == 1 && done.KeysDeleted == 1 && done.SessionsEnded == 1, "restored: %+v", done)
	select {
	case index := <-returned:
		expect.That(t, index > meta.LastIndex && index >= 1<<32, "the blocking query returned at %d, after %d", index, meta.LastIndex)
	case <-time.After(ReadyLimit):
		t.Error("the blocking query did not return")
	}
	Eventually(t, ReadyLimit, "the watch is reset", func() error {
		watch.mu.Lock()
		defer watch.mu.Unlock()
		for _, e := range watch.events {
			if e.Name == "reset" {
				return nil
			}
		}
		return unless(false, "%d events: %+v", len(watch.events), watch.events)
	})
	listed = need.Got(other.Listing())(t)
	for _, id := range []string{"kept-1", "lost-1", "lost-2", "newer-1"} {
		_, there := listed[id]
		expect.That(t, there, "ORDERS/%s is not listed after the restore; listed are %v", id, listed)
	}
	explanation := need.Got(other.Explain("ORDERS", "lost-1"))(t)
	b, _ := json.Marshal(explanation)
	expect.That(t, strings.Contains(string(b), "monday was better") && strings.Contains(string(b), "OUT_OF_SERVICE"), "lost-1 is explained as %s", b)
	for key, want := range map[string]string{"config/a": "1", "other/x": "old", "other/y": ""} {
		p, _, err := patientConsul(t, other).KV().Get(key, &api.QueryOptions{RequireConsistent: true})
		expect.That(t, err == nil && (p == nil) == (want == "") && (p == nil || string(p.Value) == want), "%s is %+v, %v, want %q", key, p, err, want)
	}
	found := need.Got(fargo.Discover("orders"))(t)
	expect.That(t, found["lost-1"] == "OUT_OF_SERVICE" && found["newer-1"] == "UP", "fargo finds %v", found)
	testTokenAfterRestore(t, n, before)
	testRefusals(t, n, file)
}

// testTokenAfterRestore acquires a key again whose holder's session has ended: the token is higher than the one before.
func testTokenAfterRestore(t *testing.T, n *Node, before *api.KVPair) {
	t.Helper()
	cl := goClient(t, client.Config{Servers: urls(n)})
	s := need.Got(cl.CreateSession(t.Context(), client.SessionOptions{TTL: time.Minute}))(t)
	Eventually(t, ReadyLimit, "the key is acquired after its lock-delay", func() error {
		w, err := cl.KV().Write(context.Background(), client.Write{Key: "config/leader", Value: []byte("n2"), Acquire: s.ID})
		if err != nil || !w.OK {
			return fmt.Errorf("acquire: %+v, %w", w, errors.Join(err, errors.New("not acquired")))
		}
		return unless(w.Fence > 1<<32 && w.Fence > before.ModifyIndex, "token %d, after one of at most %d", w.Fence, before.ModifyIndex)
	})
}

// testRefusals tries what must be refused in words, and changes nothing.
func testRefusals(t *testing.T, n *Node, file string) {
	t.Helper()
	b := need.Got(os.ReadFile(file))(t)
	put := func(query string, body []byte) Response {
		return n.Do(Request{Method: http.MethodPut, Path: "/v1/rollcall/snapshot?" + query, Body: body})
	}
	state := string(rollcall(t, "snapshot", "diff", file, "--addr", n.URL()))
	for _, c := range []struct {
		name, query string
		body        []byte
		want        string
	}{
		{"no reason", "", b, "reason=TEXT"},
		{"prefix of what has none", "reason=r&prefix=a", b, "keys-only"},
		{"cut off", "reason=r", b[:len(b)/2], "it ends inside"},
		{"a byte flipped", "reason=r", append(append([]byte{}, b[:len(b)-50]...), append([]byte{b[len(b)-50] ^ 1}, b[len(b)-49:]...)...), "at byte"},
		{"no snapshot", "reason=r", []byte("hello, this is no snapshot"), "begins with"},
	} {
		r := put(c.query, c.body)
		expect.That(t, (r.Status == 400 || r.Status == 409) && strings.Contains(string(r.Body), c.want), "%s: %s, want a refusal that says %q", c.name, r, c.want)
	}
	another := StartCluster(t, Config{Nodes: 1})
	r := another.Nodes[0].Do(Request{Method: http.MethodPut, Path: "/v1/rollcall/snapshot?reason=r", Body: b})
	expect.That(t, r.Status == 409 && strings.Contains(string(r.Body), "--another-cluster"), "of another cluster: %s", r)
	r = another.Nodes[0].Do(Request{Method: http.MethodPut, Path: "/v1/rollcall/snapshot?reason=r&another-cluster", Body: b})
	expect.That(t, r.Status == 200, "of another cluster, and said so: %s", r)
	listed := need.Got(another.Nodes[0].Listing())(t)
	expect.That(t, len(listed) == 3, "restored in another cluster are %v", listed)
	after := string(rollcall(t, "snapshot", "diff", file, "--addr", n.URL()))
	expect.That(t, after == state, "refused restores changed something:\n%s\n%s", state, after)
}
