package load

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Reach says which nodes the clients of a node can reach. The zero value: everybody reaches everybody. Safe for
// concurrent use.
type Reach struct {
	splits atomic.Pointer[[][]int] // the nodes of one side of each split; replaced, never changed

	mu      sync.Mutex
	callers map[*caller]bool // whose calls a split may strike
}

// Split cuts the nodes given off from the others, together with the clients whose home they are. A call under
// way that crosses the split gets no answer.
func (r *Reach) Split(nodes []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	splits := append(slices.Clone(r.current()), slices.Clone(nodes))
	r.splits.Store(&splits)
	for c := range r.callers {
		c.abort(func(node int) bool { return !r.reaches(c.home, node) })
	}
}

// Join ends all splits.
func (r *Reach) Join() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.splits.Store(nil)
}

// From lists the nodes, of n, that the clients of home can reach, home first, then in turn.
func (r *Reach) From(home, n int) []int {
	nodes := make([]int, 0, n)
	for i := range n {
		if node := (home + i) % n; r.reaches(home, node) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

func (r *Reach) current() [][]int {
	if splits := r.splits.Load(); splits != nil {
		return *splits
	}
	return nil
}

// reaches reports whether the clients of home can reach a node.
func (r *Reach) reaches(home, node int) bool {
	for _, side := range r.current() {
		if slices.Contains(side, home) != slices.Contains(side, node) {
			return false
		}
	}
	return true
}

// join adds a caller to those whose calls end when a split comes between, leave takes it out.
func (r *Reach) join(c *caller) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.callers == nil {
		r.callers = make(map[*caller]bool)
	}
	r.callers[c] = true
}

func (r *Reach) leave(c *caller) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.callers, c)
}
