package membership

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
)

// Verdict is the outcome of a comparison.
type Verdict string

// The verdicts.
const (
	verdictEqual     Verdict = "equal"
	verdictDiffer    Verdict = "differ"
	VerdictUndecided Verdict = "undecided" // not all nodes could be compared, and those that could are equal
)

// oldestDigest is the oldest that digests may be to prove anything: while entries arrive, there are new ones every
// DigestInterval.
const oldestDigest = 3 * DigestInterval

// replica is a node to be compared.
type replica struct {
	Name    string
	Failed  bool // the node did not reply
	Digests []Digest
}

// ComparedNode is the result of a comparison for one node.
type ComparedNode struct {
	Name    string
	Digest  *Digest  // at the index of the comparison; nil if the node has none
	Differs []string // the parts that differ from a majority or, without a majority, from any other node
	Failed  bool     // the node did not reply
}

// Comparison is the result of comparing nodes at one index.
type Comparison struct {
	Index   uint64        // index of a log entry; 0 if no node has a digest
	Age     time.Duration // of the oldest digest
	Verdict Verdict
	Nodes   []ComparedNode // in the order given
}

// compareReplicas compares nodes at the newest index for which most of them have a digest.
func compareReplicas(nodes []replica) Comparison {
	c := Comparison{Index: indexOf(nodes), Verdict: verdictEqual}
	for _, n := range nodes {
		k := ComparedNode{Name: n.Name, Failed: n.Failed}
		// A node of another version may have other parts, which cannot be compared.
		comparable := func(d Digest) bool { return d.Index == c.Index && len(d.Parts) == len(fsm.DigestParts()) }
		if i := slices.IndexFunc(n.Digests, comparable); i >= 0 {
			k.Digest = &n.Digests[i]
			c.Age = max(c.Age, k.Digest.Age)
		}
		c.Nodes = append(c.Nodes, k)
		if k.Digest == nil {
			c.Verdict = VerdictUndecided
		}
	}
	if c.Age > oldestDigest || len(nodes) == 0 {
		c.Verdict = VerdictUndecided
	}
	if c.nameDiffering() {
		c.Verdict = verdictDiffer
	}
	return c
}

// indexOf returns the newest index for which most nodes have a digest.
func indexOf(nodes []replica) (index uint64) {
	having := map[uint64]int{}
	for _, n := range nodes {
		for _, d := range n.Digests {
			having[d.Index]++
		}
	}
	for i, n := range having {
		if n > having[index] || n == having[index] && i > index {
			index = i
		}
	}
	return index
}

// nameDiffering records for each node the parts that differ from those that more than half of all nodes share.
// Without such a majority nothing tells which is right, and it records the parts that differ from any other node.
func (c *Comparison) nameDiffering() (some bool) {
	right := c.majority()
	for i, n := range c.Nodes {
		if n.Digest == nil {
			continue
		}
		for p, name := range fsm.DigestParts() {
			differs := func(other ComparedNode) bool {
				return other.Digest != nil && (right == nil || other.Digest == right) && other.Digest.Parts[p] != n.Digest.Parts[p]
			}
			if slices.ContainsFunc(c.Nodes, differs) {
				c.Nodes[i].Differs = append(c.Nodes[i].Differs, name)
				some = true
			}
		}
	}
	return some
}

// majority returns the digest that more than half of all nodes have, or nil.
func (c *Comparison) majority() *Digest {
	for _, n := range c.Nodes {
		if n.Digest == nil {
			continue
		}
		equal := 0
		for _, other := range c.Nodes {
			if other.Digest != nil && slices.Equal(other.Digest.Parts, n.Digest.Parts) {
				equal++
			}
		}
		if 2*equal > len(c.Nodes) {
			return n.Digest
		}
	}
	return nil
}

// Sum returns a digest as people compare it: the checksums of all parts in one.
func (d Digest) Sum() string {
	sum := uint64(14695981039346656037) // FNV-1a, 64 bits at a time
	for _, p := range d.Parts {
		sum = (sum ^ p) * 1099511628211
	}
	return fmt.Sprintf("%016x", sum)
}

// String returns the result for a node as a sentence.
func (k ComparedNode) String() string {
	switch {
	case k.Failed:
		return "It could not be asked."
	case k.Digest == nil:
		return "It has no digest of this entry that can be compared: it makes one each minute, once it is ready, and those of different versions may not be comparable."
	case len(k.Differs) > 0:
		return "It differs from the others: " + strings.Join(k.Differs, ", ") + "."
	}
	return "No difference was found."
}

// String returns the result of a comparison as a sentence.
func (c Comparison) String() string {
	if c.Index == 0 {
		return "No node has a digest yet: each makes one a minute, once it is ready."
	}
	at := fmt.Sprintf("at log entry %d, %v ago", c.Index, c.Age.Round(time.Second))
	switch {
	case c.Verdict == verdictDiffer:
		return "The replicas differ " + at + "."
	case c.Verdict == verdictEqual:
		return "All replicas are equal " + at + "."
	case c.Age > oldestDigest:
		return fmt.Sprintf("The newest digests are too old to prove anything: %s. There are new ones each minute while a node leads.", at)
	}
	return "Not all replicas could be compared " + at + "."
}
