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

// Bounds of docs/run/node-died.md.
const (
	noticeAfter   = 3 * time.Second // a node knows that its majority is gone
	refusedWithin = time.Second     // without a leader
	unknownWithin = 4 * time.Second // a write that was in flight
)

func TestMinorityRefusesWritesAndLinearizableReads(t *testing.T) {
	ways := []struct {
		name         string
		lose, regain func(w *sim.World, left string)
	}{
		{"killed", each((*sim.World).Kill), each((*sim.World).Start)},
		{"powered off", each((*sim.World).PowerOff), each((*sim.World).Start)},
		{"cut off", (*sim.World).Isolate, func(w *sim.World, _ string) { w.Heal() }},
	}
	for _, way := range ways {
		for _, leaderStays := range []bool{true, false} {
			t.Run(fmt.Sprintf("others %s, leader stays %v", way.name, leaderStays), func(t *testing.T) {
				sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
					left := w.Leader()
					if !leaderStays {
						left = w.Others(left)[0]
					}
					w.Register("BEFORE/before", time.Hour)
					w.List(left) // it has applied the registration now
					lost := time.Now()
					way.lose(w, left)
					caught := make(chan sim.Reply, 1)
					go func() {
						caught <- w.Call(left, "POST", "/eureka/apps/CAUGHT", sim.Registration("CAUGHT", "caught", time.Hour, nil))
					}()
					w.Wait(time.Until(lost.Add(noticeAfter)))
					refusesWithoutMajority(w, left)
					knowsNoLeader(w, left)
					servesStale(w, left, "/eureka/apps?consistency=stale", lost)
					isNotAcknowledged(w, <-caught)
					way.regain(w, left)
					for _, n := range w.Names() {
						w.ReadyBy(n, sim.ReadyWithin)
					}
					nothingRefusedTookEffect(w)
				})
			})
		}
	}
}

// each does something to all nodes but one.
func each(do func(w *sim.World, node string)) func(w *sim.World, left string) {
	return func(w *sim.World, left string) {
		for _, n := range w.Others(left) {
			do(w, n)
		}
	}
}

// isNotAcknowledged checks that a write in flight when the majority was lost was refused, or has an unknown outcome.
func isNotAcknowledged(w *sim.World, r sim.Reply) {
	w.Helper()
	switch r.Status {
	case http.StatusServiceUnavailable:
		expect.That(w, r.Took <= refusedWithin, "a write that was caught is refused after %v", r.Took)
	case http.StatusGatewayTimeout:
		expect.Equal(w, r.Header.Get("X-Rollcall-Outcome"), "unknown", "a write that was caught: X-Rollcall-Outcome")
		expect.That(w, r.Took >= store.ResultWait && r.Took <= unknownWithin,
			"a write that was caught is unknown after %v", r.Took)
	default:
		w.Errorf("a write that was caught: %v, want 503 or 504", r)
	}
}

// knowsNoLeader checks that a node has noticed that its majority is gone.
func knowsNoLeader(w *sim.World, node string) {
	w.Helper()
	expect.Equal(w, sim.Document[api.Status](w, node, "/v1/rollcall/status").Leader, "", "%s knows the leader", node)
}

// refusedCalls has what a node without a majority refuses: every route that writes, and reads that must be
// linearizable.
var refusedCalls = []struct{ method, path, body string }{
	{"POST", "/eureka/apps/REFUSED", sim.Registration("REFUSED", "refused", time.Hour, nil)},
	{"PUT", "/eureka/apps/BEFORE/before", ""},
	{"DELETE", "/eureka/apps/BEFORE/before", ""},
	{"PUT", "/eureka/apps/BEFORE/before/status?value=OUT_OF_SERVICE", ""},
	{"DELETE", "/eureka/apps/BEFORE/before/status", ""},
	{"PUT", "/eureka/apps/BEFORE/before/metadata?a=b", ""},
	{"GET", "/eureka/apps", ""},
	{"GET", "/eureka/apps/delta", ""},
	{"GET", "/eureka/apps/BEFORE", ""},
	{"GET", "/eureka/apps/BEFORE/before", ""},
	{"GET", "/eureka/instances/before", ""},
	{"GET", "/eureka/vips/BEFORE", ""},
	{"GET", "/eureka/apps?consistency=linearizable", ""},
}

