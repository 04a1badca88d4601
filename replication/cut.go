package replication

import (
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

// The silence after which a link counts as cut. A Rollcall peer is heard at least every few seconds; a
// Eureka server when it has something to replicate, or renews its own registration.
const (
	datacenterCut = 15 * time.Second
	eurekaCut     = 90 * time.Second
)

// Cut is how long a datacenter or Eureka server may be silent before its link counts as cut.
func (r *Replicator) Cut(dc string) time.Duration {
	if p := r.remote(dc); p != nil && p.Kind == Datacenter {
		return datacenterCut
	}
	return eurekaCut
}

// remote is the peer that is a datacenter of this name, or a Eureka server; nil: there is none.
func (r *Replicator) remote(dc string) *peer {
	for _, p := range r.peers {
		if p.Kind != Node && p.Name == dc {
			return p
		}
	}
	return nil
}

// Spares says whether leases of another datacenter, whose time has passed, stay for now: its link is
// cut, and that is the policy that holds in the cluster. Heard is how long ago (lease clock) it was last
// heard; ok is false if it never was.
func (r *Replicator) Spares(dc string, heard time.Duration, ok bool) bool {
	p := r.remote(dc)
	if p == nil || !p.cut(heard, ok) {
		return false
	}
	c := policyOf(p.view(), dc)
	return c.Keep && (c.For == 0 || ok && heard <= c.For)
}

// cut says whether a peer's link counts as cut. A Eureka server that takes what is sent to it is there,
// and has nothing to say.
func (p *peer) cut(heard time.Duration, ok bool) bool {
	if p.Kind == Eureka {
		return (!ok || heard > eurekaCut) && p.failing()
	}
	return !ok || heard > datacenterCut
}

// Age is the time since the node of the own datacenter that was silent longest was last reached; 0 if
// there is none.
func (r *Replicator) Age() time.Duration {
	var age time.Duration
	for _, p := range r.peers {
		if p.Kind == Node {
			age = max(age, p.silence())
		}
	}
	return age
}

// share is what belongs to a datacenter: instances, and those of them whose time has passed.
type share struct{ instances, kept int }

// belonging counts what belongs to each datacenter, if any is a peer.
func (r *Replicator) belonging(v *registry.View, now int64) map[string]share {
	shares := make(map[string]share)
	for _, p := range r.peers {
		if p.Kind != Node {
			shares[p.Name] = share{}
		}
	}
	if len(shares) == 0 {
		return nil
	}
	for l := range v.All() {
		s, ok := shares[l.Owner]
		if !ok {
			continue
		}
		s.instances++
		if now > v.Ends(l) {
			s.kept++
		}
		shares[l.Owner] = s
	}
	return shares
}

// incoming is what is known of a datacenter that sends; nil of nodes of the own one.
func (p *peer) incoming(v *registry.View, now int64, s share) *api.Incoming {
	if p.Kind == Node {
		return nil
	}
	in := &api.Incoming{Instances: s.instances, OnCut: policyOf(v, p.Name).String(), Kept: s.kept}
	link, ok := v.Link(p.Name)
	heard := max(0, now-link.Heard)
	if ok {
		in.HeardMS = &heard
	}
	in.Cut = p.cut(time.Duration(heard)*time.Millisecond, ok)
	return in
}
