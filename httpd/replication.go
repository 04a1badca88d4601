package httpd

import (
	"bufio"
	"context"
	"net/http"
)

// statePiece is the size in bytes of what a node that copies the state is sent at a time.
const statePiece = 64 << 10

// withPeers is an endpoint of a node that has peers.
func (h *Handler) withPeers(e func(p Peers, w http.ResponseWriter, r *http.Request) error) endpoint {
	if h.config.Peers == nil {
		return func(http.ResponseWriter, *http.Request) error { return errNoPeers }
	}
	return func(w http.ResponseWriter, r *http.Request) error { return e(h.config.Peers, w, r) }
}

var errNoPeers = &refusal{status: http.StatusNotImplemented, text: "this node replicates nothing: no peer is configured (replication.nodes, replication.datacenters, replication.eureka)"}

// exchange is a message of a peer and its answer: POST /v1/rollcall/replication and …/digest. One
// whose outcome nobody knows is answered like one that was not applied: all that a peer sends can be
// sent again.
func (h *Handler) exchange(answerTo func(p Peers, ctx context.Context, message []byte) ([]byte, error)) endpoint {
	return h.ofBatches(messagePatience, h.withPeers(func(p Peers, w http.ResponseWriter, r *http.Request) error {
		message, err := readBody(w, r, h.config.Limits.BatchBytes)
		if err != nil {
			return err
		}
		answer, err := answerTo(p, r.Context(), message)
		if err != nil {
			return retryBatch(writeOutcome(err))
		}
		respond(w, r, http.StatusOK, "application/json", answer)
		return nil
	}))
}

// replicationState is GET /v1/rollcall/replication/state: everything that this node has, for one that
// starts. An answer that has begun and cannot be finished breaks off.
func (h *Handler) replicationState(p Peers, w http.ResponseWriter, r *http.Request) error {
	datacenter, _, err := param(r.URL.RawQuery, "datacenter")
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	out := newPieceWriter(w)
	buffered := bufio.NewWriterSize(out, statePiece)
	err = p.State(r.Context(), datacenter, buffered)
	if err == nil {
		err = buffered.Flush()
	}
	if err != nil && out.begun {
		h.config.Log.Warn("a copy of the state broke off", "to", r.RemoteAddr, "err", err)
		panic(http.ErrAbortHandler)
	}
	return err
}
