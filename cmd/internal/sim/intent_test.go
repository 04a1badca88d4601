package sim_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// takeOut has an operator's OUT_OF_SERVICE set at a node: "drain=true", or for good.
func takeOut(w *sim.World, node, path, how string) {
	w.Helper()
	w.Do(http.StatusOK, node, "PUT", "/v1/rollcall/apps/"+path+"/override?value=OUT_OF_SERVICE&author=ann&"+how)
}

// newestLevel waits until all nodes follow the rules of the newest level.
func newestLevel(w *sim.World) {
	w.Helper()
	w.AwaitAll(w.Names(), 2*time.Minute, "the newest level is written", func(node string) bool {
		return documentOf[api.Upgrade](w, w.Call(node, "GET", "/v1/rollcall/upgrade", "")).Level == codec.Newest
	})
}

// A program is drained, stopped and started again: it is called again at once. What an operator took out of service for good stays
// so, through cancels and evictions, the death of the node that was asked (the leader, in mode cp), and at a node that heard
// nothing of the cancel.
func TestIntentDrainEndsWithARestartAndAnOverrideOutlivesTheLease(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		sim.Run(t, sim.Cluster{Nodes: 3, Mode: mode}, func(w *sim.World) {
			newestLevel(w)
			w.Keep("OTHERS/keeps-the-clock-running", 30*time.Second)
			asked := w.Names()[0]
			if mode == "cp" {
				asked = w.Leader()
			}
			acts := map[string]string{"drained": "drain=true", "overridden": ""}
			for name, how := range acts {
				w.RegisterAt(asked, "A/"+name+"-canceled", 5*time.Minute)
				w.RegisterAt(asked, "A/"+name+"-restarted", 5*time.Minute)
				w.RegisterAt(asked, "A/"+name+"-evicted", 6*time.Second)
				w.Wait(reaches(mode))
				for _, of := range []string{"-canceled", "-restarted", "-evicted"} {
					takeOut(w, asked, "A/"+name+of, how)
				}
				w.Wait(reaches(mode))
				w.Isolate(w.Others(asked)[1])
				w.CancelAt(asked, "A/"+name+"-canceled")
				w.Await(2*time.Minute, "it is evicted", func() bool { return statusAt(w, asked, "A/"+name+"-evicted") == "" })
				w.Heal()
				w.Wait(toldAll)
				if mode == "cp" {
					w.Led(asked)
				}
				gone := explain(w, asked, "A/"+name+"-evicted")
				expect.That(w, strings.Contains(gone.Summary, "it is OUT_OF_SERVICE, by ann") == (name == "overridden"), "of %s it says %q", name, gone.Summary)
			}
			w.Kill(asked)
			others := w.Others(asked)
			if mode == "cp" {
				w.Led(others[0])
			}
			w.Start(asked)
			w.ReadyBy(asked, time.Minute)
			if mode == "cp" {
				w.Led(others[0])
			}
			for name, want := range map[string]string{"drained": "UP", "overridden": "OUT_OF_SERVICE"} {
				for _, of := range []string{"-canceled", "-restarted", "-evicted"} {
					w.RegisterAt(others[0], "A/"+name+of, 5*time.Minute)
					w.AwaitAll(w.Names(), time.Minute, name+of+" is "+want, func(node string) bool { return statusAt(w, node, "A/"+name+of) == want })
				}
			}
			w.Wait(2 * time.Minute) // nodes have compared what they have
			for name, want := range map[string]string{"drained": "UP", "overridden": "OUT_OF_SERVICE"} {
				for _, node := range w.Names() {
					expect.Equal(w, statusAt(w, node, "A/"+name+"-restarted"), want, "later %s has %s as", node, name)
				}
			}
		})
	})
}
