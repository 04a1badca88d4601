package fsm

import (
	"cmp"
	"slices"
	"sort"

	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// maxRemembered bounds the remembered batches of one node. A node has two batches in progress at a time, and reports
// with each which ones are finished, so a node that keeps to its contract never comes near. Beyond the bound the
// lowest number counts as finished: its repetition is refused, which is safe, while just dropping it would let it
// take effect twice.
const maxRemembered = 64

// memory makes a batch take effect at most once. It has, per node, the newest boot, the number up to which every
// batch is finished, and the results of the batches above it. It stays when a node falls silent: a few dozen bytes,
// plus the results of at most maxRemembered batches.
type memory map[string]*nodeMemory

type nodeMemory struct {
	boot     uint64
	finished uint64       // every batch up to this number has been answered or abandoned; never goes back
	batches  []remembered // above finished, sorted by number
}

// remembered is the result of the batch numbered seq. It is immutable.
type remembered struct {
	seq     uint64
	results Results
}

func (r *remembered) fields(c *codec.Codec) {
	c.Uint64(&r.seq)
	r.results.fields(c)
}

// standing says what to do with a batch.
type standing uint8

const (
	fresh    standing = iota // apply it and remember the results
	repeated                 // return the remembered results
	refused                  // it may already have had its effect, or must no longer have one
)

// classify returns the standing of a batch, after noting what the batch itself reports as finished. For a repeated
// one it also returns the remembered results.
func (m memory) classify(id BatchID) (standing, remembered) {
	node, ok := m[id.Node]
	if !ok || id.Boot > node.boot {
		node = &nodeMemory{boot: id.Boot}
		m[id.Node] = node
	}
	if id.Boot < node.boot {
		return refused, remembered{}
	}
	node.finish(id.Finished)
	if id.Seq <= node.finished {
		return refused, remembered{}
	}
	if i, ok := node.find(id.Seq); ok {
		return repeated, node.batches[i]
	}
	return fresh, remembered{}
}

// remember keeps the results of a batch that classify called fresh.
func (m memory) remember(id BatchID, results Results) {
	node := m[id.Node]
	i, _ := node.find(id.Seq)
	node.batches = slices.Insert(node.batches, i, remembered{seq: id.Seq, results: results.kept()})
	if len(node.batches) > maxRemembered {
		node.finish(node.batches[0].seq)
	}
}

func (n *nodeMemory) find(seq uint64) (int, bool) {
	return slices.BinarySearchFunc(n.batches, seq, func(r remembered, seq uint64) int { return cmp.Compare(r.seq, seq) })
}

// finish drops the results of the batches up to a number. The number never goes back.
func (n *nodeMemory) finish(upTo uint64) {
	if upTo <= n.finished {
		return
	}
	n.finished = upTo
	n.batches = slices.DeleteFunc(n.batches, func(r remembered) bool { return r.seq <= upTo })
}

// frozenNode is a nodeMemory in a snapshot.
type frozenNode struct {
	name string
	nodeMemory
}

func (n *frozenNode) fields(c *codec.Codec) {
	c.String(&n.name)
	c.Uint64(&n.boot)
	c.Uint64(&n.finished)
}

// freeze copies the memory, sorted by node because snapshots of equal states are equal bytes.
func (m memory) freeze() []frozenNode {
	nodes := make([]frozenNode, 0, len(m))
	for name, n := range m {
		frozen := nodeMemory{boot: n.boot, finished: n.finished, batches: slices.Clone(n.batches)}
		nodes = append(nodes, frozenNode{name: name, nodeMemory: frozen})
	}
	sort.Slice(nodes, func(i, j int) bool { return nodes[i].name < nodes[j].name })
	return nodes
}
