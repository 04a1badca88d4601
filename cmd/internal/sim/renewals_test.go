package sim_test

import (
	"bufio"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// soon is what the ways between three nodes take of a write: to the node, to the leader, to a majority, and back.
const soon = 20 * time.Millisecond

// renewAlone renews an instance over a connection of its own, so that the renewal may wait for others (docs/adr/0028).
func renewAlone(w *sim.World, node, id string) (status int, took time.Duration) {
	w.Helper()
	conn := w.Dial("127.0.9.2", node)
	defer conn.Close()
	began := time.Now()
	need.Got(fmt.Fprintf(conn,
		"PUT /eureka/apps/WAITING/%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", id))(w)
	resp := need.Got(http.ReadResponse(bufio.NewReader(conn), nil))(w)
	resp.Body.Close()
	return resp.StatusCode, time.Since(began)
}

func TestRenewalsThatWaitAreAsCorrectAsOthers(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		sim.Run(t, sim.Cluster{Nodes: 3, Mode: mode}, func(w *sim.World) {
			longest := config.Default().Store.RenewalWait + soon
			if mode == config.AP {
				longest = soon
			}
			for round := range 4 {
				for _, n := range w.Names() {
					id := fmt.Sprintf("%s-%d", n, round)
					status, _ := renewAlone(w, n, id)
					expect.Equal(w, status, http.StatusNotFound, "%s: before the registration a renewal gets", n)
					r := w.Call(n, "POST", "/eureka/apps/WAITING", sim.Registration("WAITING", id, 10*time.Minute, nil))
					need.Equal(w, r.Status, http.StatusNoContent, "%s: register", n)
					renewed := make(chan bool, 3)
					for range cap(renewed) {
						go func() {
							status, took := renewAlone(w, n, id)
							renewed <- expect.That(w, status == http.StatusOK && took <= longest,
								"%s: a renewal among others gets %d after %v, want 200 within %v", n, status, took, longest)
						}()
					}
					for range cap(renewed) {
						<-renewed
					}
					need.Equal(w, w.Call(n, "DELETE", "/eureka/apps/WAITING/"+id, "").Status, http.StatusOK, "%s: cancel", n)
					status, _ = renewAlone(w, n, id)
					expect.Equal(w, status, http.StatusNotFound, "%s: after the cancel a renewal gets", n)
				}
			}
		})
	})
}

func TestRenewalWaitsForOthersUntilAnyOtherWriteTakesItAlong(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		const id = "one"
		most := config.Default().Store.RenewalWait
		w.Register("WAITING/"+id, 10*time.Minute)
		write := func() {
			need.Equal(w, w.Call(w.Names()[0], "PUT", "/v1/kv/k", "x").Status, http.StatusOK, "write")
		}
		for _, n := range w.Names() {
			write()
			status, took := renewAlone(w, n, id)
			expect.That(w, status == http.StatusOK && took >= most-soon && took <= most+soon,
				"%s: a renewal right after a write gets %d after %v, want about %v", n, status, took, most)

			w.Wait(most + soon)
			status, took = renewAlone(w, n, id)
			expect.That(w, status == http.StatusOK && took <= soon,
				"%s: a renewal long after the last entry gets %d after %v", n, status, took)

			write()
			renewed := make(chan bool, 1)
			go func() {
				status, took := renewAlone(w, n, id)
				renewed <- expect.That(w, status == http.StatusOK && took >= most/2 && took <= most/2+soon,
					"%s: a renewal with a write %v after it gets %d after %v", n, most/2, status, took)
			}()
			w.Wait(most / 2)
			write()
			<-renewed
		}
	})
}
