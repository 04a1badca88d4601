package sim_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/membership"
)

const snapshotPath = "/v1/rollcall/snapshot"

// values checks that keys have these values at a node; those with an empty value must be absent.
func values(w *sim.World, node string, want map[string]string) {
	w.Helper()
	for key, value := range want {
		got := ""
		if p := w.Get(node, key); p != nil {
			got = string(p.Value)
		}
		expect.Equal(w, got, value, "%s at %s is", key, node)
	}
}

// listed checks that a node lists these instances of ORDERS, and no others.
func listed(w *sim.World, node string, want ...string) {
	w.Helper()
	var got []string
	for _, i := range documentOf[[]api.Instance](w, w.Call(node, "GET", "/v1/rollcall/apps?app=ORDERS", "")) {
		got = append(got, i.ID)
	}
	expect.Slice(w, sorted(got), want, "%s lists", node)
}

// An operator deletes a prefix and cancels instances by mistake, and brings both back from a snapshot, while programs
// watch.
func TestRestoreBringsBackWhatWasDeletedAndLeavesTheRest(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		n := w.Leader()
		other := w.Others(n)[0]
		for key, value := range map[string]string{"config/a": "1", "config/b": "2", "other/x": "old"} {
			w.Put(n, key, "", value)
		}
		for _, id := range []string{"kept-1", "lost-1", "lost-2"} {
			w.Register("ORDERS/"+id, time.Hour)
		}
		need.Equal(w, w.Call(other, "PUT", "/v1/rollcall/apps/ORDERS/lost-1/override?value=OUT_OF_SERVICE", "").Status, http.StatusOK, "the override is answered")
		session := w.Session(n, time.Hour, time.Second)
		before := w.Lock(n, "job", session, 0)

		saved := w.Call(other, "GET", snapshotPath, "")
		need.Equal(w, saved.Status, http.StatusOK, "the snapshot is answered")
		restore := func(query string) api.Restored {
			return documentOf[api.Restored](w, w.Call(other, "PUT", snapshotPath+"?"+query, saved.Body, "Content-Type: application/octet-stream"))
		}
		need.Equal(w, w.Call(n, "DELETE", "/v1/kv/config/?recurse", "").Status, http.StatusOK, "the deletion is answered")
		w.Put(n, "other/x", "", "new")
		w.Put(n, "other/y", "", "newer")
		for _, id := range []string{"lost-1", "lost-2"} {
			need.Equal(w, w.Call(n, "DELETE", "/eureka/apps/ORDERS/"+id, "").Status, http.StatusOK, "the cancel is answered")
		}
		w.Register("ORDERS/newer-1", time.Hour)

		// By prefix first: nothing else changes.
		restore("reason=deleted&keys-only&prefix=config/")
		values(w, n, map[string]string{"config/a": "1", "config/b": "2", "other/x": "new", "other/y": "newer"})
		listed(w, other, "kept-1", "newer-1")
		plan := restore("dry-run").Plan
		need.That(w, plan != nil, "a dry run has no plan")
		expect.Slice(w, plan.Instances, []string{"ORDERS/lost-1", "ORDERS/lost-2"}, "the plan brings back")
		expect.Slice(w, plan.KeysDeleted, []string{"other/y"}, "the plan deletes")
		expect.Slice(w, plan.KeysWritten, []string{"other/x"}, "the plan writes")
		expect.Equal(w, plan.InstancesNewer, 1, "newer instances are")

		unchanged := w.Get(n, "config/a").ModifyIndex
		type reply struct {
			sim.Reply
			at time.Time
		}
		returned := make(chan reply, 1)
		go func() {
			r := w.Hold(n, "GET", fmt.Sprintf("/v1/kv/config/a?wait=5m&index=%d", unchanged), "")
			returned <- reply{r, time.Now()}
		}()
		var watches []*sim.Stream
		for _, at := range w.Names() {
			watches = append(watches, w.Watch(at, ""))
		}
		w.Wait(time.Second)
		done := restore("reason=monday+was+better")
		restored := time.Now()
		expect.That(w, done.Instances == 2 && done.InstancesStayed == 1 && done.KeysDeleted == 1 && done.SessionsEnded == 1, "restored: %+v", done)
		r := <-returned
		var index uint64
		_, err := fmt.Sscan(r.Header.Get("X-Consul-Index"), &index)
		expect.That(w, err == nil && index > unchanged && index > incarnation && r.at.Sub(restored) <= moment,
			"the blocking query of an unchanged key returned %v after the restore, at %d, after %d, %v", r.at.Sub(restored), index, unchanged, err)
		w.Wait(moment)
		for _, s := range watches {
			events := s.Events()
			newest := events[len(events)-1]
			expect.That(w, newest.Name == "reset" && newest.At.Sub(restored) <= moment, "the watch at %s ends with %+v, %v after the restore, want a reset", s.Node, newest, newest.At.Sub(restored))
		}
		for _, at := range w.Names() {
			listed(w, at, "kept-1", "lost-1", "lost-2", "newer-1")
			values(w, at, map[string]string{"config/a": "1", "other/x": "old", "other/y": ""})
		}
		why := w.Call(other, "GET", "/v1/rollcall/apps/ORDERS/lost-1/explain", "").Body
		expect.That(w, strings.Contains(why, "monday was better") && strings.Contains(why, `"OUT_OF_SERVICE"`), "lost-1 is explained as %s", why)
		heir := w.Session(n, time.Hour, 0)
		after := w.Lock(n, "job", heir, time.Minute)
		expect.That(w, after > before && after > incarnation, "token %d after the restore, %d before", after, before)
	})
}

