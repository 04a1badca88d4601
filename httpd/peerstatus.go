package httpd

import (
	"context"
	"time"

	"github.com/seed-20419f34/rollcall/httpd/api"
)

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
