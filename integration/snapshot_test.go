package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	own "github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store/backup"
)

// It runs the commands by hand, and a stock client that goes on through a restore.
// TestRestoreBringsBackWhatWasDeletedAndLeavesTheRest of cmd/internal/sim has what a restore does.
func TestSnapshotCommandsSaveLookAndRestore(t *testing.T) {
	t.Parallel()
	n := StartCluster(t, Config{Nodes: 1}).Nodes[0]
	need.That(t, n.putTrue(t, "/v1/kv/config/a", "1") && n.putTrue(t, "/v1/kv/other/x", "old"), "the keys were not written")
	mustRegister(t, n, Instance{App: "ORDERS", ID: "lost-1", Duration: 300})
	need.OK(t, n.Override("ORDERS", "lost-1", "OUT_OF_SERVICE").is(200))
	file := filepath.Join(t.TempDir(), "monday.snap")
	says := func(want string, args ...string) {
		t.Helper()
		said := string(rollcall(t, append([]string{"snapshot"}, args...)...))
		expect.That(t, strings.Contains(said, want), "snapshot %v says %q, want %q in it", args, said, want)
	}
	says("1 instances, 2 keys, 0 sessions", "save", file, "--addr", n.URL())
	says("config/a", "inspect", file, "--keys", "config/")
	says("no difference", "diff", file, "--addr", n.URL())
	need.OK(t, n.Do(Request{Method: "DELETE", Path: "/v1/kv/config/a"}).is(200))
	need.That(t, n.putTrue(t, "/v1/kv/other/x", "new"), "the key was not written")
	mustCancel(t, n, "ORDERS", "lost-1")
	mustRegister(t, n, Instance{App: "ORDERS", ID: "newer-1", Duration: 300})
	for _, line := range []string{"-       instance  ORDERS/lost-1", "+       instance  ORDERS/newer-1", "-       key       config/a", "~       key       other/x"} {
		says(line, "diff", file, "--addr", n.URL())
	}
	fargo := newFargoClient(t, true)
	need.OK(t, fargo.Start(strings.TrimSuffix(n.Eureka(), "/"), "fargo-app", "fargo-1", 90))
	var plan, done own.Restored
	decode(t, rollcall(t, "snapshot", "restore", file, "--dry-run", "-o", "json", "--addr", n.URL()), &plan)
	expect.That(t, plan.DryRun && fmt.Sprint(plan.Plan.Instances) == "[ORDERS/lost-1]" && plan.Plan.InstancesNewer == 2, "the plan is %+v %+v", plan, plan.Plan)
	decode(t, rollcall(t, "snapshot", "restore", file, "--reason", "monday was better", "-o", "json", "--addr", n.URL()), &done)
	expect.That(t, done.Instances == 1 && done.Keys == 2, "restored: %+v", done)
	found := need.Got(fargo.Discover("orders"))(t)
	expect.That(t, found["lost-1"] == "OUT_OF_SERVICE" && found["newer-1"] == "UP", "fargo finds %v", found)
}

// largeSnapshot writes a snapshot of n instances, 1 KB each, and as many keys.
func largeSnapshot(t *testing.T, n int) string {
	t.Helper()
	m := fsm.NewMachine()
	need.Got(m.Apply(1, 1, fsm.AppendEstablish(nil, 1, fsm.Establish{Node: "n1", Cluster: "elsewhere"})))(t)
	for i := 0; i < n; i += 1000 {
		var items []fsm.Item
		for j := i; j < i+1000; j++ {
			in := &registry.Instance{App: fmt.Sprintf("SERVICE-%03d", j%300), InstanceID: fmt.Sprintf("host-%06d.example.com:8080", j), HostName: fmt.Sprintf("host-%06d.example.com", j),
				IPAddr: fmt.Sprintf("10.%d.%d.%d", j>>16&255, j>>8&255, j&255), Status: registry.Up, LastDirty: 1_700_000_000_000 + int64(j), RenewalInterval: 30, Duration: 300,
				VIP: fmt.Sprintf("service-%03d", j%300), HomePageURL: fmt.Sprintf("http://host-%06d.example.com:8080/", j), StatusPageURL: fmt.Sprintf("http://host-%06d.example.com:8080/info", j),
				HealthCheckURL: fmt.Sprintf("http://host-%06d.example.com:8080/health", j), Port: registry.Port{Number: 8080, Enabled: true},
				Metadata: []registry.Pair{{Key: "version", Value: fmt.Sprintf("1.%d", j%50)}, {Key: "zone", Value: string(rune('a' + j%3))}, {Key: "notes", Value: strings.Repeat(fmt.Sprint(j), 400)[:400]}}}
			items = append(items, fsm.Item{Op: registry.Register{Instance: in}}, fsm.Item{KV: kv.KeyOp{Key: fmt.Sprintf("config/service-%03d/%06d", j%300, j), Value: []byte(strings.Repeat(fmt.Sprint(j), 100)[:100])}})
		}
		batch := fsm.AppendBatch(nil, 1, fsm.BatchID{Node: "n1", Boot: 1, Seq: uint64(i/1000 + 1)}, items)
		need.Got(m.Apply(uint64(i/1000+2), 1, fsm.AppendWrite(nil, 1, registry.Stamp{Lease: 1000, Wall: 1_700_000_000_000}, 0, batch)))(t)
	}
	path := filepath.Join(t.TempDir(), "large.snap")
	f := need.Got(os.Create(path))(t)
	_, _, err := backup.Write(f, backup.Source{Registry: m.View(), KV: m.KV(), Header: backup.Header{Level: 1, Mode: "cp", Cluster: "elsewhere"}})
	need.OK(t, err)
	need.OK(t, f.Close())
	return path
}