// refusesWithoutMajority checks that each of refusedCalls gets 503, all sent at once: after waiting for a leader, and
// within a second.
func refusesWithoutMajority(w *sim.World, node string) {
	w.Helper()
	replies := make(chan func(), len(refusedCalls))
	for _, c := range refusedCalls {
		go func() {
			r := w.Call(node, c.method, c.path, c.body)
			replies <- func() {
				expect.That(w, r.Status == http.StatusServiceUnavailable && r.Took >= store.NoLeaderWait && r.Took <= refusedWithin,
					"%s: %s %s: %v after %v, want 503 after %v to %v",
					node, c.method, c.path, r, r.Took, store.NoLeaderWait, refusedWithin)
			}
		}()
	}
	for range refusedCalls {
		(<-replies)()
	}
}

// servesStale checks for a response that shows what was there before the loss, and says how old it can be: at least
// as old as the loss, and no older than that and the last proofs before it.
func servesStale(w *sim.World, node, path string, lost time.Time) {
	w.Helper()
	const proofs = time.Second // the leader proves twice a second that it leads, and the others ask it as often
	r := w.Call(node, "GET", path, "")
	first, age := time.Now(), ageOf(w, r)
	_, listed := need.Got(sim.ListOf(r))(w)["before"]
	expect.That(w, listed, "%s does not list what was registered before the loss: %v", node, r)
	since := first.Sub(lost)
	expect.That(w, age >= since-look && age <= since+proofs+look,
		"%s: X-Rollcall-Age %v, %v after the loss", node, age, since)
	w.Wait(time.Second)
	again := ageOf(w, w.Call(node, "GET", path, ""))
	waited := time.Since(first)
	expect.That(w, (again-age-waited).Abs() <= 5*time.Millisecond,
		"%s: X-Rollcall-Age grew by %v in %v", node, again-age, waited)
}

// ageOf returns the age in a stale response.
func ageOf(w *sim.World, r sim.Reply) time.Duration {
	w.Helper()
	need.That(w, r.Status == http.StatusOK && r.Header.Get("X-Rollcall-Consistency") == "stale",
		"%v %v, want a stale response", r, r.Header)
	return time.Duration(need.Got(strconv.ParseFloat(r.Header.Get("X-Rollcall-Age"), 64))(w) * float64(time.Second))
}

// nothingRefusedTookEffect checks on every node of a healed cluster that none of refusedCalls was done.
func nothingRefusedTookEffect(w *sim.World) {
	w.Helper()
	for _, n := range w.Names() {
		list := w.List(n)
		_, listed := list["refused"]
		expect.That(w, !listed, "%s: a refused registration took effect", n)
		before, listed := list["before"]
		expect.That(w, listed && before.Status == "UP" && before.Metadata["a"] == "",
			"%s: a refused change took effect: %+v", n, before)
	}
}

func TestMinorityServesStockClientsByStaleWithoutQuorum(t *testing.T) {
	settings := func(c *config.Config) { c.HTTPD.Reads = "stale-without-quorum" }
	sim.Run(t, sim.Cluster{Nodes: 3, Configure: settings}, func(w *sim.World) {
		left := w.Others(w.Leader())[0]
		w.Register("BEFORE/before", time.Hour)
		r := w.Call(left, "GET", "/eureka/apps", "")
		expect.Equal(w, r.Header.Get("X-Rollcall-Consistency"), "linearizable", "with a majority: %v", r)
		lost := time.Now()
		each((*sim.World).PowerOff)(w, left)
		w.Wait(noticeAfter)
		servesStale(w, left, "/eureka/apps", lost)
		r = w.Call(left, "GET", "/eureka/apps?consistency=linearizable", "")
		expect.That(w, r.Status == http.StatusServiceUnavailable && r.Took <= refusedWithin,
			"an explicitly linearizable read: %v after %v", r, r.Took)
	})
}

