package registry

// What things take beside their texts, in bytes, about. Equal states must have equal weights, on a node that has
// applied all operations as on one that was restored: by weight it is decided which records of removals are kept.
const (
	nodeWeight    = 512
	checkWeight   = 512
	removalWeight = 1024
	leaseWeight   = 1024
	eventWeight   = 96
	pairWeight    = 32
)

// Weight is what a node takes with its checks, in bytes, about.
func (n *Node) Weight() int {
	bytes := n.ownWeight()
	for _, c := range n.Checks {
		bytes += c.weight()
	}
	return bytes
}

func (n *Node) ownWeight() int {
	return nodeWeight + len(n.ID) + len(n.Name) + len(n.Address) + weightOf(n.Tagged) + weightOf(n.Meta)
}

func (c *Check) weight() int {
	bytes := checkWeight + len(c.ID) + len(c.Name) + len(c.Notes) + len(c.Output) + len(c.Type) + len(c.Definition)
	if p := c.Probe; p != nil {
		bytes += len(p.HTTP) + len(p.Method) + len(p.Body) + len(p.TCP) + weightOf(p.Header)
	}
	return bytes
}

// weight is what a record of a removal takes, in bytes, about.
func (m Removal) weight() int {
	bytes := removalWeight + m.Lease.Instance.weight() + len(m.Lease.Origin.DC) + len(m.Lease.Owner)
	if q := m.Lease.Quarantine; q != nil {
		bytes += q.By.weight()
	}
	p := m.History.newest
	for range p.length() {
		bytes += eventWeight
		if p.who != nil {
			bytes += len(p.who.origin.DC) + p.who.by.weight()
		}
		p = p.before
	}
	return bytes
}

func (a Act) weight() int { return len(a.Author) + len(a.Reason) }

func weightOf(pairs []Pair) (bytes int) {
	for _, p := range pairs {
		bytes += pairWeight + len(p.Key) + len(p.Value)
	}
	return bytes
}

// Weight is what a lease takes, in bytes, about: in memory, and as a text in answers.
func (l *Lease) Weight() int {
	bytes := leaseWeight + l.Instance.weight()
	s := l.Service
	if s == nil {
		return bytes
	}
	bytes += len(s.Address) + len(s.SocketPath) + len(s.Locality) + len(s.Ports)
	for _, tag := range s.Tags {
		bytes += pairWeight + len(tag)
	}
	for _, t := range s.Tagged {
		bytes += pairWeight + len(t.Tag) + len(t.Address)
	}
	for _, c := range s.Checks {
		bytes += c.weight()
	}
	return bytes
}
