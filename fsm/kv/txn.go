package kv

import (
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// txn performs a transaction. One that fails goes on to its end, so that every error is found, in a
// state that is then put back.
func (s *State) txn(at At, op Txn) Result {
	if errs := s.preCheck(op.Ops); errs != nil {
		return Result{Errors: errs}
	}
	undo := s.save()
	limit := min(MaxTxnRead, MaxBatchRead-at.Read)
	left := limit
	var entries []*Entry
	var errs []TxnError
	for i, o := range op.Ops {
		found, what := s.member(at, o, &left)
		if left < 0 {
			undo()
			return Result{Excess: tooMuch(limit)}
		}
		if what != "" {
			errs = append(errs, TxnError{OpIndex: i, What: what})
		}
		entries = append(entries, found...)
	}
	if errs != nil {
		undo()
		return Result{Errors: errs}
	}
	return Result{OK: true, Entries: entries}
}

// tooMuch says what a transaction that reads more than a limit does.
func tooMuch(limit int) Excess {
	if limit < MaxTxnRead {
		return TooBusy
	}
	return TooLarge
}

// preCheck finds what Consul's leader refuses before it writes the log: then only that is said.
func (s *State) preCheck(ops []KeyOp) (errs []TxnError) {
	for i, o := range ops {
		switch {
		case o.lacksKey():
			errs = append(errs, TxnError{OpIndex: i, What: noKey})
		case o.Verb == Acquire && s.delayed(o.Key):
			errs = append(errs, TxnError{OpIndex: i, What: delayRefusal(o.Key).what})
		}
	}
	return errs
}

// member performs one operation of a transaction, which may read as many bytes as are left.
func (s *State) member(at At, op KeyOp, left *int) (entries []*Entry, what string) {
	if !op.Verb.Writes() {
		return s.tables.read(op, left)
	}
	if holds, _ := s.fenced(op); !holds {
		return nil, fmt.Sprintf("fence of key %q does not hold", op.Key)
	}
	if f := s.write(at, op); f.what != "" {
		return nil, f.what
	}
	switch op.Verb {
	case Delete, DeleteCAS, DeleteTree:
		return nil, ""
	}
	e, _ := s.tables.entries.Get(op.Key)
	written := e.withoutValue()
	*left -= written.Weight()
	return []*Entry{written}, ""
}

// save returns what puts the state back to where it is now, as far as operations on keys change it.
func (s *State) save() (undo func()) {
	index, touched, shown := s.index, len(s.touched), s.shown
	saved := s.tables.share()
	saved.aged = s.tables.aged.Copy()
	return func() {
		s.index, s.touched, s.shown, s.tables = index, s.touched[:touched], shown, saved
	}
}

// answers are what operations under a key of Once were answered, by key and in the order of time.
type answers struct {
	byKey map[string]*Answer
	order []*Answer
	bytes int // of all, see Answer.weight
}

// answerWeight is what an answer takes beside its texts, in bytes, about.
const answerWeight = 256

func (a *Answer) weight() int {
	bytes := answerWeight + len(a.Key) + len(a.Result.Refusal) + a.Result.Weight()
	if s := a.Result.Session; s != nil {
		bytes += len(s.Name) + len(s.TTLText) + 64*(len(s.Checks)+len(s.NodeChecks)+len(s.ServiceChecks))
	}
	for _, e := range a.Result.Errors {
		bytes += len(e.What)
	}
	return bytes
}

func newAnswers() answers { return answers{byKey: make(map[string]*Answer)} }

func (a *answers) add(answer *Answer) {
	a.byKey[answer.Key] = answer
	a.order = append(a.order, answer)
	a.bytes += answer.weight()
	for len(a.order) > OnceLimit || a.bytes > OnceBytes {
		a.dropOldest()
	}
}

// prune drops the answers that are too old at a moment (lease clock, ms).
func (a *answers) prune(lease int64) {
	for len(a.order) > 0 && lease-a.order[0].At >= OnceFor {
		a.dropOldest()
	}
}

func (a *answers) dropOldest() {
	a.bytes -= a.order[0].weight()
	delete(a.byKey, a.order[0].Key)
	a.order[0] = nil
	a.order = a.order[1:]
}

// once performs an operation, or answers as the one did that was performed under the same key. That
// takes no Index again.
func (s *State) once(at At, op Once) Result {
	digest := digestOf(op.Op)
	if answer, ok := s.answers.byKey[op.Key]; ok {
		if answer.Digest != digest {
			return Result{Refusal: "idempotency key \"" + op.Key + "\" was used for another operation"}
		}
		res := answer.Result
		res.Index = 0
		return res
	}
	before := s.index
	res := op.Op.apply(s, at)
	if s.index != before {
		res.Index = at.Index
	}
	if res.Excess == TooBusy { // it was not performed, and may be yet
		return res
	}
	s.answers.add(&Answer{Key: strings.Clone(op.Key), At: s.lease, Digest: digest, Result: res.Kept(MaxKeptRead)})
	return res
}

// digestOf tells whether two operations ask for the same: a 64-bit FNV-1a hash of how they are written at level 1 of
// the formats, whatever the level of the state is, because it is part of the state. The id of a new session is left
// out: it is drawn anew when the caller tries again.
func digestOf(op Op) uint64 {
	if create, ok := op.(CreateSession); ok {
		create.ID = ""
		op = create
	}
	c := codec.Writer(nil, 1)
	Walk(&c, &op)
	h := fnv.New64a()
	h.Write(c.Written())
	return h.Sum64()
}
