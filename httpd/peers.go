package httpd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

// Peers is the replication between this node and other servers. Messages and answers are its own; the
// Handler carries them. Errors: *PeerRefusal, or those of registry.Service.
type Peers interface {
	// Receive applies what a peer sends and returns the answer.
	Receive(ctx context.Context, message []byte) ([]byte, error)
	// Compare answers a peer's digests with what differs here.
	Compare(ctx context.Context, message []byte) ([]byte, error)
	// State writes everything that this node has, for a node of its own datacenter that starts.
	State(ctx context.Context, datacenter string, w io.Writer) error
	// Cut is how long a Eureka server may be silent before its link counts as cut.
	Cut(server string) time.Duration

	// Status is the answer of GET /v1/rollcall/peers. Diff and Repair compare with a peer, Repair sends
	// what it lacks. Pause stops the sending to a peer or resumes it. Forget forgets what is known of a
	// sender's clock.
	Status(ctx context.Context) (api.Peers, error)
	Diff(ctx context.Context, peer string) (api.PeerDiff, error)
	Repair(ctx context.Context, peer string) (api.PeerDiff, error)
	Pause(ctx context.Context, peer string, paused bool, by registry.Act) error
	Forget(ctx context.Context, sender string, by registry.Act) error
}

// PeerRefusal is an error of Peers whose answer it knows.
type PeerRefusal struct {
	Status int    // of HTTP
	Text   string // for the caller
}

// Error implements error.
func (r *PeerRefusal) Error() string { return r.Text }

// compareLimit is how long a comparison with a peer may take: it asks for every application that
// differs, over whatever distance.
const compareLimit = 2 * time.Minute

// peers is GET /v1/rollcall/peers.
func (c *call) peers() (any, error) { return c.config.Peers.Status(c.r.Context()) }

// diffPeer is GET /v1/rollcall/peers/{name}/diff.
func (c *call) diffPeer() (any, error) { return c.comparePeer(c.config.Peers.Diff) }

// repairPeer is POST /v1/rollcall/peers/{name}/repair.
func (c *call) repairPeer() (any, error) { return c.comparePeer(c.config.Peers.Repair) }

// pausePeer is POST /v1/rollcall/peers/{name}/pause.
func (c *call) pausePeer() (any, error) { return c.setPaused(true) }

// resumePeer is POST /v1/rollcall/peers/{name}/resume.
func (c *call) resumePeer() (any, error) { return c.setPaused(false) }

// forgetSender is POST /v1/rollcall/peers/{name}/forget.
func (c *call) forgetSender() (any, error) {
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

// statusPatience bounds what a page or an explanation waits for the state of replication, which
// another node may have to be asked for.
const statusPatience = time.Second

// peerStatus is the state of replication; empty if there is none or it cannot be told.
func (h *Handler) peerStatus(ctx context.Context) (s api.Peers) {
	if h.config.Peers == nil {
		return s
	}
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	s, err := h.config.Peers.Status(ctx)
	if err != nil {
		h.config.Log.Warn("the state of the peers cannot be shown", "err", err)
	}
	return s
}

// onCut is the policy for the leases of a peer while its link is cut; "" if it is no peer.
func onCut(s api.Peers, peer string) string {
	for _, p := range s.Peers {
		if p.Name == peer && p.Incoming != nil {
			return p.Incoming.OnCut
		}
	}
	return ""
}

// shownPeer is a peer on the front page.
type shownPeer struct {
	Name, Kind, State, Reason string
	LagChanges                uint64
	Lag, LastSuccess          string // LastSuccess is empty if there was none
	Incoming                  *shownIncoming
}

// shownIncoming is what comes from another datacenter.
type shownIncoming struct {
	Instances, Kept int
	Heard, OnCut    string // Heard is empty if it never was
	Cut             bool
}

func shownPeers(s api.Peers) []shownPeer {
	var shown []shownPeer
	for _, p := range s.Peers {
		row := shownPeer{Name: p.Name, Kind: p.Kind, State: p.State, Reason: p.Reason, LagChanges: p.LagChanges, Lag: shownSpan(p.LagMS)}
		if p.LastSuccess != 0 {
			row.LastSuccess = shownTime(p.LastSuccess)
		}
		if in := p.Incoming; in != nil {
			row.Incoming = &shownIncoming{Instances: in.Instances, Kept: in.Kept, OnCut: in.OnCut, Cut: in.Cut}
			if in.HeardMS != nil {
				row.Incoming.Heard = shownSpan(*in.HeardMS)
			}
		}
		shown = append(shown, row)
	}
	return shown
}
