package sim_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/store/expiry"
)

// docs/reference/protocol/coordination.md: the same request under the same Idempotency-Key is performed once in 10
// minutes of lease clock, which passes only while a leader serves, with the same response each time.
func TestWriteOfUnknownOutcomeIsDoneOncePerIdempotencyKeyForTenMinutesWithALeader(t *testing.T) {
	const (
		onceFor = kv.OnceFor * time.Millisecond
		outage  = 15 * time.Minute
		call    = 50 * time.Millisecond                   // a call takes no longer
		lost    = expiry.TickAge + 2*expiry.ClockInterval // what a change of leader may cost the lease clock
	)
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		write := func(node, key string) sim.Reply { // succeeds only if the key is not there
			return w.Call(node, http.MethodPut, "/v1/kv/"+key+"?cas=0", "mine", "Idempotency-Key: "+key)
		}
		gets := func(node, key, want string) {
			w.Helper()
			if r := write(node, key); r.Status != http.StatusOK || strings.TrimSpace(r.Body) != want {
				w.Fatalf("%s at %s: %v, want %s", key, node, r, want)
			}
		}
		holds := func(node, key, want string) {
			w.Helper()
			if p := w.Get(node, key); p == nil || string(p.Value) != want {
				w.Fatalf("%s at %s is %+v, want %s", key, node, p, want)
			}
		}
		// between repeats a write right before its time is over, and once it is.
		between := func(key string, from, to time.Time) {
			w.Helper()
			w.Wait(time.Until(from.Add(-call)))
			gets(w.Names()[1], key, "true")
			if late := time.Since(from); late > 0 {
				w.Fatalf("%s was repeated %v too late", key, late)
			}
			w.Wait(time.Until(to))
			gets(w.Names()[1], key, "false") // performed again: the key is there
		}
		w.Keep("ORDERS/a", 90*time.Second) // without a lease or a session the lease clock hardly runs

		// The followers get the write, and their acknowledgements do not arrive: the next leader performs it.
		first := w.Leader()
		others := w.Others(first)
		for _, other := range others {
			w.SetLink(other, first, func(l *sim.Link) { l.Cut = true })
		}
		sent := time.Now()
		if r := write(first, "order"); r.Outcome() != sim.Unknown {
			w.Fatalf("a write whose acknowledgements are cut off: %v", r)
		}
		w.Heal()
		done := w.Led(others[0])
		holds(others[0], "order", "mine")
		if !w.Put(others[0], "order", "", "another's") {
			w.Fatal("another's write was refused")
		}
		for _, node := range w.Names() {
			gets(node, "order", "true")
		}

		// A quarter of an hour without a leader does not count.
		for _, node := range w.Names() {
			w.Kill(node)
		}
		killed := time.Now()
		w.Wait(outage)
		for _, node := range w.Names() {
			w.Start(node)
		}
		led := w.Led(first)
		gets(first, "order", "true")

		// With one leader the ten minutes are exact.
		w.Wait(time.Minute)
		calm := time.Now()
		gets(first, "calm", "true")
		acknowledged := time.Now()
		between("order", sent.Add(onceFor+outage), done.Add(onceFor+led.Sub(killed)+lost))
		holds(first, "order", "another's")
		between("calm", calm.Add(onceFor), acknowledged.Add(onceFor))
	})
}
