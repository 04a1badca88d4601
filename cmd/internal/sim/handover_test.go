package sim_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// Raft asks for what is left to send again and again, until the entries that are on their way have arrived. If nothing kept it
// waiting, virtual time would stand still.
func TestLeadershipIsHandedOverWhileEntriesAreOnTheirWay(t *testing.T) {
	const latency = 20 * time.Millisecond
	sim.Run(t, sim.Cluster{Nodes: 3, Latency: latency}, func(w *sim.World) {
		for i := range 5 {
			old := w.Leader()
			w.RegisterAt(old, fmt.Sprintf("ORDERS/before-%d", i), long) // so that there is a connection
			var writes sync.WaitGroup
			for k := range 5 {
				writes.Go(func() {
					w.Wait(time.Duration(k) * latency / 2)
					w.Register(fmt.Sprintf("ORDERS/during-%d-%d", i, k), long)
				})
			}
			w.TransferLeadership()
			writes.Wait()
			expect.That(w, w.Leader() != old, "%s still leads", old)
		}
		expect.Equal(w, len(w.Lists("n1")), 30, "instances that are listed")
	})
}
