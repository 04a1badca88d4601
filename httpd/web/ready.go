package web

// Ready is the answer of GET /readyz on a node that lacks nothing.
const Ready = "ready"

// Part is something that a node needs to be ready.
type Part struct {
	Name  string
	Lacks string // in words; empty if nothing is missing
}

// Sentence is the answer of GET /readyz on a node that lacks the part.
func (p Part) Sentence() string { return "not ready: " + p.Lacks }

// NeededParts returns what the node needs to serve reads, and with writes to serve changes.
func (n *Node) NeededParts(writes bool) []Part {
	health := n.Service.Health()
	lacking := func(is bool, text string) string {
		if is {
			return text
		}
		return ""
	}
	all := []Part{
		{"running", lacking(n.Draining.Load(), "the node is shutting down")},
		{"state", lacking(!health.Ready, "the node is still loading its state or has not heard of a leader yet")},
	}
	if writes && !n.WithoutConsensus {
		all = append(all, Part{"writes", lacking(!health.Quorum, "no leader is known, or no majority of the nodes can be reached")})
	}
	return all
}

// Readiness reports whether the node is ready, as GET /readyz does, and says in a sentence what it lacks, for writes
// too.
func (n *Node) Readiness() (ready bool, sentence string) {
	for _, p := range n.NeededParts(true) {
		if p.Lacks != "" {
			return p.Name == "writes", p.Sentence()
		}
	}
	return true, Ready
}
