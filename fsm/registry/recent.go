package registry

import (
	"iter"
	"slices"
)

// recentLength is the length of the two recent queues.
const recentLength = 1000

// recent is the newest entries of a queue, newest last. Entries are appended behind what copies of
// the header can see and never overwritten, so a copy is a snapshot; when the array is full, append
// moves what is left to a larger one.
type recent []Recent

func (q recent) with(e Recent) recent {
	if len(q) == recentLength {
		q = q[1:]
	}
	return append(q, e)
}

func (q recent) newestFirst() iter.Seq[Recent] {
	return func(yield func(Recent) bool) {
		for _, e := range slices.Backward(q) {
			if !yield(e) {
				return
			}
		}
	}
}
