package kv

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/order"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

func (op StagePart) apply(s *State, _ At) Result {
	if refusal := op.refusal(&s.staged); refusal != "" {
		return Result{Refusal: refusal}
	}
	if op.Part < s.staged.Parts {
		return Result{OK: true} // a repetition
	}
	part, err := Unpack(op.Content)
	if err != nil {
		return Result{Refusal: fmt.Sprintf("part %d of the snapshot cannot be read: %v", op.Part, err)}
	}
	if op.Part == 0 {
		s.staged = Staged{ID: strings.Clone(op.ID), By: op.By.Clone()}
	}
	s.staged.Add(part)
	s.staged.Parts, s.staged.Since = op.Part+1, s.lease
	return Result{OK: true}
}

func (op DropStaged) apply(s *State, _ At) Result {
	if s.staged.ID == op.ID {
		s.staged = Staged{}
	}
	return Result{OK: true}
}

// Restored returns the Index where the newest incarnation began, or 0.
func (s *State) Restored() Index { return s.restored }

// beginIncarnation begins a new incarnation, see Registry.Raise.
func (s *State) beginIncarnation(beyond Index, wall int64) {
	s.restored = s.catalog.Raise(beyond, wall)
	s.change(At{Index: s.restored}, Topic{Kind: SessionsTopic})
}

// Recover makes the state go on as the only remaining copy, see Machine.Recover. Every key now counts as changed,
// because its last change may be among the losses.
func (s *State) Recover(at At) {
	s.staged = Staged{}
	s.beginIncarnation(0, at.Wall)
	at.Index = s.catalog.Next()
	s.endSessions(at, s.sessions.byID.Values())
	for _, p := range slices.Collect(s.keys.under("")) {
		s.replaceKey(at, p, s.successor(at, p.Key, p))
	}
	s.change(at, Topic{Kind: SessionsTopic})
}

// maxIndex is the highest number up to which programs that read JSON into floating-point numbers are exact.
const maxIndex Index = 1<<53 - 1

func (op Restore) refusal(s *State) string {
	switch {
	case op.Prefix != "" && !op.KeysOnly:
		return "a prefix is for a restore of keys alone"
	case op.WithAuth && (op.KeysOnly || op.Founding):
		return "roles and tokens come back with a restore of everything into a cluster that runs"
	case op.Founding && s.restored > 0:
		return "the cluster was restored already"
	case s.staged.ID != op.ID || op.ID == "":
		return givenUp
	case s.staged.Parts != op.Parts:
		return fmt.Sprintf("%d parts of the snapshot have come, not %d", s.staged.Parts, op.Parts)
	case max(op.Newest, s.catalog.Next()) > maxIndex-2*registry.Incarnation:
		return fmt.Sprintf("the index %d of the state or of the snapshot leaves no room below 2^53 for a new incarnation", max(op.Newest, s.catalog.Next()))
	}
	if _, refusal := op.restoredAccess(s, s.staged.Access, At{}); refusal != "" {
		return "its roles and tokens: " + refusal
	}
	for _, p := range s.staged.Pairs {
		if p.Fence > op.Newest || p.LockIndex > uint64(maxIndex) {
			return fmt.Sprintf("the snapshot contradicts itself: key %q was acquired %d times, last at %d, and its newest index is %d", p.Key, p.LockIndex, p.Fence, op.Newest)
		}
	}
	return ""
}

func (op Restore) apply(s *State, at At) Result {
	if s.last != nil && s.last.ID == op.ID && op.ID != "" {
		return Result{OK: true} // a repetition
	}
	if refusal := op.refusal(s); refusal != "" {
		if s.staged.ID == op.ID {
			s.staged = Staged{}
		}
		return Result{Refusal: refusal}
	}
	image := s.staged.Image
	s.staged = Staged{}
	done := Restoration{ID: strings.Clone(op.ID), By: op.By.Clone(), Wall: at.Wall}
	if !op.KeysOnly || op.Newest >= s.catalog.Next() {
		unknown := int64(0)
		if op.Founding { // the file may be older than an incarnation of its cluster
			unknown = at.Wall
		}
		s.beginIncarnation(op.Newest, unknown)
	}
	var lost []CheckRef
	if !op.KeysOnly {
		done.Instances, lost = s.catalog.Readmit(image.Image, op.By)
		done.InstancesStayed = len(image.Instances) - done.Instances
	}
	at.Index = s.catalog.Next()
	done.Index = at.Index
	r := restoring{Restore: op, state: s, at: at, image: image, done: &done, removed: map[string]bool{}}
	r.endSessions(lost)
	r.pairs = Lasting(&r.image, func(session string) bool { return s.session(session) != nil })
	r.deleteKeys()
	r.writeKeys()
	r.keepBack()
	done.KeysDeleted = len(r.removed)
	if next, _ := op.restoredAccess(s, image.Access, at); next != s.access {
		done.Roles, done.Tokens = len(next.Roles)-len(s.access.Roles), max(len(next.Tokens)-len(s.access.Tokens), 0)
		s.access = next
		s.change(at, Topic{Kind: AccessTopic})
	}
	s.last = &done
	s.change(at, Topic{Kind: SessionsTopic})
	return Result{OK: true, Index: at.Index}
}

