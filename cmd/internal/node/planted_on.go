//go:build planted

package node

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// plantedEnv names the fault that every node of a program built with the tag planted has: what the
// comparison must find.
//
//	local-reads            linearizable reads read the node's own state
//	discard:NODE:PREFIX    the node discards what servers send it about instances whose id begins so
//	falsify:NODE:TEXT      the node applies entries with TEXT as if its last byte were another one
const plantedEnv = "ROLLCALL_PLANTED"

// planted returns a node's service with the fault that the environment names.
func planted(node string, service registry.Service) registry.Service {
	fault := os.Getenv(plantedEnv)
	switch kind, rest, _ := strings.Cut(fault, ":"); kind {
	case "":
		return service
	case "local-reads":
		return localReads{service}
	case "discard":
		if victim, prefix, ok := strings.Cut(rest, ":"); ok && prefix != "" {
			if victim != node {
				return service
			}
			return discarding{service, prefix}
		}
	case "falsify":
		if victim, text, ok := strings.Cut(rest, ":"); ok && victim != "" && text != "" {
			return service // see falsified
		}
	}
	// Without the fault a test of the checkers would pass for no reason.
	panic(fmt.Sprintf("%s is %q; it must be local-reads, discard:NODE:PREFIX or falsify:NODE:TEXT", plantedEnv, fault))
}

// falsified returns what a node applies in the place of entries; nil: the entries.
func falsified(node string) func([]byte) []byte {
	fault, _ := strings.CutPrefix(os.Getenv(plantedEnv), "falsify:"+node+":")
	if fault == os.Getenv(plantedEnv) {
		return nil
	}
	text := []byte(fault)
	other := slices.Clone(text)
	other[len(other)-1] ^= 1
	return func(entry []byte) []byte { return bytes.ReplaceAll(entry, text, other) }
}

// localReads is a registry whose linearizable reads are stale.
type localReads struct{ registry.Service }

// View implements registry.Service.
func (s localReads) View(ctx context.Context, _ registry.Consistency) (*registry.View, error) {
	return s.Service.View(ctx, registry.Stale)
}

// discarding is a registry that discards what servers send about some instances, repairs and copies at the start
// included, and returns Done for it, so that the sender does not send it again.
type discarding struct {
	registry.Service
	prefix string // of the instances' ids
}

// Apply implements registry.Service.
func (s discarding) Apply(ctx context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	if origin.Kind == registry.FromClient.Kind {
		return s.Service.Apply(ctx, origin, ops...)
	}
	results := make([]registry.Result, len(ops)) // done
	var kept []registry.Op
	var places []int
	for i, op := range ops {
		if !s.discards(op) {
			kept, places = append(kept, op), append(places, i)
		}
	}
	if len(kept) == 0 {
		return results, nil
	}
	applied, err := s.Service.Apply(ctx, origin, kept...)
	if err != nil {
		return nil, err
	}
	for n, place := range places {
		results[place] = applied[n]
	}
	return results, nil
}

// discards says whether an operation is about one of the instances.
func (s discarding) discards(op registry.Op) bool {
	var key registry.Key
	switch op := op.(type) {
	case registry.Replica:
		key = op.Instance.Key()
	case registry.Renew:
		key = op.Key
	case registry.Remove:
		key = op.Key
	}
	return key.ID != "" && strings.HasPrefix(key.ID, s.prefix)
}
