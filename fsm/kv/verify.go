package kv

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/order"
)

// verify checks what the state's own operations keep true. Each check relies on those before it. Locks and semaphores
// are checked while they are thawed. next returns the index of the registry's next change.
func (f *Frozen) verify(next func() Index) error {
	checks := []func() error{f.verifyIndexes, f.verifySessions, f.verifyPairs, f.verifyDeletions, f.verifyDelays, f.verifyStaged}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return f.verifyKept(next)
}

func (f *Frozen) verifyIndexes() error {
	switch newest := max(f.KeysIndex, f.SessionsIndex, f.PermitsIndex); {
	case newest > f.Index:
		return fmt.Errorf("a change has index %d, but the last one was %d", newest, f.Index)
	case f.Access.Revision > f.Index:
		return fmt.Errorf("roles and tokens were changed at %d, but the last change was %d", f.Access.Revision, f.Index)
	case f.Restored > f.Index:
		return fmt.Errorf("restored at %d, but the last change was %d", f.Restored, f.Index)
	case f.Pruned > f.KeysIndex:
		return fmt.Errorf("a deletion of index %d was dropped, but the last change of a key was %d", f.Pruned, f.KeysIndex)
	case f.Established > f.Lease:
		return fmt.Errorf("the epoch was established at %d, after the lease clock's %d", f.Established, f.Lease)
	}
	return nil
}

func (f *Frozen) verifySessions() error {
	created := make([]Index, len(f.Sessions))
	for i, s := range f.Sessions {
		if i > 0 && f.Sessions[i-1].Session.ID >= s.Session.ID {
			return fmt.Errorf("session %q is not after %q", s.Session.ID, f.Sessions[i-1].Session.ID)
		}
		if err := f.verifySession(s); err != nil {
			return fmt.Errorf("session %q: %w", s.Session.ID, err)
		}
		created[i] = s.Session.CreateIndex
	}
	slices.Sort(created)
	if len(slices.Compact(created)) < len(f.Sessions) {
		return errors.New("two sessions were created by one operation")
	}
	return nil
}

func (f *Frozen) verifySession(state SessionState) error {
	switch s := state.Session; {
	case s.ID == "" || s.ID != strings.ToLower(s.ID):
		return errors.New("its id is empty, or not in lower case")
	case s.CreateIndex == 0 || s.CreateIndex > s.ModifyIndex || s.ModifyIndex > f.SessionsIndex:
		return fmt.Errorf("created at %d and modified at %d, where the last change of a session was %d", s.CreateIndex, s.ModifyIndex, f.SessionsIndex)
	case s.TTL < 0:
		return fmt.Errorf("its TTL of %d ms is negative", s.TTL)
	case s.CreatedAt > state.Renewed || state.Renewed > f.Lease:
		return fmt.Errorf("created at %d and renewed at %d, at a lease clock of %d", s.CreatedAt, state.Renewed, f.Lease)
	}
	return nil
}

func (f *Frozen) verifyPairs() error {
	for i, p := range f.Pairs {
		if i > 0 && f.Pairs[i-1].Key >= p.Key {
			return fmt.Errorf("key %q is not after %q", p.Key, f.Pairs[i-1].Key)
		}
		if err := f.verifyPair(p); err != nil {
			return fmt.Errorf("key %q: %w", p.Key, err)
		}
	}
	return nil
}

func (f *Frozen) verifyPair(p *Pair) error {
	switch {
	case p.Key == "":
		return errors.New("without a name")
	case p.CreateIndex == 0 || p.CreateIndex > p.ModifyIndex || p.ModifyIndex > f.KeysIndex:
		return fmt.Errorf("created at %d and modified at %d, where the last change of a key was %d", p.CreateIndex, p.ModifyIndex, f.KeysIndex)
	case p.Fence > p.ModifyIndex:
		return fmt.Errorf("acquired at %d, after its last change at %d", p.Fence, p.ModifyIndex)
	case p.Session != "" && (p.LockIndex == 0 || p.Fence < p.CreateIndex):
		return errors.New("held, and never acquired")
	case p.Session != "" && !f.hasSession(p.Session):
		return fmt.Errorf("held by session %q, which is not there", p.Session)
	}
	return nil
}

