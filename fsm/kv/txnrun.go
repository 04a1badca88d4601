package kv

import (
	"fmt"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// apply performs the transaction, and restores the state if an operation fails. So each operation follows the same
// rule as outside transactions, and no second rule has to predict what the first will do.
func (op Txn) apply(s *State, at At) (res Result) {
	if errs := preCheck(op.Ops, s.delayed); errs != nil {
		return Result{Errors: errs}
	}
	attempt := func() bool {
		res = s.attempt(func() Result { return op.performAll(s, at) })
		return res.OK
	}
	if op.keysAlone() {
		attempt()
	} else {
		s.catalog.Attempt(attempt)
	}
	return res
}

// delayed reports whether a lock-delay keeps a key from being acquired.
func (s *State) delayed(key string) bool { return s.keys.delays.end(key, s.lease) != 0 }

// preCheck finds what Consul's leader refuses before it writes the log: then these are the only errors.
func preCheck(ops []TxnOp, delayed func(key string) bool) (errs []TxnError) {
	for i, op := range ops {
		switch o := op.Key; {
		case o == nil && op.Session == "" && op.Catalog == nil:
			errs = append(errs, TxnError{OpIndex: i, What: "unknown operation type"})
		case o == nil:
		case o.lacksKey():
			errs = append(errs, TxnError{OpIndex: i, What: noKey})
		case o.Verb == Acquire && delayed(o.Key):
			errs = append(errs, TxnError{OpIndex: i, What: delayRefusal(o.Key).what})
		}
	}
	return errs
}

// performAll performs even a failed transaction to the end, to find every error, unless that would cost too much.
func (op Txn) performAll(s *State, at At) Result {
	limit := min(MaxTxnRead, maxBatchRead-at.Read)
	t := txnRun{state: s, at: at, reading: reading{left: limit}}
	mixed := !op.keysAlone()
	for i, o := range op.Ops {
		if mixed { // else the catalog takes no index
			t.at.Index = s.catalog.Next()
		}
		t.failed(i, t.perform(o))
		switch {
		case t.left < 0 && limit < MaxTxnRead:
			return Result{Excess: TooBusy}
		case t.left < 0:
			return Result{Excess: TooLarge}
		case t.spent:
			return t.result(0)
		}
	}
	return t.result(t.index)
}

// reading is what the operations of a transaction have found so far.
type reading struct {
	left  int // how many bytes may still be read; below 0 it was too much
	pairs []*Pair
	found []Found
	errs  []TxnError
}

// failed records why an operation failed, unless what is "".
func (r *reading) failed(op int, what string) {
	if what != "" {
		r.errs = append(r.errs, TxnError{OpIndex: op, What: what})
	}
}

// add adds what an operation on a node, a service or a check has found, or returns why it failed.
func (r *reading) add(res registry.CatalogResult) (what string) {
	if res.Found != nil {
		r.left -= res.Found.Weight()
		r.found = append(r.found, Found{Pairs: len(r.pairs), Found: *res.Found})
	}
	return res.What
}

// result returns the result of a transaction; index is the last that it took.
func (r *reading) result(index Index) Result {
	if r.errs != nil {
		return Result{Errors: r.errs}
	}
	return Result{OK: true, Index: index, Pairs: r.pairs, Found: r.found}
}

// txnRun is a transaction in progress.
type txnRun struct {
	reading
	state   *State
	at      At    // of the next operation
	index   Index // the last that an operation on a node, a service or a check took
	changes int   // how many indexes such operations took
	steps   int   // see registry.CatalogResult
	items   int   // how many keys and other held things are gone, by prefixes and by the ends of sessions
	spent   bool  // too many of these or of the changes: the transaction has failed
}

// MaxTxnChanges is how many changes of nodes and services a transaction may make, if several of its operations make
// any. One operation may change all services of a node, and a transaction of many would keep every replica busy for
// as long as all of them take. From level 2 on the limit is registry.MaxRemoved, even for one operation.
const MaxTxnChanges = 50_000

// perform performs one operation of a transaction, and returns why it failed, or "".
func (t *txnRun) perform(op TxnOp) (what string) {
	switch {
	case op.Key != nil:
		if op.Key.Verb == DeleteTree {
			if what := t.spend(t.state.keys.countUnder(op.Key.Key, MaxDeleted-t.items)); what != "" {
				return what
			}
		}
		pairs, what := op.Key.applyInTxn(t.state, t.at, &t.left)
		t.pairs = append(t.pairs, pairs...)
		return what
	case op.Catalog != nil:
		return t.performOnCatalog(*op.Catalog)
	}
	if l := t.state.sessions.find(op.Session); l != nil {
		if what := t.spend(1 + l.held); what != "" {
			return what
		}
	}
	DestroySession{ID: op.Session}.apply(t.state, t.at)
	return ""
}

// performOnCatalog performs an operation on a node, a service or a check, and ends the sessions that depend on what
// it removed or made critical, under its index.
func (t *txnRun) performOnCatalog(op registry.CatalogOp) (what string) {
	res := t.state.catalog.PerformInTxn(op)
	before := t.changes
	if res.Index != 0 {
		t.changes += int(res.Index-t.at.Index) + 1
		t.index, t.at.Index = res.Index, res.Index
	}
	t.state.Lose(t.at, t.state.catalog.Lost())
	if t.steps += res.Steps; t.steps > catalog.MaxSteps && t.state.bounded() {
		t.spent = true
		return fmt.Sprintf("the operations of a transaction may have %d alias checks follow, or take %d steps to count them; use several", registry.MaxRemoved, catalog.MaxSteps)
	}
	most := MaxTxnChanges
	if t.state.bounded() {
		most = registry.MaxRemoved
	}
	if t.changes > most && (before > 0 || t.state.bounded()) {
		t.spent = true
		return fmt.Sprintf("a transaction may make %d changes of nodes and services, all services of a node whose status or address it changes counted; use several", most)
	}
	return t.add(res)
}

// applyInTxn performs one operation of a transaction, which may read at most left bytes.
func (op KeyOp) applyInTxn(s *State, at At, left *int) (pairs []*Pair, what string) {
	if !op.Verb.Writes() {
		return op.read(&s.keys, left)
	}
	if holds, _ := op.fenced(s); !holds {
		return nil, fmt.Sprintf("fence of key %q does not hold", op.Key)
	}
	if f := op.write(s, at); f.what != "" {
		return nil, f.what
	}
	switch op.Verb {
	case Delete, DeleteCAS, DeleteTree:
		return nil, ""
	}
	p, _ := s.keys.pairs.Get(op.Key)
	written := p.withoutValue()
	*left -= written.Weight()
	return []*Pair{written}, ""
}

// attempt performs do, and takes back all its changes unless its result is OK. do writes keys and ends sessions.
func (s *State) attempt(do func() Result) Result {
	index, touched, shared := s.index, len(s.touched), s.shared
	keys, permits, undoSessions, uses := s.keys.save(), s.permits.save(), s.sessions.save(), s.uses.share()
	res := do()
	s.sessions.undo = nil
	if !res.OK {
		undoSessions()
		s.index, s.touched, s.shared, s.keys, s.permits, s.uses = index, s.touched[:touched], shared, keys, permits, uses
	}
	return res
}

// Read performs the operations of a transaction that writes nothing. If that takes more than MaxRead bytes,
// Result.Excess is TooLarge, and nothing is returned.
func (v *View) Read(ops []TxnOp) Result {
	if errs := preCheck(ops, func(string) bool { return false }); errs != nil {
		return Result{Errors: errs}
	}
	r := reading{left: MaxRead}
	for i, op := range ops {
		switch {
		case op.Key != nil:
			pairs, what := op.Key.read(&v.shown.keys, &r.left)
			r.pairs = append(r.pairs, pairs...)
			r.failed(i, what)
		case op.Catalog != nil:
			r.failed(i, r.add(v.Registry.ReadInTxn(*op.Catalog)))
		}
		if r.left < 0 {
			return Result{Excess: TooLarge}
		}
	}
	return r.result(0)
}

// spend counts what an operation of a transaction deletes or ends, and returns why that is too much, or "".
func (t *txnRun) spend(items int) (what string) {
	if t.items += items; t.items > MaxDeleted && t.state.bounded() {
		t.spent = true
		return fmt.Sprintf("a transaction may delete %d keys by prefixes and by the ends of sessions; delete some before it", MaxDeleted)
	}
	return ""
}
