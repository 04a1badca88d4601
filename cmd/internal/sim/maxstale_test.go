package sim_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
)

// A follower that is cut off answers reads with max_stale until its state is as old as they allow, says truthfully how
// old it is, and then refuses them until it hears its leader again.
func TestMaxStaleIsKeptToTheMomentByAFollowerThatIsCutOff(t *testing.T) {
	const (
		maxStale = 5 * time.Second
		latency  = time.Millisecond
		proofs   = 100 * time.Millisecond // the age is proven ten times a second while there are readers
		look     = 10 * time.Millisecond
		// A follower asks its leader for its newest proof every 100 ms, and skips a turn if its own is younger than
		// 50 ms. So does the leader. This bounds the age of what a follower knows.
		known = 2*proofs + proofs/2 + 4*latency
	)
	sim.Run(t, sim.Cluster{Nodes: 3, Latency: latency}, func(w *sim.World) {
		leader := w.Leader()
		follower := w.Others(leader)[0]
		read := func() (sent time.Time, r sim.Reply) {
			sent = time.Now()
			return sent, w.Call(follower, http.MethodGet, "/v1/kv/colour?raw&stale&max_stale="+maxStale.String(), "")
		}
		if !w.Put(leader, "colour", "", "red") {
			w.Fatal("the first value was not written")
		}
		for range 200 { // readers, for whom the age is proven often
			read()
			w.Wait(look)
		}

		w.Isolate(follower)
		cut := time.Now()
		if !w.Put(leader, "colour", "", "blue") {
			w.Fatal("the second value was not written")
		}
		acked := time.Now()

		var last time.Time
		var refused int
		for time.Since(cut) < maxStale+3*time.Second {
			sent, r := read()
			if r.Status == http.StatusInternalServerError { // as Consul says that there is no leader
				refused++
				w.Logf("a read was refused after %v", r.Took)
				w.Wait(look)
				continue
			}
			last = sent
			if r.Status != http.StatusOK || r.Body != "red" {
				w.Fatalf("a follower that is cut off answered %s", r)
			}
			if old := sent.Sub(acked); old > maxStale {
				w.Fatalf("a read with max_stale=%v was answered with state that is %v old", maxStale, old)
			}
			ms, err := strconv.Atoi(r.Header.Get("X-Consul-LastContact"))
			if err != nil {
				w.Fatal(err)
			}
			said := time.Duration(ms) * time.Millisecond // rounded down
			if least, most := sent.Sub(acked)-time.Millisecond, sent.Add(r.Took).Sub(cut)+known; said < least || said > most {
				w.Fatalf("%v after the cut the state was said to be %v old, not %v to %v", sent.Sub(cut), said, least, most)
			}
			w.Wait(look)
		}
		if refused == 0 {
			w.Fatal("no read was refused")
		}
		if served, least := last.Sub(cut), maxStale-known-look-2*latency; served < least {
			w.Fatalf("reads were answered until %v after the cut, not until %v", served, least)
		}
		w.Logf("the last read was answered %v after the cut, %v after the write; %d were refused", last.Sub(cut), last.Sub(acked), refused)

		w.Heal()
		w.Led(follower)
		if _, r := read(); r.Status != http.StatusOK || r.Body != "blue" {
			w.Fatalf("after the link was whole again: %s", r)
		}
	})
}
