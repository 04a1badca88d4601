package link

import (
	"context"
	"errors"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Outcomes of operations that were left out.
const (
	TooLarge   registry.Outcome = 255 // no log entry can hold it
	Unreadable registry.Outcome = 254 // this datacenter's leader, of another build, does not know it
)

// ApplyAll applies operations in order. It leaves out an operation that is too large, that panics, or that the leader
// cannot read, with an outcome that says so.
func ApplyAll(ctx context.Context, service registry.Service, origin registry.Origin, ops []registry.Op) ([]registry.Result, error) {
	results, err := service.Apply(ctx, origin, ops...)
	left := TooLarge
	switch {
	case errors.Is(err, registry.ErrUnreadable):
		left = Unreadable
	case errors.Is(err, registry.ErrPanicked):
		left = registry.Panicked
	case !errors.Is(err, registry.ErrTooLarge):
		return results, err
	}
	if len(ops) == 1 {
		return []registry.Result{{Outcome: left}}, nil
	}
	half := len(ops) / 2
	first, err := ApplyAll(ctx, service, origin, ops[:half])
	if err != nil {
		return nil, err
	}
	second, err := ApplyAll(ctx, service, origin, ops[half:])
	return append(first, second...), err
}
