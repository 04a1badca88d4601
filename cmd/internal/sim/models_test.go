package sim

import (
	"math"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestModelsRefuteWhatNoOneCopyDoes(t *testing.T) {
	var now int64
	op := func(input, output any) porcupine.Operation { // after all before it
		now += 2
		return porcupine.Operation{Input: input, Output: output, Call: now, Return: now + 1}
	}
	done := func(o operation, value int) porcupine.Operation { return op(o, result{Done, value}) }
	put, read, absent := operation{do: "put", value: 1}, operation{do: "read"}, op(operation{do: "read"}, result{NotFound, 0})
	late := op(put, result{outcome: Unknown})
	late.Return = math.MaxInt64
	cas := operation{do: "cas", value: 2, expect: 1}
	acquire := func(session string, yes bool, fence uint64) porcupine.Operation {
		return op(lockCall{do: "acquire", session: session}, lockReply{Done, yes, fence})
	}
	release := func(session string, yes bool) porcupine.Operation {
		return op(lockCall{do: "release", session: session, alive: true}, lockReply{Done, yes, 0})
	}
	register, lock, two := registerModel.ToModel(), lockModel(1), lockModel(2)
	for _, c := range []struct {
		name  string
		model porcupine.Model
		is    bool
		all   []porcupine.Operation
	}{
		{"a write is read", register, true, []porcupine.Operation{done(put, 0), done(read, 1)}},
		{"a write is lost", register, false, []porcupine.Operation{done(put, 0), op(read, result{NotFound, 0})}},
		{"a write of unknown outcome comes late", register, true, []porcupine.Operation{late, op(read, result{NotFound, 0}), done(read, 1)}},
		{"what was never written is read", register, false, []porcupine.Operation{absent, done(read, 1)}},
		{"a cas of the value is denied", register, false, []porcupine.Operation{done(put, 0), op(cas, result{outcome: NotFound})}},
		{"a cas of another value is done", register, false, []porcupine.Operation{op(cas, result{outcome: Done})}},
		{"a restore brings back what was there", register, true, []porcupine.Operation{
			done(put, 0), done(operation{do: "delete"}, 0), done(operation{do: "back", values: []int{1}}, 0), done(read, 1),
		}},
		{"a restore takes a living instance away", register, false, []porcupine.Operation{
			done(put, 0), done(operation{do: "return", values: []int{1}}, 0), op(read, result{NotFound, 0}),
		}},
		{"a cancel finds nothing", register, false, []porcupine.Operation{done(put, 0), op(operation{do: "cancel"}, result{outcome: NotFound})}},
		{"locks follow each other", lock, true, []porcupine.Operation{
			acquire("a", true, 5), acquire("b", false, 0), release("a", true), acquire("b", true, 6),
		}},
		{"a free lock is refused", lock, false, []porcupine.Operation{acquire("a", true, 5), release("a", true), acquire("b", false, 0)}},
		{"a token falls", lock, false, []porcupine.Operation{acquire("a", true, 5), release("a", true), acquire("b", true, 4)}},
		{"two hold a semaphore, and a third waits", two, true, []porcupine.Operation{
			acquire("a", true, 5), acquire("b", true, 6), acquire("c", false, 0), release("a", true), acquire("c", true, 7), acquire("b", true, 6),
		}},
		{"a permit of two is refused", two, false, []porcupine.Operation{acquire("a", true, 5), acquire("b", false, 0)}},
		{"a token of a semaphore falls", two, false, []porcupine.Operation{acquire("a", true, 5), acquire("b", true, 4)}},
		{"a holder had nothing to release", lock, false, []porcupine.Operation{acquire("a", true, 5), release("a", false)}},
	} {
		expect.Equal(t, porcupine.CheckOperations(c.model, c.all), c.is, "%s:", c.name)
	}
}
