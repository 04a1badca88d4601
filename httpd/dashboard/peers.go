package dashboard

import (
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/show"
)

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
		row := shownPeer{Name: p.Name, Kind: p.Kind, State: p.State, Reason: p.Reason, LagChanges: p.LagChanges, Lag: show.Span(p.LagMS)}
		if p.LastSuccess != 0 {
			row.LastSuccess = show.Time(p.LastSuccess)
		}
		if in := p.Incoming; in != nil {
			row.Incoming = &shownIncoming{Instances: in.Instances, Kept: in.Kept, OnCut: in.OnCut, Cut: in.Cut}
			if in.HeardMS != nil {
				row.Incoming.Heard = show.Span(*in.HeardMS)
			}
		}
		shown = append(shown, row)
	}
	return shown
}
