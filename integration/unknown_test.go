package integration

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// The promise: a write that was answered 504 takes effect before every acknowledged write that was sent a second after
// that response, or never.

// TestWriteThatWasGivenUpDuringAPauseIsNotPerformed leaves requests in the sockets of a node
// that stands still.
func TestWriteThatWasGivenUpDuringAPauseIsNotPerformed(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{})
	paused := c.Others(c.Leader())[0]
	other := c.Others(paused)[0]
	const keys = 10
	paused.Pause(t)
	var clients sync.WaitGroup
	for i := range keys {
		clients.Go(func() { paused.PutWithin(fmt.Sprintf("/v1/kv/k%d", i), "OLD", 300*time.Millisecond) })
	}
	clients.Wait()
	for i := range keys {
		said, err := other.putOK(fmt.Sprintf("/v1/kv/k%d", i), "NEW")
		need.That(t, err == nil && said == "true", "write at %s: %q, %v", other.Name, said, err)
	}
	Pass(t, time.Second) // so long that the node notices the pause
	paused.Resume(t)
	paused.WaitReady(t)
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		for i := range keys {
			if response := other.Get(fmt.Sprintf("/v1/kv/k%d?raw&consistent", i)); response.Status == http.StatusOK && string(response.Body) != "NEW" {
				t.Fatalf("k%d is %q: the client had given that up", i, response.Body)
			}
		}
	}
}