// A restore is done, but the response to the node that was asked for it is lost. That node repeats it, finds no leader,
// and must not say that nothing was restored.
func TestRestoreOfUnknownOutcomeIsNotRefused(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		leader := w.Leader()
		asked := w.Others(leader)[0]
		w.Put(leader, "config/a", "", "1")
		saved := w.Call(leader, "GET", snapshotPath, "").Body
		w.Put(leader, "config/a", "", "2")
		w.SetLink(leader, asked, func(l *sim.Link) { l.Latency = 100 * time.Millisecond })
		reply := make(chan sim.Reply, 1)
		go func() {
			reply <- w.Hold(asked, "PUT", snapshotPath+"?reason=r", saved, "Content-Type: application/octet-stream")
		}()
		for w.Call(leader, "GET", "/v1/kv/config/a?raw", "").Body != "1" {
			w.Wait(10 * time.Millisecond)
		}
		w.Isolate(asked) // while the response is on its way
		begun := time.Now()
		r := <-reply
		expect.Equal(w, r.Outcome(), sim.Unknown, "a restore that was done is answered %v:", r)
		const tried = 15 * time.Second // restorePatience of store/consensus
		expect.That(w, time.Since(begun) <= tried+refusedWithin+store.ResultWait, "it is answered after %v", time.Since(begun))
		w.Heal()
		w.Led(asked)
		values(w, asked, map[string]string{"config/a": "1"})
	})
}

func TestRestoreThatIsRefusedChangesNothing(t *testing.T) {
	var file string
	sim.Run(t, sim.Cluster{Nodes: 1}, func(w *sim.World) {
		w.Put("n1", "config/a", "", "1")
		w.Register("ORDERS/kept-1", time.Hour)
		file = w.Call("n1", "GET", snapshotPath, "").Body
	})
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		w.Put("n1", "config/a", "", "2")
		put := func(query, body string) sim.Reply {
			return w.Call("n2", "PUT", snapshotPath+"?"+query, body, "Content-Type: application/octet-stream")
		}
		own := w.Call("n1", "GET", snapshotPath, "").Body
		w.Put("n1", "config/a", "", "3")
		flipped := []byte(own)
		flipped[len(flipped)-50] ^= 1
		for _, c := range []struct{ name, query, body, want string }{
			{"no reason", "", own, "reason=TEXT"},
			{"prefix of what has none", "reason=r&prefix=a", own, "keys-only"},
			{"cut off", "reason=r", own[:len(own)/2], "it ends inside"},
			{"a byte flipped", "reason=r", string(flipped), "at byte"},
			{"no snapshot", "reason=r", "hello, this is no snapshot", "begins with"},
			{"of another cluster", "reason=r", file, "--another-cluster"},
		} {
			r := put(c.query, c.body)
			expect.That(w, (r.Status == http.StatusBadRequest || r.Status == http.StatusConflict) && strings.Contains(r.Body, c.want), "%s: %v, want a refusal that says %q", c.name, r, c.want)
			values(w, "n3", map[string]string{"config/a": "3"})
			listed(w, "n3")
		}
		r := put("reason=r&another-cluster", file)
		expect.Equal(w, r.Status, http.StatusOK, "of another cluster, and said so: %v:", r)
		listed(w, "n3", "kept-1")
		values(w, "n3", map[string]string{"config/a": "1"})
	})
}