func TestLeaderThatIsCutOffIsReplacedRefusesAndCatchesUp(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		old := w.Leader()
		others := w.Others(old)
		w.Register("BEFORE/before", time.Hour)
		w.Isolate(old)
		lost := time.Now()
		w.Wait(steppedDownWithin)
		knowsNoLeader(w, old)
		next := w.Leader()
		expect.That(w, next != old && time.Since(lost) <= electedWithin,
			"%s leads %v after the cut, %s did before", next, time.Since(lost), old)
		for _, n := range others {
			r := w.Call(n, "POST", "/eureka/apps/DURING", sim.Registration("DURING", "during-"+n, time.Hour, nil))
			expect.Equal(w, r.Status, http.StatusNoContent, "%s registers", n)
		}
		w.Wait(time.Until(lost.Add(noticeAfter)))
		refusesWithoutMajority(w, old)
		w.Wait(time.Minute)
		w.Heal()
		w.ReadyBy(old, caughtUpWithin)
		list := w.List(old)
		for _, id := range []string{"before", "during-" + others[0], "during-" + others[1]} {
			_, listed := list[id]
			expect.That(w, listed, "after healing %s does not list %s", old, id)
		}
		nothingRefusedTookEffect(w)
	})
}

// It cuts what the leader receives (deaf), or what it sends, and nothing else.
func TestPartitionOfALeaderInOneDirectionEndsInOneRegistry(t *testing.T) {
	for _, deaf := range []bool{true, false} {
		t.Run(fmt.Sprintf("leader deaf %v", deaf), func(t *testing.T) {
			sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
				old := w.Leader()
				herd := w.Herd("KEPT", 6, 10*time.Second, 2*time.Second, w.Names()...)
				churn := w.Churn(3, 100*time.Millisecond, w.Names()...)
				w.Wait(time.Second)
				churn.Gap()
				for _, other := range w.Others(old) {
					from, to := old, other
					if deaf {
						from, to = other, old
					}
					w.SetLink(from, to, func(l *sim.Link) { l.Cut = true })
				}
				w.Wait(2 * noticeAfter)
				w.Heal()
				for _, n := range w.Names() {
					w.ReadyBy(n, caughtUpWithin)
				}
				w.Wait(time.Second)
				gap := churn.Gap()
				expect.That(w, gap <= steppedDownWithin+electedWithin, "nothing was acknowledged for %v", gap)
				w.Logf("longest time without an acknowledgement: %v", gap)
				churn.NothingLost()
				herd.NeverLost()
			})
		})
	}
}

// keepsUp is how long a newcomer keeps up before it votes (docs/run/change-nodes.md).
const keepsUp = 10 * time.Second

// roleOf returns the role of a node in the status that another one shows, or "" if that shows none.
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
			expect.Equal(w, w.Call(lost, "GET", "/v1/kv/"+key+"?stale", "").Status, http.StatusOK, "the new %s has %q:", lost, key)
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

// recovery makes a cluster go on with the data directory of one node.
func recovery(w *sim.World, node string) (consensus.Recovered, error) {
	members := map[string]string{}
	for i, n := range w.Names() {
		members[n] = fmt.Sprintf("127.0.1.%d:7761", i+1)
	}
	return consensus.Recovery{DataDir: w.Dir(node), Members: members, Log: slog.New(slog.DiscardHandler), World: w.At(node)}.Recover(w.Context())
}

// incarnation is by how much an index grows at least when a recovery or a restore begins one.
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
	need.OK(w, w.Stop(left)) // by then its state is a while old
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
	after := w.Lock(left, "job", heir, time.Minute) // the session has ended, and its lock delay is in force
	expect.That(w, after > before && after > incarnation, "token %d after %d", after, before)
}

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}

// tearSegment leaves in the newest segment of a log what a full disk leaves of a write that crosses a page.
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

// Somebody does start the two lost nodes with their old directories, while the recovered one is down. Together they
// are a majority of the old cluster, and their log is longer. The recovered node must not follow them: its state
// differs from theirs.
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
