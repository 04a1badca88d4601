package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// perKey is the most operations in a history: the checker decides that many in a moment.
const perKey = 200

// endUnknown gives operations of unknown outcome their ends: they take effect before every acknowledged write that
// was sent a second after the response, or never (ADR 22). Reads may be answered before that.
func endUnknown(operations []porcupine.Operation, unknown, acknowledged func(porcupine.Operation) bool) []porcupine.Operation {
	settled := slices.Clone(operations)
	for i, op := range operations {
		if !unknown(op) {
			continue
		}
		settled[i].Return = math.MaxInt64
		for _, later := range operations {
			if acknowledged(later) && later.Call >= op.Return {
				settled[i].Return = min(settled[i].Return, later.Return)
			}
		}
	}
	return settled
}

// describe lists operations in the order they were asked for.
func describe(operations []porcupine.Operation) (text string) {
	slices.SortFunc(operations, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	for _, op := range operations {
		text += fmt.Sprintf("%v to %v: %+v = %+v\n", time.Duration(op.Call), time.Duration(op.Return), op.Input, op.Output)
	}
	return text
}

// checker checks histories outside the bubble, where a time limit means something.
type checker struct {
	ask     chan func() porcupine.CheckResult
	results chan porcupine.CheckResult
}

func newChecker() checker {
	c := checker{make(chan func() porcupine.CheckResult), make(chan porcupine.CheckResult)}
	go func() {
		for check := range c.ask {
			c.results <- check()
		}
	}()
	return c
}

// decides bounds how long the checker may take, shorter than the watchdog waits for virtual time.
const decides = 15 * time.Second

func (c checker) run(model porcupine.Model, operations []porcupine.Operation) porcupine.CheckResult {
	c.ask <- func() porcupine.CheckResult { return porcupine.CheckOperationsTimeout(model, operations, decides) }
	return <-c.results
}