// The leader writes snapshots on its schedule. After the loss of everything a new cluster begins with one of them,
// which is given to all of its nodes.
func TestNewClusterBeginsWithAScheduledSnapshot(t *testing.T) {
	dir := t.TempDir()
	foreign := filepath.Join(dir, "rollcall-n9-20200101T000000Z.snap")
	need.OK(t, os.WriteFile(foreign, []byte("of another node"), 0o600))
	const interval, keep = time.Minute, 2
	chosen := ""
	configure := func(c *config.Config) {
		c.Backup.Dir, c.Backup.Interval, c.Backup.Keep = dir, interval, keep
		c.Store.RestoreFrom = chosen
	}
	sim.Run(t, sim.Cluster{Nodes: 3, Configure: configure}, func(w *sim.World) {
		n := w.Leader()
		snapshots := func() []string { return need.Got(filepath.Glob(filepath.Join(dir, "rollcall-n[1-3]-*.snap")))(w) }
		written := func() time.Time {
			return time.Unix(int64(w.Metric(n, "rollcall_backup_last_success_timestamp_seconds")), 0)
		}
		w.Await(time.Second, "the first snapshot is written", func() bool { return len(snapshots()) == 1 })
		first := written()
		expect.That(w, time.Since(first) < sim.ReadyWithin, "the first snapshot was written %v ago by its metric", time.Since(first))
		w.Register("ORDERS/orders-1", time.Hour)
		w.Put(n, "config/a", "", "1")
		for i := range 3 {
			due := first.Add(time.Duration(i+1) * interval)
			w.Wait(time.Until(due) - time.Second)
			expect.That(w, written().Before(due.Add(-time.Second)), "snapshot %d was written before its time", i+2)
			w.Wait(2 * time.Second)
			expect.That(w, written().Sub(due).Abs() <= time.Second, "snapshot %d was written at %v, want at %v", i+2, written(), due)
			expect.Equal(w, len(snapshots()), keep, "snapshots that are kept:")
		}
		_, err := os.Stat(foreign)
		expect.OKf(w, err, "a file of another node")
		chosen = snapshots()[keep-1]
		for _, n := range w.Names() {
			need.OK(w, w.Stop(n))
			w.Wipe(n)
		}

		for _, n := range w.Names() {
			w.Start(n)
		}
		for _, n := range w.Names() {
			w.ReadyBy(n, sim.ReadyWithin)
			listed(w, n, "orders-1")
			r := w.Call(n, "GET", "/v1/kv/config/a", "")
			var index uint64
			_, err := fmt.Sscan(r.Header.Get("X-Consul-Index"), &index)
			hours := uint64(time.Since(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)) / time.Hour)
			expect.That(w, r.Status == http.StatusOK && err == nil && index>>32 == hours, "%s: %v at index %d, %v, want one of the incarnation %d: of this hour, and of one restore", n, r, index, err, hours)
		}
		need.OK(w, w.Stop("n1"))
		w.Start("n1")
		expect.ErrorSays(w, w.Ends("n1", sim.ReadyWithin), "belongs to cluster", "a second start with restore-from")
	})
}

func verify(w *sim.World, node string) api.Verification {
	w.Helper()
	return documentOf[api.Verification](w, w.Call(node, "GET", "/v1/rollcall/verify", ""))
}

func TestReplicaThatWasFalsifiedInOneByteIsNamedWithinAMinute(t *testing.T) {
	falsify := func(c *config.Config) {
		if c.NodeName == "n2" {
			c.Store.Test.Falsify = func(entry []byte) []byte { return bytes.ReplaceAll(entry, []byte("falsify-me"), []byte("falsify-mE")) }
		}
	}
	sim.Run(t, sim.Cluster{Nodes: 3, Configure: falsify}, func(w *sim.World) {
		w.Wait(2 * membership.DigestInterval)
		v := verify(w, "n1")
		need.That(w, v.Verdict == "equal" && len(v.Nodes) == 3, "before: %+v, want three nodes that are equal", v)
		leader := w.Leader()
		w.Put("n1", "price", "", "falsify-me")
		began := time.Now()
		// The first entry of the next minute brings the next digests; the leader writes one entry a second.
		due := began.Truncate(membership.DigestInterval).Add(membership.DigestInterval)
		w.Wait(time.Until(due) - time.Second)
		expect.Equal(w, verify(w, "n3").Verdict, "equal", "before the next digests the verdict is")
		w.Wait(4 * time.Second)
		v = verify(w, "n3")
		expect.Equal(w, v.Verdict, "differ", "%v after the write the verdict is", time.Since(began))
		for _, n := range v.Nodes {
			want := ""
			if n.ID == "n2" {
				want = "keys"
			}
			expect.Equal(w, strings.Join(n.Differs, ","), want, "%s differs in", n.ID)
		}
		const look = 10 * time.Second // by the leader, for new digests
		w.Await(time.Until(due.Add(look+2*time.Second)), "the log names it", func() bool { return strings.Contains(w.Log(), "replicas differ") })
		w.Logf("logged %v after the digests were due", time.Since(due))
		expect.That(w, strings.Contains(w.Log(), `nodes="n2: keys"`), "the log names another one")
		for _, n := range w.Names() {
			want := 0.0
			if n == "n2" {
				want = 1
			}
			expect.Equal(w, w.Metric(leader, fmt.Sprintf("rollcall_replicas_differ{node=%q}", n)), want, "the metric of %s is", n)
		}
	})
}

