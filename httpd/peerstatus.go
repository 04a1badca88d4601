package httpd

import (
	"context"
	"encoding/json"
	"time"
)

// peersStatus is what this package shows of Peers.Status. Times are ms since the epoch, spans ms.
type peersStatus struct {
	Sender string       `json:"sender"` // the node that sends; empty: every node
	Peers  []peerStatus `json:"peers"`
}

type peerStatus struct {
	Name        string    `json:"name"`
	Kind        string    `json:"kind"`
	State       string    `json:"state"`
	Reason      string    `json:"reason"`
	LagChanges  uint64    `json:"lag_changes"`
	LagMillis   int64     `json:"lag_ms"`
	LastSuccess int64     `json:"last_success"`
	Incoming    *incoming `json:"incoming"`
}

type incoming struct {
	Instances int    `json:"instances"`
	Heard     *int64 `json:"heard_ms"`
	Cut       bool   `json:"cut"`
	OnCut     string `json:"on_cut"`
	Kept      int    `json:"kept"`
}

// statusPatience bounds what a page or an explanation waits for the state of replication, which
// another node may have to be asked for.
const statusPatience = time.Second

// peerStatus is the state of replication; empty if there is none or it cannot be told.
func (h *Handler) peerStatus(ctx context.Context) peersStatus {
	var s peersStatus
	if h.config.Peers == nil {
		return s
	}
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	doc, err := h.config.Peers.Status(ctx)
	if err == nil {
		err = json.Unmarshal(doc, &s)
	}
	if err != nil {
		h.config.Log.Warn("the state of the peers cannot be shown", "err", err)
	}
	return s
}

// onCut is the policy for the leases of a peer while its link is cut; "" if it is no peer.
func (s peersStatus) onCut(peer string) string {
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

func (s peersStatus) shown() []shownPeer {
	var shown []shownPeer
	for _, p := range s.Peers {
		row := shownPeer{Name: p.Name, Kind: p.Kind, State: p.State, Reason: p.Reason, LagChanges: p.LagChanges, Lag: shownSpan(p.LagMillis)}
		if p.LastSuccess != 0 {
			row.LastSuccess = shownTime(p.LastSuccess)
		}
		if in := p.Incoming; in != nil {
			row.Incoming = &shownIncoming{Instances: in.Instances, Kept: in.Kept, OnCut: in.OnCut, Cut: in.Cut}
			if in.Heard != nil {
				row.Incoming.Heard = shownSpan(*in.Heard)
			}
		}
		shown = append(shown, row)
	}
	return shown
}
