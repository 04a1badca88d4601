package kv

import (
	"hash/fnv"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/codec"
)

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
