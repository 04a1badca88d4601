package httpd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// compareLimit is how long a comparison with a peer may take: it asks for every application that
// differs, over whatever distance.
const compareLimit = 2 * time.Minute

// peers is GET /v1/rollcall/peers.
func (h *Handler) peers(p Peers, w http.ResponseWriter, r *http.Request) error {
	status, err := p.Status(r.Context())
	if err != nil {
		return err
	}
	return respondJSON(w, r, status)
}

// diffPeer is GET /v1/rollcall/peers/{name}/diff.
func (h *Handler) diffPeer(p Peers, w http.ResponseWriter, r *http.Request) error {
	return comparePeer(w, r, p.Diff)
}

// repairPeer is POST /v1/rollcall/peers/{name}/repair.
func (h *Handler) repairPeer(p Peers, w http.ResponseWriter, r *http.Request) error {
	if err := ignoreBody(w, r, h.config.Limits.IgnoredBytes); err != nil {
		return err
	}
	return comparePeer(w, r, p.Repair)
}

func comparePeer(w http.ResponseWriter, r *http.Request, compare func(ctx context.Context, peer string) (json.RawMessage, error)) error {
	ctx, cancel := context.WithTimeout(r.Context(), compareLimit)
	defer cancel()
	// A server's limit is for answers that need nobody else. A failure shows at the write.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(compareLimit + pieceLimit))
	diff, err := compare(ctx, pathVar(r, "name"))
	if errors.Is(err, context.DeadlineExceeded) {
		return &refusal{status: http.StatusServiceUnavailable, text: fmt.Sprintf("the comparison did not end within %v", compareLimit), cause: err}
	}
	if err != nil {
		return err
	}
	return respondJSON(w, r, diff)
}

// pausePeer is POST /v1/rollcall/peers/{name}/pause.
func (h *Handler) pausePeer(p Peers, w http.ResponseWriter, r *http.Request) error {
	return h.setPaused(p, w, r, true)
}

// resumePeer is POST /v1/rollcall/peers/{name}/resume.
func (h *Handler) resumePeer(p Peers, w http.ResponseWriter, r *http.Request) error {
	return h.setPaused(p, w, r, false)
}

func (h *Handler) setPaused(p Peers, w http.ResponseWriter, r *http.Request, paused bool) error {
	by, err := bareAct(h, w, r)
	if err != nil {
		return err
	}
	name := pathVar(r, "name")
	if err := p.Pause(r.Context(), name, paused, by); err != nil {
		return writeOutcome(err)
	}
	h.config.Log.Info("an operator paused or resumed a peer", "peer", name, "paused", paused, "author", by.Author, "reason", by.Reason)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// forgetSender is POST /v1/rollcall/peers/{name}/forget.
func (h *Handler) forgetSender(p Peers, w http.ResponseWriter, r *http.Request) error {
	by, err := bareAct(h, w, r)
	if err != nil {
		return err
	}
	sender := pathVar(r, "name")
	if err := p.Forget(r.Context(), sender, by); err != nil {
		return writeOutcome(err)
	}
	h.config.Log.Warn("an operator had the clock of a sender forgotten", "sender", sender, "author", by.Author, "reason", by.Reason)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// bareAct is an operator's act without a body.
func bareAct(h *Handler, w http.ResponseWriter, r *http.Request) (registry.Act, error) {
	if err := ignoreBody(w, r, h.config.Limits.IgnoredBytes); err != nil {
		return registry.Act{}, err
	}
	return actOf(r)
}
