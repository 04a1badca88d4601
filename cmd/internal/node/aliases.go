package node

import (
	"context"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

const (
	// aliasPause is how often alias checks are judged. A right that is taken away must be gone within a second
	// (docs/run/permissions.md), and the log entry takes time, too.
	aliasPause = 500 * time.Millisecond
	// aliasesAtOnce bounds what one entry sets in motion: other checks may follow each of them.
	aliasesAtOnce = 10
)

// judgeAliases lets each alias check that was registered with a token follow only what the token may read now, until
// ctx ends: roles change, tokens end, and the service or node that a check names is replaced. allows judges the token
// with an accessor.
func judgeAliases(ctx context.Context, epoch registry.Epoch, of registry.Service, allows func(accessor string, n access.Need) bool) {
	every := time.NewTicker(aliasPause)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		v, err := of.View(ctx, registry.Stale) // the leader's own state is the newest
		if err != nil {
			continue
		}
		for ops := range slices.Chunk(judgedAliases(v, epoch, allows), aliasesAtOnce) {
			if _, err := of.Apply(ctx, registry.FromClient, ops...); err != nil {
				break // the next round tries again
			}
		}
	}
}

// judgedAliases returns the operations that bring the alias checks of a view up to date.
func judgedAliases(v *registry.View, epoch registry.Epoch, allows func(accessor string, n access.Need) bool) (ops []registry.Op) {
	for check := range v.Aliases() {
		a := check.Alias
		name := v.Followed(check.Node, a)
		if a.By == "" || name == "" {
			continue
		}
		if !allows(a.By, registry.ToFollow(a, name)) {
			name = ""
		}
		if name != a.Reads {
			ops = append(ops, registry.SetCheck{Node: check.Node, Check: check.ID, Reads: name, Epoch: epoch})
		}
	}
	return ops
}