func TestVerifyThatCannotCompareANodeDoesNotPass(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		away := w.Others(w.Leader())[0]
		at := w.Others(away)[0]
		w.Wait(2 * membership.DigestInterval)
		need.Equal(w, verify(w, at).Verdict, "equal", "before the verdict is")
		w.Kill(away)
		for range 3 { // however long it lasts
			v := verify(w, at)
			sentence := ""
			for _, n := range v.Nodes {
				if n.ID == away {
					sentence = n.Sentence
				}
			}
			expect.That(w, v.Verdict == "undecided" && len(v.Nodes) == 3 && sentence == "It could not be asked.", "with %s away: %+v", away, v)
			w.Wait(membership.DigestInterval)
		}
		w.Start(away)
		w.ReadyBy(away, sim.ReadyWithin)
		ready := time.Now()
		w.Await(membership.DigestInterval+2*time.Second, "the node that is back is compared", func() bool { return verify(w, at).Verdict == "equal" })
		w.Logf("compared %v after it was ready", time.Since(ready))
	})
}

// counter is a key that one writer counts up, and when each value was acknowledged.
type counter struct {
	mu    sync.Mutex
	acked []time.Time // by value
}

// write counts the key up at a node, fifty times a second, until the channel is closed.
func (c *counter) write(w *sim.World, node, key string, ended <-chan struct{}) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		c.mu.Lock()
		next := len(c.acked)
		c.mu.Unlock()
		if w.Call(node, "PUT", "/v1/kv/"+key, strconv.Itoa(next)).Status == http.StatusOK {
			c.mu.Lock()
			c.acked = append(c.acked, time.Now())
			c.mu.Unlock()
		}
		select {
		case <-tick.C:
		case <-ended:
			return
		}
	}
}

// behind returns how long before a time the value after the one that a reader got was acknowledged, or 0 if the
// reader got the newest value of that time.
func (c *counter) behind(got int, asOf time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if got+1 >= len(c.acked) {
		return 0
	}
	return max(0, asOf.Sub(c.acked[got+1]))
}

// It reads from a follower that stores entries late and hears the leader in time.
func TestMaxStaleIsKeptByAFollowerWithASlowDisk(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		const maxStale = 100 * time.Millisecond
		leader := w.Leader()
		slow := w.Others(leader)[0]
		w.SlowDisk(slow, 300*time.Millisecond)
		var count counter
		ended, written := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(written)
			count.write(w, leader, "n", ended)
		}()
		w.Wait(time.Second)
		kept, late := 0, 0
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); w.Wait(7 * time.Millisecond) {
			asked := time.Now()
			if r := w.Call(slow, "GET", "/v1/kv/n?raw&stale", ""); r.Status == http.StatusOK {
				contact := need.Got(strconv.Atoi(r.Header.Get("X-Consul-LastContact")))(w)
				by := count.behind(need.Got(strconv.Atoi(r.Body))(w), asked)
				need.That(w, by <= time.Duration(contact+1)*time.Millisecond,
					"X-Consul-LastContact is %d ms, but the value is of %v ago", contact, by)
				if by > maxStale {
					late++
				}
			}
			asked = time.Now()
			if r := w.Call(slow, "GET", "/v1/kv/n?raw&max_stale="+maxStale.String(), ""); r.Status == http.StatusOK {
				by := count.behind(need.Got(strconv.Atoi(r.Body))(w), asked)
				need.That(w, by <= maxStale, "max_stale=%v is answered with a value of %v ago", maxStale, by)
				kept++
			}
		}
		close(ended)
		<-written
		w.Logf("%d answers within max_stale, %d stale ones of longer ago", kept, late)
		expect.That(w, kept > 0 && late > 0,
			"%d answers within max_stale, %d stale ones of longer ago: nothing was tested", kept, late)
	})
}
