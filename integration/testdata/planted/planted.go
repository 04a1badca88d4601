package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// plantedEnv names the fault that every node of a program built with this overlay has: what the comparison must find.
//
//	local-reads            linearizable reads read the node's own state
//	late-reads             linearizable reads are answered late, from a view that is up to a second old
//	discard:NODE:PREFIX    the node discards what servers send it about instances whose id begins with PREFIX
//	lose-cancels:PREFIX    cancels of instances whose id begins with PREFIX are acknowledged, and not performed
//	forget                 a restarted node forgets what was registered in the last second before its end
//	hang                   a node that had no leader for a while stops answering once it has one again
//	panic:ID               operations on the instance or key with that name panic after they were performed
//	falsify:NODE:TEXT      the node applies entries with TEXT as if its last byte were another one
const plantedEnv = "ROLLCALL_PLANTED"

// planted returns a node's service with the fault that the environment names.
func planted(node string, service registry.Service) registry.Service {
	kind, rest, _ := strings.Cut(os.Getenv(plantedEnv), ":")
	first, second, two := strings.Cut(rest, ":")
	switch {
	// see performed, falsified
	case kind == "" && rest == "", kind == "panic" && rest != "", kind == "falsify" && two && first != "" && second != "":
		return service
	case kind == "local-reads":
		return localReads{service}
	case kind == "late-reads":
		return &lateReads{Service: service}
	case kind == "lose-cancels" && rest != "":
		return loseCancels{service, rest}
	case kind == "forget":
		return &forgetting{Service: service}
	case kind == "hang":
		return &hanging{Service: service}
	case kind == "discard" && two && second != "":
		if first == node {
			return discarding{service, second}
		}
		return service
	}
	// Without the fault a test of the checkers would pass for no reason.
	panic(fmt.Sprintf("%s is %q; it must be local-reads, late-reads, discard:NODE:PREFIX, lose-cancels:PREFIX, forget, hang, panic:ID or falsify:NODE:TEXT", plantedEnv, os.Getenv(plantedEnv)))
}

// falsified returns what a node applies instead of entries, or nil.
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

// performed returns what to call after each operation, or nil.
func performed() func(fsm.Item) {
	id, is := strings.CutPrefix(os.Getenv(plantedEnv), "panic:")
	if !is {
		return nil
	}
	return func(it fsm.Item) {
		key := registry.Key{}
		if it.Op != nil {
			key, _ = registry.KeyOf(it.Op)
		}
		if op, isKey := it.KV.(kv.KeyOp); key.ID == id || isKey && op.Key == id {
			panic("planted")
		}
	}
}

// localReads is a registry whose linearizable reads are stale.
type localReads struct{ registry.Service }

// View implements registry.Service.
func (s localReads) View(ctx context.Context, _ registry.Consistency) (*registry.View, error) {
	return s.Service.View(ctx, registry.Stale)
}

// lateReads is a registry whose linearizable reads are answered from a view that was taken up to a second before they
// began.
type lateReads struct {
	registry.Service

	mu   sync.Mutex
	view *registry.View
	took time.Time
}

// View implements registry.Service.
func (s *lateReads) View(ctx context.Context, read registry.Consistency) (*registry.View, error) {
	now, err := s.Service.View(ctx, read)
	if err != nil || read == registry.Stale {
		return now, err
	}
	time.Sleep(20 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.view == nil || time.Since(s.took) > time.Second {
		s.view, s.took = now, time.Now()
	}
	return s.view, nil
}

// loseCancels is a registry that acknowledges cancels of some instances, and does not perform them.
type loseCancels struct {
	registry.Service
	prefix string // of the instances' ids
}

// Apply implements registry.Service.
func (s loseCancels) Apply(ctx context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	return without(ctx, s.Service, origin, ops, func(op registry.Op) bool {
		cancel, is := op.(registry.Cancel)
		return is && strings.HasPrefix(cancel.Key.ID, s.prefix)
	})
}

// forgetting is a registry that, with its first call after a start, removes what was registered in the last second of
// its state.
type forgetting struct {
	registry.Service

	mu   sync.Mutex
	done bool
}

// Apply implements registry.Service.
func (s *forgetting) Apply(ctx context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	if err := s.forget(ctx); err != nil {
		return nil, err
	}
	return s.Service.Apply(ctx, origin, ops...)
}

// View implements registry.Service.
func (s *forgetting) View(ctx context.Context, read registry.Consistency) (*registry.View, error) {
	if read != registry.Stale {
		if err := s.forget(ctx); err != nil {
			return nil, err
		}
	}
	return s.Service.View(ctx, read)
}

func (s *forgetting) forget(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return nil
	}
	view, err := s.Service.View(ctx, registry.Linearizable)
	if err != nil {
		return err
	}
	newest := int64(0)
	for l := range view.Leases() {
		newest = max(newest, l.RegisteredAt)
	}
	var ops []registry.Op
	for l := range view.Leases() {
		if newest-l.RegisteredAt < time.Second.Milliseconds() {
			ops = append(ops, registry.Cancel{Key: l.Instance.Key()})
		}
	}
	if len(ops) > 0 {
		_, err = s.Service.Apply(ctx, registry.FromClient, ops...)
	}
	s.done = err == nil
	return err
}

// hanging is a registry that stops answering once it had a leader, had none, and has one again.
type hanging struct {
	registry.Service
	served, alone, hung atomic.Bool
}

// Apply implements registry.Service.
func (s *hanging) Apply(ctx context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	if s.hung.Load() {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	results, err := s.Service.Apply(ctx, origin, ops...)
	s.watch(err)
	return results, err
}

// View implements registry.Service.
func (s *hanging) View(ctx context.Context, read registry.Consistency) (*registry.View, error) {
	if s.hung.Load() {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	view, err := s.Service.View(ctx, read)
	if read != registry.Stale {
		s.watch(err)
	}
	return view, err
}

func (s *hanging) watch(err error) {
	switch {
	case err == nil && s.alone.Load():
		s.hung.Store(true)
	case err == nil:
		s.served.Store(true)
	case s.served.Load() && errors.Is(err, registry.ErrNoLeader):
		s.alone.Store(true)
	}
}

// discarding is a registry that discards what servers send about some instances, including repairs and copies at the
// start, and returns Done for it, so that the sender does not send it again.
type discarding struct {
	registry.Service
	prefix string // of the instances' ids
}

// Apply implements registry.Service.
func (s discarding) Apply(ctx context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	if origin.Kind == registry.FromClient.Kind {
		return s.Service.Apply(ctx, origin, ops...)
	}
	return without(ctx, s.Service, origin, ops, s.discards)
}

// without performs operations except some, whose result is done.
func without(ctx context.Context, service registry.Service, origin registry.Origin, ops []registry.Op, which func(registry.Op) bool) ([]registry.Result, error) {
	results := make([]registry.Result, len(ops)) // done
	var kept []registry.Op
	var places []int
	for i, op := range ops {
		if !which(op) {
			kept, places = append(kept, op), append(places, i)
		}
	}
	if len(kept) == 0 {
		return results, nil
	}
	applied, err := service.Apply(ctx, origin, kept...)
	if err != nil {
		return nil, err
	}
	for n, place := range places {
		results[place] = applied[n]
	}
	return results, nil
}

// discards reports whether an operation is about one of the instances.
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
