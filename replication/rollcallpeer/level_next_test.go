//go:build nextlevel

package rollcallpeer

import (
	"context"
	"net/http"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/replication/batcher"
)

// The first message to a peer of the version before is refused with a reason; the next one has the level that the
// peer writes.
func TestMessagesHaveTheLevelThatThePeerWrites(t *testing.T) {
	far := receiver(t)
	far.fail = func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set(codec.LevelHeader, codec.Reads{Version: "0.1", Oldest: 1, Newest: 1, Writes: 1}.String())
		sent := far.requests[len(far.requests)-1].body
		if levelOf(sent) == 1 {
			return false
		}
		http.Error(w, "written by a newer version", http.StatusNotImplemented)
		return true
	}
	near := sender(t, far.server.URL)
	for try, want := range []batcher.Result{batcher.Congestion, batcher.Success} {
		expect.Equal(t, near.only().Process(context.Background(), aTask), want, "try %d:", try)
	}
	expect.Equal(t, near.only().level(), byte(1), "the link writes level")
	reads, at := near.only().Levels()
	expect.That(t, reads.Version == "0.1" && !at.IsZero(), "the peer said %+v at %v", reads, at)
}
