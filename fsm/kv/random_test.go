package kv

import (
	"pgregory.net/rapid"
)

// life is a state and the machine around it, in random tests.
type life struct {
	state *State
	next  Index // from 2: 1 is the index of what was never changed
	now   int64 // lease clock, ms
	term  uint64
}

func newLife() *life {
	nodes := checks{{}: false, {"", serfHealth}: false, {Node: "n"}: false, {"n", "bad"}: true, {"n", "good"}: false}
	l := &life{state: New(nodes), next: 2, term: 1}
	l.state.Establish(Epoch{Term: 1, Index: 1}, 0)
	return l
}

// step is one random step of a state's life, the same on every one that it is taken on.
type step struct {
	pass      int64 // ms before it
	op        Op    // nil: only the clock moves
	due       int   // at most so many of what is due
	lost      []CheckRef
	establish bool
}

func (s step) perform(l *life) (results []Result) {
	l.now += s.pass
	switch {
	case s.establish:
		l.term++
		l.state.Establish(Epoch{Term: l.term, Index: uint64(l.next)}, l.now)
	case s.lost != nil:
		ended := l.state.Lose(l.at(), s.lost)
		if ended {
			l.next++
		}
		return []Result{{OK: ended}}
	case s.due > 0:
		for _, op := range l.state.Due(l.now, s.due) {
			results = append(results, l.apply(op))
		}
	case s.op == nil:
		l.state.Advance(l.now)
	default:
		return []Result{l.apply(s.op)}
	}
	return results
}

func (l *life) at() At {
	return At{Index: l.next, Lease: l.now, Wall: startOfWall + l.now, Term: l.term}
}

func (l *life) apply(op Op) Result {
	res := l.state.Apply(l.at(), op)
	if res.Index != 0 {
		l.next++
	}
	return res
}

// steps is a number of them.
func steps(t *rapid.T, label string) int {
	return rapid.SampledFrom([]int{40, 20, 5, 1, 0}).Draw(t, label)
}

var (
	drawPass    = rapid.SampledFrom([]int64{0, 0, 0, 1, 999, 2000, 5000, 10_000, 10_001, OnceFor, deletionsFor / 2})
	drawKey     = rapid.SampledFrom([]string{"a", "a/b", "a/b/c", "a/c", "b"})
	drawSession = rapid.SampledFrom([]string{s1, s2, s3, "0000000a-0000-0000-0000-00000000000C", ""})
	drawVerb    = rapid.SampledFrom([]Verb{
		Acquire, Acquire, Acquire, Set, Set, CAS, Delete, Release, Set, Acquire, Release, CAS, Get, GetOrEmpty, GetTree,
		CheckIndex, CheckSession, CheckNotExists, Delete, DeleteCAS, DeleteTree,
	})
	drawKeyOp = rapid.Custom(func(t *rapid.T) KeyOp {
		op := KeyOp{
			Verb:    drawVerb.Draw(t, "verb"),
			Key:     drawKey.Draw(t, "key"),
			Value:   []byte(rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "value")),
			Flags:   rapid.Uint64Range(0, 1).Draw(t, "flags"),
			Index:   Index(rapid.Uint64Range(0, 20).Draw(t, "index")),
			Session: drawSession.Draw(t, "session"),
		}
		if rapid.IntRange(0, 5).Draw(t, "fenced") == 0 {
			op.Fence = &Fence{Kind: Key, Name: drawKey.Draw(t, "fence of"), Index: Index(rapid.Uint64Range(0, 20).Draw(t, "fence"))}
		}
		return op
	})
	drawTxn = rapid.Custom(func(t *rapid.T) Txn {
		return KeyTxn(rapid.SliceOfN(drawKeyOp, 0, 4).Draw(t, "ops"))
	})
	drawCreation = rapid.Custom(func(t *rapid.T) CreateSession {
		op := CreateSession{
			ID:        drawSession.Filter(func(id string) bool { return id != "" }).Draw(t, "id"),
			Node:      rapid.SampledFrom([]string{"", "", "n", "unknown"}).Draw(t, "node"),
			TTL:       rapid.SampledFrom([]int64{0, 0, 10_000, 30_000}).Draw(t, "ttl"),
			LockDelay: rapid.SampledFrom([]int64{0, 0, 2e9, 90e9}).Draw(t, "lock-delay"),
			Behavior:  rapid.SampledFrom([]Behavior{ReleaseKeys, DeleteKeys}).Draw(t, "behavior"),
		}
		op.NodeChecks = map[string][]string{"": {serfHealth}, "n": {"good"}}[op.Node]
		return op
	})
	drawPermitKind = rapid.SampledFrom([]Kind{Lock, Semaphore})
	drawPermitName = rapid.SampledFrom([]string{"l", "m"})
	drawPermitOp   = rapid.Custom(func(t *rapid.T) Op {
		kind, name, session := drawPermitKind.Draw(t, "kind"), drawPermitName.Draw(t, "name"), drawSession.Draw(t, "session")
		switch rapid.IntRange(0, 4).Draw(t, "what") {
		case 0:
			return ReleasePermit{Kind: kind, Name: name, Session: session}
		case 1:
			return LeaveQueue{Kind: kind, Name: name, Session: session, Release: rapid.Bool().Draw(t, "release")}
		default:
			wait := rapid.SampledFrom([]int64{0, 1000, 60_000}).Draw(t, "wait")
			return AcquirePermit{Kind: kind, Name: name, Session: session, Limit: 2, Wait: wait}
		}
	})
	drawOp = rapid.Custom(func(t *rapid.T) Op {
		switch rapid.IntRange(0, 11).Draw(t, "op") {
		case 0, 1:
			return drawCreation.Draw(t, "creation")
		case 11:
			return drawTxn.Draw(t, "txn")
		case 10:
			return DestroySession{ID: drawSession.Draw(t, "session")}
		case 9:
			return RenewSession{ID: drawSession.Draw(t, "session")}
		case 8:
			key := rapid.SampledFrom([]string{"x", "y"}).Draw(t, "idempotency key")
			return Once{Key: key, Op: drawKeyOp.Draw(t, "once")}
		case 6, 7:
			return drawPermitOp.Draw(t, "permit")
		default:
			return drawKeyOp.Draw(t, "key op")
		}
	})
	drawStep = rapid.Custom(func(t *rapid.T) step {
		s := step{pass: drawPass.Draw(t, "pass")}
		switch rapid.IntRange(0, 13).Draw(t, "step") { // low numbers are drawn more often
		case 13:
			s.due = rapid.IntRange(1, 3).Draw(t, "due")
		case 12:
			s.establish = true
		case 11:
			s.lost = []CheckRef{{"", serfHealth}}
		case 10:
			s.lost = []CheckRef{{"n", "good"}, {"n", ""}}
		case 9: // only the clock moves
		default:
			s.op = drawOp.Draw(t, "op")
		}
		return s
	})
)
