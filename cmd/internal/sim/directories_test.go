package sim_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus"
)

// keepsUp is how long a newcomer keeps up before it votes (docs/run/change-nodes.md).
const keepsUp = 10 * time.Second

// roleOf returns the role of a node in the status that another one shows; empty: it shows none.
func roleOf(w *sim.World, at, node string) string {
	w.Helper()
	for _, n := range documentOf[api.Status](w, w.Call(at, "GET", "/v1/rollcall/status", "")).Nodes {
		if n.ID == node {
			return n.Role
		}
	}
	return ""
}

// What docs/run/change-nodes.md tells operators to do.
func TestMemberThatLostItsDataVotesAgainTenSecondsAfterItsRemoval(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		leader := w.Leader()
		lost, other := w.Others(leader)[0], w.Others(leader)[1]
		w.Put(leader, "before", "", "x")
		w.Kill(lost)
		w.Wipe(lost)
		w.Put(leader, "meanwhile", "", "x")
		w.Start(lost)
		w.Await(time.Minute, "the log names the remedy", func() bool { return strings.Contains(w.Log(), "rollcall members remove "+lost) })
		w.Wait(time.Minute)
		expect.Equal(w, w.Call(lost, "GET", "/readyz", "").Status, http.StatusServiceUnavailable, "readiness of a node that is no member:")
		expect.Equal(w, roleOf(w, lost, lost), "learner", "the role of a node that is no member is, as it says,")

		removed := time.Now()
		need.Equal(w, w.Call(other, "DELETE", "/v1/rollcall/members/"+lost, "").Status, http.StatusOK, "the removal is answered")
		w.ReadyBy(lost, keepsUp)
		joined := time.Now()
		for _, key := range []string{"before", "meanwhile"} {
			r := w.Call(lost, "GET", "/v1/kv/"+key+"?stale", "")
			expect.Equal(w, r.Status, http.StatusOK, "the new %s has %q:", lost, key)
		}
		need.Equal(w, roleOf(w, leader, lost), "learner", "the role of the newcomer is")
		w.Await(2*keepsUp, "the newcomer votes", func() bool { return roleOf(w, leader, lost) == "follower" })
		voted := time.Now()
		w.Logf("%v, %v", joined.Sub(removed), voted.Sub(joined))
		expect.That(w, voted.Sub(removed) >= keepsUp && voted.Sub(joined) <= 2*keepsUp, "it votes %v after its removal, %v after it was ready; want %v to %v", voted.Sub(removed), voted.Sub(joined), keepsUp, 2*keepsUp)
		w.Kill(other) // the majority is now the leader and the newcomer
		w.Led(lost)
		expect.That(w, w.Put(lost, "after", "", "x"), "the newcomer takes no write")
	})
}

// recovery has a cluster go on with the data directory of one node.
func recovery(w *sim.World, node string) (consensus.Recovered, error) {
	members := map[string]string{}
	for i, n := range w.Names() {
		members[n] = fmt.Sprintf("127.0.1.%d:7761", i+1)
	}
	return consensus.Recovery{DataDir: w.Dir(node), Members: members, Log: slog.New(slog.DiscardHandler), World: w.At(node)}.Recover(w.Context())
}

// incarnation is by how much an index grows at least where a recovery or a restore begins.
const incarnation = 1 << 32

// Two of three disks are lost for good, under load. The cluster goes on with what the third has, and the two others
// join again with empty directories.
func TestClusterGoesOnFromOneOfThreeDirectories(t *testing.T) {
	for _, log := range []store.RaftLog{store.LogBolt, store.LogWAL} {
		t.Run(string(log), func(t *testing.T) {
			sim.Run(t, sim.Cluster{Nodes: 3, Configure: func(c *config.Config) { c.Store.RaftLog = log }}, func(w *sim.World) { goOnFromOne(w, log) })
		})
	}
}

