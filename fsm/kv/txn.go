package kv

import "fmt"

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
