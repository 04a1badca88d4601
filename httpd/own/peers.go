package own

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// Peers is the replication between this node and other servers. It encodes its own messages and replies; the
// routes carry them. Errors: *PeerRefusal, or those of registry.Service.
type Peers interface {
	// Receive applies the message of a peer and returns the reply.
	Receive(ctx context.Context, message []byte) ([]byte, error)
	// Compare replies to a peer's digests with what differs here.
	Compare(ctx context.Context, message []byte) ([]byte, error)
	// State writes everything that this node has, for a node of its own datacenter that is starting.
	State(ctx context.Context, datacenter string, w io.Writer) error
	// Waits returns the name of this node while it waits, in mode ap, for another one to copy from; otherwise "".
	Waits() string
	// Levels returns the value of the header codec.LevelHeader: which levels of the formats this node reads and writes.
	Levels() string
	// AuthFile returns the value of the header link.AuthFileHeader: the digest of this node's file of roles
	// and tokens.
	AuthFile() string
	// Cut returns how long a Eureka server may be silent before its link counts as cut.
	Cut(server string) time.Duration

	// Status returns the document of GET /v1/rollcall/peers. Diff and Repair compare with a peer; Repair also sends
	// what the peer lacks. Pause stops or resumes sending to a peer. Forget discards what is known of a sender's
	// clock.
	Status(ctx context.Context) (api.Peers, error)
	Diff(ctx context.Context, peer string) (api.PeerDiff, error)
	Repair(ctx context.Context, peer string) (api.PeerDiff, error)
	Pause(ctx context.Context, peer string, paused bool, by registry.Act) error
	Forget(ctx context.Context, sender string, by registry.Act) error
}

// PeerRefusal is an error of Peers with the response to it.
type PeerRefusal struct {
	Status int    // HTTP status
	Text   string // for the caller
}

// Error implements error.
func (r *PeerRefusal) Error() string { return r.Text }

// compareLimit bounds a comparison with a peer, which asks for every application that differs, over any distance.
const compareLimit = 2 * time.Minute

// peers is GET /v1/rollcall/peers.
func (c call) peers() (any, error) { return c.config.Peers.Status(c.R.Context()) }

// diffPeer is GET /v1/rollcall/peers/{name}/diff.
func (c call) diffPeer() (any, error) { return c.comparePeer(c.config.Peers.Diff) }

// repairPeer is POST /v1/rollcall/peers/{name}/repair.
func (c call) repairPeer() (any, error) {
	diff, err := c.comparePeer(c.config.Peers.Repair)
	return diff, c.Did("peer_repair", c.Segment("name"), registry.Act{}, err)
}

// forgetSender is POST /v1/rollcall/peers/{name}/forget.
func (c call) forgetSender() (any, error) {
	sender, by := c.Segment("name"), c.By()
	if c.Err != nil {
		return nil, c.Err
	}
	if err := c.Did("sender_forget", sender, by, web.WriteError(c.config.Peers.Forget(c.R.Context(), sender, by))); err != nil {
		return nil, err
	}
	c.Log.Warn("an operator had the clock of a sender forgotten", "sender", sender, "author", by.Author, "reason", by.Reason)
	c.W.WriteHeader(http.StatusNoContent)
	return web.Sent, nil
}

func (c call) comparePeer(compare func(ctx context.Context, peer string) (api.PeerDiff, error)) (any, error) {
	ctx, cancel := context.WithTimeout(c.R.Context(), compareLimit)
	defer cancel()
	// A server's time limit is for responses that need no other server. A failure shows at the write.
	_ = http.NewResponseController(c.W).SetWriteDeadline(time.Now().Add(compareLimit + web.PieceLimit))
	diff, err := compare(ctx, c.Segment("name"))
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, &web.Refusal{Status: http.StatusServiceUnavailable, Text: fmt.Sprintf("the comparison did not end within %v", compareLimit), Cause: err}
	}
	return diff, err
}

// setPaused makes an endpoint of POST /v1/rollcall/peers/{name}/pause or …/resume.
func setPaused(paused bool) endpoint {
	return func(c call) (any, error) {
		name, by := c.Segment("name"), c.By()
		if c.Err != nil {
			return nil, c.Err
		}
		does := "peer_resume"
		if paused {
			does = "peer_pause"
		}
		if err := c.Did(does, name, by, web.WriteError(c.config.Peers.Pause(c.R.Context(), name, paused, by))); err != nil {
			return nil, err
		}
		c.Log.Info("an operator paused or resumed a peer", "peer", name, "paused", paused, "author", by.Author, "reason", by.Reason)
		c.W.WriteHeader(http.StatusNoContent)
		return web.Sent, nil
	}
}

