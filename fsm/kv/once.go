package kv

import "strings"

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