func (f *Frozen) hasSession(id string) bool {
	_, ok := slices.BinarySearchFunc(f.Sessions, id, func(s SessionState, id string) int { return strings.Compare(s.Session.ID, id) })
	return ok
}

func (f *Frozen) hasKey(key string) bool {
	_, ok := slices.BinarySearchFunc(f.Pairs, key, func(p *Pair, key string) int { return strings.Compare(p.Key, key) })
	return ok
}

func (f *Frozen) verifyDeletions() error {
	if n := len(f.Deletions); n > deletionsLimit {
		return fmt.Errorf("%d records of deletions, more than %d", n, deletionsLimit)
	}
	for i, d := range f.Deletions {
		if i > 0 && f.Deletions[i-1].Key >= d.Key {
			return fmt.Errorf("deletion of %q is not after that of %q", d.Key, f.Deletions[i-1].Key)
		}
		if err := f.verifyDeletion(d); err != nil {
			return fmt.Errorf("deletion of %q: %w", d.Key, err)
		}
	}
	byAge := slices.Clone(f.Deletions)
	sort.Slice(byAge, func(i, j int) bool { return byAge[i].Index < byAge[j].Index })
	if !sort.SliceIsSorted(byAge, func(i, j int) bool { return byAge[i].At < byAge[j].At }) {
		return errors.New("of two deletions the later one has the lower index")
	}
	return nil
}

func (f *Frozen) verifyDeletion(d Deletion) error {
	switch {
	case d.Key == "" || f.hasKey(d.Key):
		return errors.New("the key is there, or has no name")
	case d.Index == 0 || d.Index < f.Pruned || d.Index > f.KeysIndex:
		return fmt.Errorf("index %d is not in %d to %d", d.Index, max(f.Pruned, 1), f.KeysIndex)
	case d.Fence > d.Index:
		return fmt.Errorf("acquired at %d, after the deletion at %d", d.Fence, d.Index)
	case d.At > f.Lease:
		return fmt.Errorf("deleted at %d, after the lease clock's %d", d.At, f.Lease)
	}
	return nil
}

func (f *Frozen) verifyDelays() error {
	for i, d := range f.Delays {
		if d.Key == "" || i > 0 && f.Delays[i-1].Key >= d.Key {
			return fmt.Errorf("lock-delay of %q is not after that of another key", d.Key)
		}
		if d.Until > order.Later(f.Lease, MaxLockDelay/1_000_000) {
			return fmt.Errorf("lock-delay of %q: its end at %d is too far from the lease clock's %d", d.Key, d.Until, f.Lease)
		}
	}
	return nil
}

// verifyKept checks the results of Once. Some may come from transactions that changed only the registry.
func (f *Frozen) verifyKept(next func() Index) error {
	if n := len(f.Kept); n > onceLimit {
		return fmt.Errorf("%d kept results, more than %d", n, onceLimit)
	}
	seen := make(map[string]struct{}, len(f.Kept))
	for i, a := range f.Kept {
		_, twice := seen[a.Key]
		seen[a.Key] = struct{}{}
		switch {
		case twice:
			return fmt.Errorf("the result of %q is there twice", a.Key)
		case a.At > f.Lease || i > 0 && a.At < f.Kept[i-1].At:
			return fmt.Errorf("the result of %q was kept at %d, out of order", a.Key, a.At)
		case a.Result.Index > f.Index && a.Result.Index >= next():
			return fmt.Errorf("the result of %q has index %d, but the last change was %d", a.Key, a.Result.Index, max(f.Index, next()-1))
		}
	}
	return nil
}

// verifyStaged checks that nothing is staged outside a restore.
func (f *Frozen) verifyStaged() error {
	switch s := f.Staged; {
	case s.ID == "" && (s.Parts > 0 || !s.Image.empty()):
		return errors.New("parts of a restore are staged, of which nothing else is known")
	case s.Since > f.Lease:
		return fmt.Errorf("a restore was staged at %d, after the lease clock's %d", s.Since, f.Lease)
	}
	return nil
}