func goOnFromOne(w *sim.World, log store.RaftLog) {
	w.Helper()
	leader := w.Leader()
	left := w.Others(leader)[0]
	instance := w.Register("ORDERS/orders-1", time.Hour)
	session := w.Session(leader, time.Hour, 15*time.Second)
	before := w.Lock(leader, "job", session, 0)
	const early, late = 100, 30
	for i := range early {
		w.Put(leader, fmt.Sprintf("load/%06d", i), "", "x")
	}
	_, err := recovery(w, left)
	expect.ErrorSays(w, err, "another process has it open", "recovery of a directory in use")
	need.OK(w, w.Stop(left)) // what it has is a while old then
	for i := range late {
		w.Put(leader, fmt.Sprintf("load/%06d", early+i), "", "x")
	}
	_, err = recovery(w, left)
	expect.ErrorSays(w, err, "a majority", "recovery while a majority answers")
	lost := w.Others(left)
	for _, n := range lost {
		w.Kill(n)
		w.Wipe(n)
	}
	if log == store.LogWAL {
		tearSegment(w, w.Dir(left))
	}
	done := need.Got(recovery(w, left))(w)
	expect.Slice(w, sorted(done.Others), lost, "what is lost is that of")
	expect.Equal(w, done.Keys, early, "keys are recovered:")
	w.Start(left)
	w.ReadyBy(left, sim.ReadyWithin)
	for _, n := range lost {
		w.Start(n)
		w.ReadyBy(n, sim.ReadyWithin)
		r := w.Call(n, "GET", "/v1/kv/load/?keys&stale", "")
		keys := documentOf[[]string](w, r)
		expect.That(w, len(keys) == early && keys[early-1] == fmt.Sprintf("load/%06d", early-1), "%s has %d keys, want the first %d that were written", n, len(keys), early)
		index, _ := strconv.ParseUint(r.Header.Get("X-Consul-Index"), 10, 64)
		expect.That(w, index > incarnation, "%s is at index %d, in no new incarnation", n, index)
	}
	expect.Equal(w, w.Call(lost[0], "GET", "/eureka/apps/"+instance.App+"/"+instance.ID, "").Status, http.StatusOK, "the instance:")
	heir := w.Session(left, time.Hour, 0)
	after := w.Lock(left, "job", heir, time.Minute) // the session has ended, and its lock delay holds
	expect.That(w, after > before && after > incarnation, "token %d after %d", after, before)
}

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}

// tearSegment leaves in the newest segment of a log what a full disk leaves of a write that was to cross a page.
func tearSegment(w *sim.World, dir string) {
	w.Helper()
	segments := need.Got(filepath.Glob(filepath.Join(dir, "raft", "wal", "*.wal")))(w)
	need.That(w, len(segments) > 0, "there are no segments")
	f := need.Got(os.OpenFile(segments[len(segments)-1], os.O_RDWR, 0))(w)
	defer f.Close()
	content := need.Got(io.ReadAll(f))(w)
	end := (len(bytes.TrimRight(content, "\x00")) + 7) / 8 * 8
	need.Got(f.WriteAt([]byte{1, 0, 0, 0, 0, 0, 0x10, 0x01}, int64(end)))(w)
}

// Somebody starts the two lost nodes with their old directories after all, while the recovered one is down. Together
// they are a majority of the cluster as it was, and their log is longer. The recovered node must not follow them: its
// state is another one than theirs.
func TestNodesOfTheClusterAsItWasEndAtTheRecoveredOne(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		left := w.Others(w.Leader())[0]
		old := w.Others(left)
		for _, n := range w.Names() {
			need.OK(w, w.Stop(n))
		}
		need.Got(recovery(w, left))(w)
		w.Start(left)
		w.ReadyBy(left, sim.ReadyWithin)
		w.Put(left, "recovered", "", "x")
		need.OK(w, w.Stop(left))
		for _, n := range old {
			w.Start(n)
		}
		w.ReadyBy(old[0], sim.ReadyWithin)
		for i := range 50 {
			w.Put(old[0], fmt.Sprint("old/", i), "", "x")
		}
		w.Start(left)
		for _, n := range old {
			err := w.Ends(n, sim.ReadyWithin)
			expect.ErrorSays(w, err, "the cluster was recovered (rollcall recover) without what node "+n+" has here", "the end of "+n)
		}
		w.ReadyBy(left, sim.ReadyWithin)
		expect.Equal(w, w.Leader(), left, "the leader is")
		expect.That(w, w.Get(left, "recovered") != nil, "what the recovered node had acknowledged is gone")
		expect.That(w, w.Get(left, "old/0") == nil, "the recovered node has taken over what the others had")
	})
}
