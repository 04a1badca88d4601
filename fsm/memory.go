package fsm

import (
	"cmp"
	"slices"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// maxAnswers bounds the answers that are remembered for one node. A node has two batches unanswered
// at a time, and reports with each what it has answered or given up, so a node that keeps to its
// contract never comes near. Beyond the bound the lowest number counts as answered: its repetition
// is refused, which is safe, where forgetting it would let it take effect twice.
const maxAnswers = 64

// memory is what makes a batch take effect at most once: per node, the newest boot, the number up to
// which everything is answered, and the answers above it. It stays when a node falls silent: some
// dozen bytes, beside the answers of at most maxAnswers batches.
type memory map[string]*nodeMemory

type nodeMemory struct {
	boot     uint64
	answered uint64
	answers  []answer // above answered, sorted by number
}

// answer has what the batch numbered seq brought about: BatchResult.Results and BatchResult.KV, both
// immutable.
type answer struct {
	seq     uint64
	results []registry.Result
	kv      []kv.Result
}

func (a *answer) fields(c *codec.Codec) {
	c.Uint64(&a.seq)
	walkResults(c, &a.results, &a.kv)
}

// verdict says what is to be done with a batch.
type verdict uint8

const (
	fresh    verdict = iota // apply it and remember the results
	repeated                // return the remembered results
	refused                 // it may have had its effect already, or must not have one any more
)

// judge looks a batch up, after it took over what the batch itself reports as answered. The answer is
// that of a repeated one.
func (m memory) judge(id BatchID) (verdict, answer) {
	node, ok := m[id.Node]
	if !ok || id.Boot > node.boot {
		node = &nodeMemory{boot: id.Boot}
		m[id.Node] = node
	}
	if id.Boot < node.boot {
		return refused, answer{}
	}
	node.settle(id.Answered)
	if id.Seq <= node.answered {
		return refused, answer{}
	}
	if i, ok := node.find(id.Seq); ok {
		return repeated, node.answers[i]
	}
	return fresh, answer{}
}

// remember keeps the answer to a batch that judge called fresh.
func (m memory) remember(id BatchID, results []registry.Result, coordination []kv.Result) {
	node := m[id.Node]
	i, _ := node.find(id.Seq)
	node.answers = slices.Insert(node.answers, i, answer{seq: id.Seq, results: results, kv: kept(coordination)})
	if len(node.answers) > maxAnswers {
		node.settle(node.answers[0].seq)
	}
}

// keptRead bounds what is remembered of what the operations of a batch have read, in bytes: snapshots have it too.
const keptRead = 1 << 20

// kept are results as they are remembered: what was read goes where it is too much, for one or for all.
func kept(results []kv.Result) []kv.Result {
	left := keptRead
	var all []kv.Result // a copy, once one differs
	for i, r := range results {
		k := r.Kept(min(left, kv.MaxKeptRead))
		left -= k.Weight()
		if k.Excess != r.Excess {
			if all == nil {
				all = slices.Clone(results)
			}
			all[i] = k
		}
	}
	if all == nil {
		return results
	}
	return all
}

func (n *nodeMemory) find(seq uint64) (int, bool) {
	return slices.BinarySearchFunc(n.answers, seq, func(a answer, seq uint64) int { return cmp.Compare(a.seq, seq) })
}

// settle forgets the answers up to a number. The number never goes back.
func (n *nodeMemory) settle(answered uint64) {
	if answered <= n.answered {
		return
	}
	n.answered = answered
	n.answers = slices.DeleteFunc(n.answers, func(a answer) bool { return a.seq <= answered })
}

// frozenNode is a nodeMemory in a snapshot.
type frozenNode struct {
	name string
	nodeMemory
}

func (n *frozenNode) fields(c *codec.Codec) {
	c.String(&n.name)
	c.Uint64(&n.boot)
	c.Uint64(&n.answered)
}

// freeze copies the memory, sorted by node because snapshots of equal states are equal bytes.
func (m memory) freeze() []frozenNode {
	nodes := make([]frozenNode, 0, len(m))
	for name, n := range m {
		frozen := nodeMemory{boot: n.boot, answered: n.answered, answers: slices.Clone(n.answers)}
		nodes = append(nodes, frozenNode{name: name, nodeMemory: frozen})
	}
	slices.SortFunc(nodes, func(a, b frozenNode) int { return cmp.Compare(a.name, b.name) })
	return nodes
}