// restoredAccess returns who may do what after the restore.
func (op Restore) restoredAccess(s *State, saved access.Content, at At) (next *access.Table, refusal string) {
	if !op.WithAuth || saved.Empty() {
		return s.access, ""
	}
	change := saved.Restoring(s.access.Mode)
	return s.access.Apply(&change, at.Index, at.Wall)
}

// restoring is a restore in progress.
type restoring struct {
	Restore
	state   *State
	at      At
	image   Image
	pairs   []*Pair // of the image, those that come back
	done    *Restoration
	removed map[string]bool // keys that no longer exist
}

// Lasting returns the pairs of an image without those whose session does not go on and deletes its keys.
func Lasting(m *Image, goesOn func(session string) bool) []*Pair {
	deletes := map[string]bool{}
	for _, s := range m.Sessions {
		deletes[s.ID] = s.Behavior == DeleteKeys
	}
	return slices.DeleteFunc(slices.Clone(m.Pairs), func(p *Pair) bool { return p.Session != "" && deletes[p.Session] && !goesOn(p.Session) })
}

// endSessions ends the sessions that do not go on, and those that depend on lost checks.
func (r *restoring) endSessions(lost []CheckRef) {
	if r.KeysOnly {
		return
	}
	s := r.state
	before := s.sessions.byID.Len()
	for _, l := range s.sessions.byID.Values() {
		if l.session.Behavior == DeleteKeys {
			for p := range s.keys.heldBy(l.session.ID) {
				r.removed[p.Key] = true
			}
		}
	}
	if !r.KeepSessions && !r.Founding {
		s.endSessions(r.at, s.sessions.byID.Values())
	}
	s.Lose(r.at, lost)
	r.done.SessionsEnded = before - s.sessions.byID.Len()
	maps.DeleteFunc(r.removed, func(key string, _ bool) bool {
		_, there := s.keys.pairs.Get(key)
		return there
	})
}

// deleteKeys deletes the keys that are not in the snapshot, except those that a session holds.
func (r *restoring) deleteKeys() {
	if r.Founding {
		return
	}
	saved := make(map[string]bool, len(r.pairs))
	for _, p := range r.pairs {
		saved[p.Key] = true
	}
	for _, p := range slices.Collect(r.state.keys.under(r.Prefix)) {
		if !saved[p.Key] && p.Session == "" {
			r.state.removeKey(r.at, p)
			r.removed[p.Key] = true
		}
	}
}

// writeKeys gives the keys of the snapshot their contents. Present holders keep their keys, and no token goes back.
func (r *restoring) writeKeys() {
	s := r.state
	for _, p := range r.pairs {
		old, _ := s.keys.pairs.Get(p.Key)
		same := old != nil && old.Flags == p.Flags && bytes.Equal(old.Value, p.Value)
		if p.Key == "" || !strings.HasPrefix(p.Key, r.Prefix) || same || old != nil && r.Founding {
			continue
		}
		now := s.successor(r.at, p.Key, old)
		now.Value, now.Flags = p.Value, p.Flags
		now.LockIndex, now.Fence = max(now.LockIndex, p.LockIndex), max(now.Fence, p.Fence)
		s.replaceKey(r.at, old, now)
		r.done.Keys++
		delete(r.removed, p.Key)
	}
}

// keepBack starts the lock-delays of the snapshot's sessions that no longer exist: for a while, their clients may
// believe that they still hold what they held.
func (r *restoring) keepBack() {
	if r.KeysOnly {
		return
	}
	delays := make(map[string]int64, len(r.image.Sessions)) // ms
	for _, saved := range r.image.Sessions {
		if r.state.session(saved.ID) == nil {
			delays[saved.ID] = saved.lockDelay()
		}
	}
	keys := &r.state.keys
	for _, p := range r.image.Pairs { // unless a session holds the key or a longer delay blocks it
		delay := delays[p.Session]
		if session, _ := keys.holder(p.Key); delay == 0 || session != "" || p.Key == "" {
			continue
		}
		if until := order.Later(r.at.Lease, delay); until > keys.delays.end(p.Key, r.at.Lease) {
			keys.delays.set(p.Key, until)
		}
	}
	for _, p := range r.image.Permits {
		r.keepPermitsBack(p, delays)
	}
}

// keepPermitsBack keeps back the permits that sessions of the snapshot held, if nothing has that name now.
func (r *restoring) keepPermitsBack(p *Permits, delays map[string]int64) {
	s := r.state
	if s.permits.find(p.Kind, p.Name) != nil || p.Limit == 0 || p.Kind == Key || p.Kind == Lock && p.Limit != 1 {
		return
	}
	var held []int64
	for _, h := range p.Holders {
		if delay := delays[h.Session]; delay > 0 && uint64(len(held)) < uint64(p.Limit) {
			held = append(held, order.Later(r.at.Lease, delay))
		}
	}
	if len(held) == 0 {
		return
	}
	t := &turn{state: s, at: r.at, sem: s.permits.open(p.Kind, p.Name, p.Limit)}
	for _, until := range held {
		s.permits.addDelay(t.edit(), until)
	}
	t.finish()
}