// beatPauses are heartbeats of a few instances without a pause in between.
type beatPauses struct {
	mu      sync.Mutex
	longest time.Duration // between two that succeeded, of one instance
	failed  int
}

func (b *beatPauses) reset() (longest time.Duration, failed int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	longest, failed = b.longest, b.failed
	b.longest, b.failed = 0, 0
	return longest, failed
}

func (b *beatPauses) run(n *Node, id string, ends <-chan struct{}) {
	last := time.Now()
	for {
		select {
		case <-ends:
			return
		case <-time.After(10 * time.Millisecond):
		}
		ok := n.Renew("BEATS", id).Status == http.StatusOK
		now := time.Now()
		b.mu.Lock()
		if ok {
			b.longest = max(b.longest, now.Sub(last))
			last = now
		} else {
			b.failed++
		}
		b.mu.Unlock()
	}
}

// With ROLLCALL_NUMBERS=1 it measures what docs/run/back-up.md says of 100,000 instances and 100,000 keys; otherwise
// a twentieth of them is enough to see that nothing hangs.
func TestSaveAndRestoreOfALargeStateDoNotStopHeartbeats(t *testing.T) {
	number := 5000
	if os.Getenv("ROLLCALL_NUMBERS") != "" {
		number = 100_000
	}
	c := StartCluster(t, Config{})
	large := largeSnapshot(t, number)
	ends := make(chan struct{})
	var b beatPauses
	var all sync.WaitGroup
	for i, n := range append(c.Nodes, c.Nodes...) {
		id := fmt.Sprint("beat-", i)
		need.Equal(t, n.Register(Instance{App: "BEATS", ID: id, Duration: 300}).Outcome(), Done, "a registration is")
		all.Go(func() { b.run(n, id, ends) })
	}
	defer all.Wait()
	defer close(ends)
	follower := c.Others(c.Leader())[0]
	b.reset()
	began := time.Now()
	var done own.Restored
	decode(t, rollcall(t, "snapshot", "restore", large, "--another-cluster", "--reason", "numbers", "-o", "json", "--addr", follower.URL()), &done)
	took := time.Since(began)
	longest, failed := b.reset()
	expect.That(t, done.Instances == number && done.Keys == number && failed == 0, "restored: %+v, with %d failed heartbeats", done, failed)
	t.Logf("restore of %d instances and %d keys: %v, longest pause of heartbeats %v", number, number, took.Round(time.Millisecond), longest.Round(time.Millisecond))
	began = time.Now()
	file := filepath.Join(t.TempDir(), "saved.snap")
	rollcall(t, "snapshot", "save", file, "--addr", follower.URL())
	took = time.Since(began)
	longest, failed = b.reset()
	info := need.Got(os.Stat(file))(t)
	expect.That(t, failed == 0, "%d failed heartbeats while saving", failed)
	t.Logf("save: %v, %d bytes, longest pause of heartbeats %v", took.Round(time.Millisecond), info.Size(), longest.Round(time.Millisecond))
	began = time.Now()
	rollcall(t, "snapshot", "restore", file, "--reason", "numbers", "--addr", follower.URL())
	took = time.Since(began)
	longest, failed = b.reset()
	expect.That(t, failed == 0, "%d failed heartbeats while restoring again", failed)
	t.Logf("restore of what is there: %v, longest pause of heartbeats %v", took.Round(time.Millisecond), longest.Round(time.Millisecond))
}

// It recovers a cluster of one node. TestClusterGoesOnFromOneOfThreeDirectories of cmd/internal/sim covers a larger
// one.
func TestRecoverCommandSaysWhatItHasMade(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{Nodes: 1})
	n := c.Nodes[0]
	need.That(t, n.putTrue(t, "/v1/kv/kept", "x"), "the key was not written")
	recovers := func(more ...string) (string, error) {
		args := append([]string{"recover", "--data-dir", n.Dir, "--members", n.Name + "=" + n.Cluster}, more...)
		out, err := exec.Command(Binary(t), args...).CombinedOutput()
		return string(out), err
	}
	said, err := recovers()
	expect.That(t, err != nil && strings.Contains(said, "another process has it open"), "recover of a directory in use: %v, %s", err, said)
	n.Kill()
	said, err = recovers()
	need.That(t, err == nil && strings.Contains(said, "is lost; the index goes on from") && strings.Contains(said, "now start "+n.Name), "recover: %v, %s", err, said)
	var done struct {
		Keys   int
		Others []string
	}
	said, err = recovers("-o", "json")
	need.OKf(t, err, "%s", said)
	need.OK(t, json.Unmarshal([]byte(said), &done))
	expect.That(t, done.Keys == 1 && len(done.Others) == 0, "recover says %s", said)
	n.Start(t)
	n.WaitReady(t)
	held, _, err := n.keys("kept")
	expect.That(t, err == nil && len(held) == 1, "after the recovery there is %+v, %v", held, err)
}
