package httpd

import (
	"bufio"
	"context"
	"net/http"

	"github.com/seed-20419f34/rollcall/fsm/registry"
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
		respond(c.w, c.r, http.StatusOK, "application/octet-stream", answer)
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
	c.w.Header().Set("Content-Type", "application/octet-stream")
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

// What Eureka servers send comes in two forms: batches, and single calls of clients' routes with a
// header. (Other Rollcall servers have an endpoint of their own.)

// isReplication says that another server had the request first. Exactly true counts, as upstream.
func isReplication(r *http.Request) bool {
	values := r.Header["X-Netflix-Discovery-Replication"]
	return len(values) > 0 && values[0] == "true"
}

// originOf says who sent a request of Eureka's protocol other than a batch.
func (h *Handler) originOf(r *http.Request) registry.Origin {
	if isReplication(r) {
		return h.serverOf(r)
	}
	return registry.FromClient
}

// serverOf is the origin of what a Eureka server sends: a datacenter of its own.
func (h *Handler) serverOf(r *http.Request) registry.Origin {
	if h.config.EurekaSender == nil {
		return registry.FromEureka
	}
	return registry.Origin{
		Kind: registry.RemoteDC,
		DC:   h.config.EurekaSender(r.Header.Get("DiscoveryIdentity-Id"), r.RemoteAddr),
	}
}

// contactEvery is how often it is noted that a Eureka server was heard, ms of lease clock.
const contactEvery = 1000

// perform applies operations of a request in order, as one unit of work. What a Eureka server sends
// also shows that its link is alive, which is noted with it.
func (h *Handler) perform(ctx context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	if !origin.Replicated() || !h.contactIsDue(origin.DC) {
		return h.config.Service.Apply(ctx, origin, ops...)
	}
	contact := registry.Contact{DC: origin.DC, Cut: h.config.Peers.Cut(origin.DC).Milliseconds()}
	results, err := h.config.Service.Apply(ctx, origin, append([]registry.Op{contact}, ops...)...)
	if err != nil {
		return nil, err
	}
	return results[1:], nil
}

// contactIsDue says whether the last contact with a Eureka server, as this node knows it, is old.
// Without replication nobody asks for it.
func (h *Handler) contactIsDue(server string) bool {
	if h.config.Peers == nil {
		return false
	}
	v := staleView(h.config.Service)
	if v == nil {
		return false
	}
	link, known := v.Link(server)
	return !known || h.config.Service.Health().Clock-link.Heard > contactEvery
}
