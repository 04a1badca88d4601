package httpd

import (
	"bufio"
	"context"
	"net/http"
)

// statePiece is the size in bytes of what a node that copies the state is sent at a time.
const statePiece = 64 << 10

// withPeers is an endpoint of a node that has peers.
func withPeers(e endpoint) endpoint {
	return func(c *call) (any, error) {
		if c.config.Peers == nil {
			return nil, errNoPeers
		}
		return e(c)
	}
}

var errNoPeers = &refusal{status: http.StatusNotImplemented, text: "this node replicates nothing: no peer is configured (replication.nodes, replication.datacenters, replication.eureka)"}

// exchange is a message of a peer and its answer: POST /v1/rollcall/replication and …/digest. One
// whose outcome nobody knows is answered like one that was not applied: all that a peer sends can be
// sent again.
func exchange(answerTo func(p Peers, ctx context.Context, message []byte) ([]byte, error)) endpoint {
	return ofBatches(messagePatience, withPeers(func(c *call) (any, error) {
		message := c.body(c.config.Limits.BatchBytes)
		if c.err != nil {
			return nil, c.err
		}
		answer, err := answerTo(c.config.Peers, c.r.Context(), message)
		if err != nil {
			return nil, retryBatch(writeOutcome(err))
		}
		respond(c.w, c.r, http.StatusOK, "application/json", answer)
		return answered, nil
	}))
}

// replicationState is GET /v1/rollcall/replication/state: everything that this node has, for one that
// starts. An answer that has begun and cannot be finished breaks off.
func (c *call) replicationState() (any, error) {
	datacenter := c.text("datacenter")
	if c.err != nil {
		return nil, c.err
	}
	c.w.Header().Set("Content-Type", "application/x-ndjson")
	c.w.Header().Set("X-Content-Type-Options", "nosniff")
	out := newPieceWriter(c.w)
	buffered := bufio.NewWriterSize(out, statePiece)
	err := c.config.Peers.State(c.r.Context(), datacenter, buffered)
	if err == nil {
		err = buffered.Flush()
	}
	if err != nil && out.begun {
		c.config.Log.Warn("a copy of the state broke off", "to", c.r.RemoteAddr, "err", err)
		panic(http.ErrAbortHandler)
	}
	return answered, err
}
