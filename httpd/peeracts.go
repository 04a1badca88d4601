package httpd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-20419f34/rollcall/httpd/api"
)

// compareLimit is how long a comparison with a peer may take: it asks for every application that
// differs, over whatever distance.
const compareLimit = 2 * time.Minute

// peers is GET /v1/rollcall/peers.
func (c *call) peers() (any, error) { return c.config.Peers.Status(c.r.Context()) }

// diffPeer is GET /v1/rollcall/peers/{name}/diff.
func (c *call) diffPeer() (any, error) { return c.comparePeer(c.config.Peers.Diff) }

// repairPeer is POST /v1/rollcall/peers/{name}/repair.
func (c *call) repairPeer() (any, error) {
	c.noBody()
	return c.comparePeer(c.config.Peers.Repair)
}

// pausePeer is POST /v1/rollcall/peers/{name}/pause.
func (c *call) pausePeer() (any, error) { return c.setPaused(true) }

// resumePeer is POST /v1/rollcall/peers/{name}/resume.
func (c *call) resumePeer() (any, error) { return c.setPaused(false) }

// forgetSender is POST /v1/rollcall/peers/{name}/forget.
func (c *call) forgetSender() (any, error) {
	c.noBody()
	sender, by := c.segment("name"), c.by()
	if c.err != nil {
		return nil, c.err
	}
	if err := c.config.Peers.Forget(c.r.Context(), sender, by); err != nil {
		return nil, writeOutcome(err)
	}
	c.config.Log.Warn("an operator had the clock of a sender forgotten", "sender", sender, "author", by.Author, "reason", by.Reason)
	c.w.WriteHeader(http.StatusNoContent)
	return answered, nil
}

func (c *call) comparePeer(compare func(ctx context.Context, peer string) (api.PeerDiff, error)) (any, error) {
	if c.err != nil {
		return nil, c.err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), compareLimit)
	defer cancel()
	// A server's limit is for answers that need nobody else. A failure shows at the write.
	_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(compareLimit + pieceLimit))
	diff, err := compare(ctx, c.segment("name"))
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, &refusal{status: http.StatusServiceUnavailable, text: fmt.Sprintf("the comparison did not end within %v", compareLimit), cause: err}
	}
	return diff, err
}

func (c *call) setPaused(paused bool) (any, error) {
	c.noBody()
	name, by := c.segment("name"), c.by()
	if c.err != nil {
		return nil, c.err
	}
	if err := c.config.Peers.Pause(c.r.Context(), name, paused, by); err != nil {
		return nil, writeOutcome(err)
	}
	c.config.Log.Info("an operator paused or resumed a peer", "peer", name, "paused", paused, "author", by.Author, "reason", by.Reason)
	c.w.WriteHeader(http.StatusNoContent)
	return answered, nil
}
