package integration

import (
	"fmt"
	"net/http"
	"os"
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

// largeSnapshot writes a snapshot of so many instances, of 1 KB each, and as many keys.
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

// With ROLLCALL_NUMBERS=1 it measures what docs/run/back-up.md says of 100,000 instances and 100,000 keys; else a twentieth of them
// is enough to see that nothing stands still.
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
