package replication

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// CutPolicy says what happens to a peer's expired instances while its link is cut. The policy of a cluster is part of
// its state (registry.Settings.OnCut), so that a new leader decides as the one before, and every node can say what is
// decided.
type CutPolicy struct {
	Keep bool          // keep them
	For  time.Duration // with Keep, from the last contact; 0 means as long as the cut lasts
}

const keepFor = "keep-for:"

// ParseCutPolicy reads keep, keep-for:1h or expire.
func ParseCutPolicy(text string) (CutPolicy, error) {
	switch span, bounded := strings.CutPrefix(text, keepFor); {
	case text == "keep":
		return CutPolicy{Keep: true}, nil
	case text == "expire":
		return CutPolicy{}, nil
	case bounded:
		if d, err := time.ParseDuration(span); err == nil && d > 0 {
			return CutPolicy{Keep: true, For: d}, nil
		}
	}
	return CutPolicy{}, fmt.Errorf("%q is not one of keep, keep-for:1h (with any duration) and expire", text)
}

// String describes the policy in the words of the configuration.
func (c CutPolicy) String() string {
	switch {
	case !c.Keep:
		return "expire"
	case c.For > 0:
		return "keep for " + c.For.String()
	}
	return "keep"
}

// setting returns the policy in the form that ParseCutPolicy reads.
func (c CutPolicy) setting() string {
	if c.Keep && c.For > 0 {
		return keepFor + c.For.String()
	}
	return c.String()
}

// OnCut writes policies, by peer, as registry.Settings have them: equal ones to equal texts. Those whose
// instances are kept without a bound, as by default, are left out.
func OnCut(policies map[string]CutPolicy) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(policies)) {
		if c := policies[name]; c != (CutPolicy{Keep: true}) {
			words = append(words, name+"="+c.setting())
		}
	}
	return strings.Join(words, ",")
}

// policyOf returns the policy for a peer that is in force in a state. Instances whose policy is missing or cannot be
// parsed are kept.
func policyOf(v *registry.View, peer string) CutPolicy {
	for word := range strings.SplitSeq(v.Settings().OnCut, ",") {
		if name, text, _ := strings.Cut(word, "="); name == peer {
			if c, err := ParseCutPolicy(text); err == nil {
				return c
			}
		}
	}
	return CutPolicy{Keep: true}
}

// cut reports whether a peer's link counts as cut. A Eureka server that accepts what is sent to it is there, and
// merely has nothing to say.
func (p *peer) cut(heard time.Duration, ok bool) bool {
	silent := !ok || heard > p.CutAfter()
	return silent && (p.Kind != link.Eureka || p.failing())
}

// share counts the instances that belong to a datacenter, and the expired ones among them.
type share struct{ instances, kept int }

// belonging counts what belongs to each datacenter, if any of them is a peer.
func belonging(peers []*peer, v *registry.View, now int64) map[string]share {
	shares := make(map[string]share)
	for _, p := range peers {
		if p.Kind != link.Node {
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

// incoming describes a datacenter that sends; nil for nodes of this one.
func (p *peer) incoming(v *registry.View, now int64, s share) *api.Incoming {
	if p.Kind == link.Node {
		return nil
	}
	in := &api.Incoming{Instances: s.instances, OnCut: policyOf(v, p.Name).String(), Kept: s.kept}
	link, ok := v.Link(p.Name)
	heard := max(0, now-link.LastContact)
	if ok {
		in.HeardMS = &heard
	}
	in.Cut = p.cut(time.Duration(heard)*time.Millisecond, ok)
	return in
}
