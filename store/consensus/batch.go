package consensus

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
)

// batch is a group of calls that are committed together.
type batch struct {
	calls  []*call
	id     fsm.BatchID
	items  []fsm.Item
	wait   time.Duration // how long it waits for a leader
	oldest time.Time     // arrival of the call that has waited longest
	sent   time.Time     // when it was first sent; zero if it certainly never was

	mayWait bool // at the leader, for other renewals to share its entry
}

// release lets the callers of a batch that was never sent give up, until regain.
func (b *batch) release() {
	for _, k := range b.calls {
		k.state.Store(queued)
	}
}

// regain drops the calls that were given up since release, and reports whether any is left.
func (b *batch) regain() bool {
	b.calls = slices.DeleteFunc(b.calls, func(k *call) bool { return !k.state.CompareAndSwap(queued, sealed) })
	b.items = b.items[:0]
	for _, k := range b.calls {
		b.items = append(b.items, k.items...)
	}
	return len(b.calls) > 0
}

// deadline returns when the callers of a batch get an error: that it failed, or that its outcome is unknown.
func (b *batch) deadline() time.Time {
	if b.sent.IsZero() {
		return b.oldest.Add(b.wait)
	}
	return b.sent.Add(store.ResultWait)
}

// giveUpAt returns when to stop waiting for the result of a batch that is sent now.
func (b *batch) giveUpAt(now time.Time) time.Time {
	if b.sent.IsZero() {
		return now.Add(store.ResultWait)
	}
	return b.sent.Add(store.ResultWait)
}

// encode encodes a batch for one attempt to send it, at the cluster's level.
func (b *batch) encode(level byte, bound fsm.Bound) []byte {
	id := b.id
	id.Bound = bound
	return fsm.AppendBatch(nil, level, id, b.items)
}

// A leader that runs another build may not know an operation that a follower sends, and then cannot read anything
// behind it in the batch. It proposes nothing from such a batch and says so. The follower knows where one call ends
// and the next begins: it splits the batch until the unreadable call is alone, and refuses that one.

// unreadError is the error of a batch that the leader could not read. The leader proposed nothing from it.
type unreadError struct {
	reason string
	item   int  // first item that the leader could not read; -1 if it cannot say
	all    bool // the leader reads no batch in this node's format version
}

func (u *unreadError) Error() string { return "the leader cannot read the batch: " + u.reason }

// Unwrap makes it one of the errors after which a batch certainly had no effect.
func (u *unreadError) Unwrap() error { return port.ErrNotSent }

// around splits a batch of at least two calls: into the calls before the one with the given item, that call, and the
// calls after it; into halves if no call has the item. The item that the leader names is a hint: what the leader
// takes for the start of that item may be the end of the one before.
func (b *batch) around(item int) [][]*call {
	from := len(b.calls) / 2
	to := from
	seen := 0
	for i, k := range b.calls {
		if seen <= item && item < seen+len(k.items) {
			from, to = i, i+1
			break
		}
		seen += len(k.items)
	}
	var parts [][]*call
	for _, part := range [][]*call{b.calls[:from], b.calls[from:to], b.calls[to:]} {
		if len(part) > 0 {
			parts = append(parts, part)
		}
	}
	return parts
}

// call is one Apply on this node.
type call struct {
	items   []fsm.Item
	size    int
	pace    pace
	arrived time.Time
	state   atomic.Int32
	done    chan struct{}
	results fsm.Results
	err     error
}

// States of a call. The goroutine that moves it out of queued decides its outcome.
const (
	queued int32 = iota
	sealed       // part of a batch that may be sent, see batch.release
	abandoned
)

// proposal is a batch that another node sent to this one, the leader.
type proposal struct {
	batch   []byte
	bound   fsm.Bound
	mayWait bool // for other renewals to share its entry
	done    chan struct{}
	res     fsm.BatchResult
	err     error
}

// pace is how soon a call must be committed.
type pace int

const (
	// atOnce commits as soon as a slot is free.
	atOnce pace = iota
	// gathered waits up to gatherFor for others of its kind on this node, see gather.
	gathered
	// mayWait waits on the leader for some time after the last entry (committerConfig.RenewalWait), unless many renewals
	// arrive. Several then share an entry, which costs as much to store for one as for hundreds (docs/adr/0028).
	// Anything that may not wait takes the waiting ones along.
	mayWait
)
