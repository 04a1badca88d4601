package node

import (
	"context"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

const (
	// aliasPause is how often alias checks are judged. A right that is taken away is gone within a second, see
	// docs/run/permissions.md; the rest of it is for the entry of the log.
	aliasPause = 500 * time.Millisecond
	// aliasesAtOnce bounds what one entry sets in motion: others may follow each of them.
	aliasesAtOnce = 10
)

// judgeAliases has the alias checks that were registered with a token follow what that may read now, until ctx ends: roles
// change, tokens end, and what a check names is replaced. allows judges the token of an accessor.
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
				break // the next round comes to the same
			}
		}
	}
}

// judgedAliases returns what is to change of the alias checks in a view.
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
			ops = append(ops, registry.SetCheck{Node: check.Node, Check: check.ID, Output: name, Epoch: epoch})
		}
	}
	return ops
}