// statusPatience bounds how long a page or an explanation waits for the state of replication, which may require asking
// another node.
const statusPatience = time.Second

// PeerStatus returns the state of replication, or an empty one without replication or if its state is unknown.
func (o *Own) PeerStatus(ctx context.Context) (s api.Peers) {
	if o.config.Peers == nil {
		return s
	}
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	s, err := o.config.Peers.Status(ctx)
	if failed := err != nil; o.peersUnknown.Swap(failed) != failed && failed {
		o.Log.Warn("the state of the peers cannot be shown", "err", err)
	}
	return s
}

// statePiece is the size in bytes of the pieces of a node's state as it is sent.
const statePiece = 64 << 10

// withPeers makes an endpoint refuse on a node that replicates nothing.
func withPeers(e endpoint) endpoint {
	return func(c call) (any, error) {
		if c.config.Peers == nil {
			return nil, errNoPeers
		}
		document, err := e(c)
		if refused, ok := errors.AsType[*PeerRefusal](err); ok {
			return nil, &web.Refusal{Status: refused.Status, Text: refused.Text, Retry: refused.Status == http.StatusServiceUnavailable, Cause: err}
		}
		return document, err
	}
}

var errNoPeers = &web.Refusal{Status: http.StatusNotImplemented, Text: "this node replicates nothing: no peer is configured (replication.nodes, replication.datacenters, replication.eureka)"}

// authFileHeader is link.AuthFileHeader of package replication.
const authFileHeader = "X-Rollcall-Auth-File"

// authModeHeader is link.AuthModeHeader of package replication.
const authModeHeader = "X-Rollcall-Auth-Mode"

// waitsHeader is rollcallpeer.waitsHeader.
const waitsHeader = "X-Rollcall-Waits"

// exchange takes a peer's message and sends the reply: POST /v1/rollcall/replication and …/digest. A message of
// unknown outcome gets the response of one that was not applied: a peer can send everything again.
func exchange(replyTo func(p Peers, ctx context.Context, message []byte) ([]byte, error)) endpoint {
	return web.BoundBatches(web.MessagePatience, withPeers(func(c call) (any, error) {
		if err := c.AllowSome(access.Peer, access.Exchange); err != nil {
			return nil, err // only the message itself, which is large, names its datacenter
		}
		message := c.Body(c.Limits().BatchBytes)
		if c.Err != nil {
			return nil, c.Err
		}
		c.W.Header().Set(codec.LevelHeader, c.config.Peers.Levels())
		c.W.Header().Set(authFileHeader, c.config.Peers.AuthFile())
		c.W.Header().Set(authModeHeader, c.AccessMode().String())
		reply, err := replyTo(c.config.Peers, c.R.Context(), message)
		if err != nil {
			return nil, web.RetryBatch(web.WriteError(err))
		}
		web.Respond(c.W, c.R, http.StatusOK, "application/octet-stream", reply)
		return web.Sent, nil
	}))
}

// replicationState is GET /v1/rollcall/replication/state: everything that this node has, for a node that is starting.
func (c call) replicationState() (any, error) {
	datacenter := c.Text("datacenter")
	if c.Err != nil {
		return nil, c.Err
	}
	c.W.Header().Set("Content-Type", "application/octet-stream")
	c.W.Header().Set("X-Content-Type-Options", "nosniff")
	if node := c.config.Peers.Waits(); node != "" {
		c.W.Header().Set(waitsHeader, node)
	}
	return c.sendPieces("a copy of the state broke off", func(w io.Writer) error {
		return c.config.Peers.State(c.R.Context(), datacenter, w)
	})
}

// sendPieces sends what write writes. A response that has begun and cannot be finished breaks off, which is logged.
func (c call) sendPieces(brokeOff string, write func(w io.Writer) error) (any, error) {
	out := web.NewPieceWriter(c.W)
	buffered := bufio.NewWriterSize(out, statePiece)
	err := write(buffered)
	if err == nil {
		err = buffered.Flush()
	}
	if err != nil && out.Begun {
		c.Log.Warn(brokeOff, "to", c.R.RemoteAddr, "err", err)
		panic(http.ErrAbortHandler)
	}
	return web.Sent, err
}
