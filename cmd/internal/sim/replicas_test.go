package sim_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store/consensus/replicas"
)

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
		w.Wait(2 * replicas.Interval)
		v := verify(w, "n1")
		need.That(w, v.Verdict == "equal" && len(v.Nodes) == 3, "before: %+v, want three nodes that are equal", v)
		leader := w.Leader()
		w.Put("n1", "price", "", "falsify-me")
		began := time.Now()
		// The first entry of the next minute brings the next digests; the leader writes one entry a second.
		due := began.Truncate(replicas.Interval).Add(replicas.Interval)
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
		const look = 10 * time.Second // of the leader, for new digests
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

func TestVerifyThatCannotCompareANodeIsNoPass(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		away := w.Others(w.Leader())[0]
		at := w.Others(away)[0]
		w.Wait(2 * replicas.Interval)
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
			w.Wait(replicas.Interval)
		}
		w.Start(away)
		w.ReadyBy(away, sim.ReadyWithin)
		ready := time.Now()
		w.Await(replicas.Interval+2*time.Second, "the node that is back is compared", func() bool { return verify(w, at).Verdict == "equal" })
		w.Logf("compared %v after it was ready", time.Since(ready))
	})
}
