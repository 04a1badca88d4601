package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// Flags that Consul's clients mark their keys with. Source: LockFlagValue and SemaphoreFlagValue of
// github.com/hashicorp/consul/api.
const (
	lockFlags      = 0x2ddccbc058a50c18
	semaphoreFlags = 0xe0f69a2baa414de0
)

// lockDelayPause is the shortest pause before the next try during a lock delay: no server says when the lock delay is
// over.
const lockDelayPause = time.Second

// recipe is what the protocols of Consul's clients have in common.
type recipe struct {
	keeper *keeper
	permit permit
	keys   KV
}

// newRecipe reads keys linearizably, whatever consistency the client accepts: a session that has just acquired a key
// must see that.
func newRecipe(k *keeper, p permit) recipe {
	return recipe{keeper: k, permit: p, keys: KV{client: k.client, consistency: "linearizable"}}
}

// claim is the result of one attempt.
type claim struct {
	fence    kv.Fence
	acquired bool
	behind   uint64 // the index after which the key may be free; 0 if no session has it, but there is a lock delay
	modified uint64 // ModifyIndex of a key that no session has; 0 if there is no key
	holders  string // the sessions that have it, for people
}

// persist makes attempts until one acquires. The first read of an attempt waits for a change behind an index.
func (r recipe) persist(ctx context.Context, attempt func(ctx context.Context, behind uint64) (claim, error)) (kv.Fence, error) {
	ctx, cancel := wait.Either(ctx, r.keeper.ctx)
	defer cancel()
	var last claim
	for failures := 0; ; {
		next, err := attempt(ctx, last.behind)
		switch {
		case err == nil && next.acquired && r.keeper.valid():
			return next.fence, nil
		case ctx.Err() != nil:
			return kv.Fence{}, context.Cause(ctx)
		case err == nil && r.permit.Try:
			return kv.Fence{}, notAcquired(next.holders)
		case err != nil && (r.permit.Try || isPermanent(err) || noSession(err)):
			return kv.Fence{}, err
		}
		r.report(last, next, failures, err)
		last = next
		if err != nil {
			failures++
		} else {
			failures = 0
		}
		if pause := r.pause(next, failures); pause > 0 && !wait.For(ctx, pause) {
			return kv.Fence{}, context.Cause(ctx)
		}
	}
}

// pause returns how long to wait before the next attempt, unless that waits anyway.
func (r recipe) pause(c claim, failures int) time.Duration {
	switch {
	case failures > 0:
		return wait.Retry(failures - 1)
	case c.behind == 0:
		return lockDelayPause + rand.N(lockDelayPause)
	}
	return 0
}

// report logs the holders, when they change, and the first of several failures.
func (r recipe) report(last, next claim, failures int, err error) {
	switch {
	case err != nil && failures > 0:
	case err != nil:
		r.keeper.client.log.Info("waiting was cut, trying again", kindName(r.permit.kind), r.permit.Name, "err", err)
	case next.holders != last.holders:
		r.keeper.client.log.Info("waiting", kindName(r.permit.kind), r.permit.Name, "held_by", next.holders)
	}
}

// follow returns a watch of keys that moves to another server when the one that it asks does not answer renewals.
func (r recipe) follow(key string, query url.Values) kvWatch {
	return kvWatch{kv: r.keys, key: key, query: query, routed: r.keeper.routed}
}

// read returns entries and their index. If behind is not 0 it waits until there is another index.
func (r recipe) read(ctx context.Context, key string, query url.Values, behind uint64) ([]Pair, uint64, error) {
	w := r.follow(key, query)
	w.index = behind
	return w.ask(ctx)
}

// write writes a key. ErrNoSession means that the session that acquires it has ended.
func (r recipe) write(ctx context.Context, w Write) (Written, error) {
	written, err := r.keys.Write(ctx, w)
	var refused *StatusError
	if errors.As(err, &refused) && refused.Status == http.StatusInternalServerError && strings.Contains(refused.Message, invalidSession) {
		err = ErrNoSession
	}
	return written, err
}

// invalidSession is how Consul's routes say that a session does not exist.
const invalidSession = "invalid session"

// conflict returns the error of a key that has other flags than it should.
func conflict(e Pair, use string, flags uint64) error {
	return fmt.Errorf("%w: key %q has flags %#x, and that of a %s has %#x", ErrKeyConflict, e.Key, e.Flags, use, flags)
}

// stamped returns the value of a key: what was done, and when.
func stamped(what string) []byte { return []byte(what + ":" + time.Now().UTC().Format(time.RFC3339)) }

// lockRecipe is the protocol of api.Lock: the key is acquired with the session.
type lockRecipe struct{ recipe }

func (l lockRecipe) key() string { return "lock/" + l.permit.Name }

func (l lockRecipe) acquire(ctx context.Context) (kv.Fence, error) { return l.persist(ctx, l.attempt) }

// attempt makes one attempt. It starts again at once if another session was quicker, and has released the key again.
func (l lockRecipe) attempt(ctx context.Context, behind uint64) (claim, error) {
	seen, err := l.readHolder(ctx, behind)
	for err == nil && !seen.acquired && seen.behind == 0 {
		var w Written
		w, err = l.write(ctx, Write{Key: l.key(), Value: stamped("lock"), Flags: lockFlags, Acquire: l.keeper.session})
		if err != nil || w.OK {
			return claim{acquired: w.OK, fence: l.fence(w.Fence)}, err
		}
		before := seen.modified
		if seen, err = l.readHolder(ctx, 0); seen.modified == before {
			break // no session acquired it, so there is a lock delay
		}
	}
	return seen, err
}

// readHolder reads the session that has the key.
func (l lockRecipe) readHolder(ctx context.Context, behind uint64) (claim, error) {
	entries, index, err := l.read(ctx, l.key(), make(url.Values), behind)
	if err != nil {
		return claim{}, err
	}
	free := claim{holders: "no session until a lock-delay is over"}
	if len(entries) == 0 {
		return free, nil
	}
	e := entries[0]
	free.modified = e.ModifyIndex
	switch {
	case e.Flags != lockFlags:
		return claim{}, conflict(e, "lock", lockFlags)
	case e.Session == l.keeper.session:
		return claim{acquired: true, fence: l.fence(e.Fence)}, nil
	case e.Session != "":
		return claim{behind: index, holders: "session " + e.Session}, nil
	}
	return free, nil
}

func (l lockRecipe) fence(token uint64) kv.Fence {
	return kv.Fence{Kind: kv.Key, Name: l.key(), Index: kv.Index(token)}
}

func (l lockRecipe) release(ctx context.Context, _ kv.Fence) (bool, error) {
	w, err := l.write(ctx, Write{Key: l.key(), Value: stamped("unlock"), Flags: lockFlags, Release: l.keeper.session})
	return w.OK, err
}

var errKeyLost = errors.New("its key was deleted, or is held by another session")

// watch watches the key, which any client may delete.
func (l lockRecipe) watch(ctx context.Context) error {
	w := l.follow(l.key(), make(url.Values))
	return w.run(ctx, func(entries []Pair) error {
		if len(entries) == 0 || entries[0].Session != l.keeper.session {
			return errKeyLost
		}
		return nil
	})
}

// semaphoreRecipe is the protocol of api.Semaphore: each contender has a key, which shows that it lives, and another
// key holds the list of holders.
type semaphoreRecipe struct {
	recipe
	token uint64 // of the contender's key; 0 if it is not known to exist
}

// holdersList is the value of the list, with the field names of api.Semaphore.
type holdersList struct {
	Limit   int
	Holders map[string]bool // by session
}

func (s *semaphoreRecipe) prefix() string    { return "semaphore/" + s.permit.Name + "/" }
func (s *semaphoreRecipe) contender() string { return s.prefix() + s.keeper.session }
func (s *semaphoreRecipe) list() string      { return s.prefix() + ".lock" }

func (s *semaphoreRecipe) acquire(ctx context.Context) (kv.Fence, error) {
	return s.persist(ctx, s.attempt)
}

// attempt makes one attempt. It starts again at once if another contender was quicker to change the list.
func (s *semaphoreRecipe) attempt(ctx context.Context, behind uint64) (claim, error) {
	for {
		found, err := s.readContenders(ctx, behind)
		if err != nil {
			return claim{}, err
		}
		if s.token == 0 || !found.alive[s.keeper.session] {
			if err := s.contend(ctx); err != nil {
				return claim{}, err
			}
			behind = 0
			continue
		}
		done, err := s.join(ctx, found)
		if err != nil || done.acquired || done.behind > 0 {
			return done, err
		}
		behind = 0
	}
}

// contend creates the contender's key.
func (s *semaphoreRecipe) contend(ctx context.Context) error {
	w, err := s.write(ctx, Write{Key: s.contender(), Value: stamped("contend"), Flags: semaphoreFlags, Acquire: s.keeper.session})
	if err == nil && !w.OK {
		err = fmt.Errorf("%w: key %q is held by another session than its own", ErrKeyConflict, s.contender())
	}
	s.token = w.Fence
	return err
}

// join acquires a permit if there is one. The zero claim means that another contender was quicker.
func (s *semaphoreRecipe) join(ctx context.Context, found contenders) (claim, error) {
	mine := claim{acquired: true, fence: kv.Fence{Kind: kv.Key, Name: s.contender(), Index: kv.Index(s.token)}}
	list, err := found.living(s)
	switch {
	case err != nil:
		return claim{}, err
	case list.Holders[s.keeper.session]:
		return mine, nil
	case len(list.Holders) >= list.Limit:
		return claim{behind: found.index, holders: "sessions " + strings.Join(slices.Sorted(maps.Keys(list.Holders)), ", ")}, nil
	}
	list.Holders[s.keeper.session] = true
	written, err := s.replace(ctx, list, found.modified)
	if err != nil || !written {
		return claim{}, err
	}
	return mine, nil
}

// replace writes the list if it has not changed.
func (s *semaphoreRecipe) replace(ctx context.Context, list holdersList, modified uint64) (bool, error) {
	value, err := json.Marshal(list)
	if err != nil {
		return false, err
	}
	w, err := s.write(ctx, Write{Key: s.list(), Value: value, Flags: semaphoreFlags, CAS: &modified})
	return w.OK, err
}

// contenders has the keys of a semaphore at one index.
type contenders struct {
	index    uint64
	list     holdersList
	modified uint64          // ModifyIndex of the list; 0 if there is none
	alive    map[string]bool // sessions that hold a key
}

func (s *semaphoreRecipe) readContenders(ctx context.Context, behind uint64) (contenders, error) {
	entries, index, err := s.read(ctx, s.prefix(), url.Values{"recurse": {""}}, behind)
	if err != nil {
		return contenders{}, err
	}
	found, err := s.found(entries)
	found.index = index
	return found, err
}

func (s *semaphoreRecipe) found(entries []Pair) (contenders, error) {
	found := contenders{alive: make(map[string]bool)}
	for _, e := range entries {
		if e.Session != "" {
			found.alive[e.Session] = true
		}
		if e.Key != s.list() {
			continue
		}
		if e.Flags != semaphoreFlags {
			return found, conflict(e, "semaphore", semaphoreFlags)
		}
		found.modified = e.ModifyIndex
		if len(e.Value) == 0 {
			continue
		}
		if err := json.Unmarshal(e.Value, &found.list); err != nil {
			return found, fmt.Errorf("%w: the value of key %q is not a list of holders: %w", ErrKeyConflict, e.Key, err)
		}
	}
	return found, nil
}

// living returns the list without sessions that have ended. A contender that finds no other sets the limit.
func (c contenders) living(s *semaphoreRecipe) (holdersList, error) {
	others := len(c.alive)
	if c.alive[s.keeper.session] {
		others--
	}
	if others > 0 && c.list.Limit > 0 && c.list.Limit != s.permit.limit {
		return holdersList{}, fmt.Errorf("%w: it is %d, not %d, in key %q", ErrLimit, c.list.Limit, s.permit.limit, s.list())
	}
	living := holdersList{Limit: s.permit.limit, Holders: make(map[string]bool)}
	for session := range c.list.Holders {
		if c.alive[session] {
			living.Holders[session] = true
		}
	}
	return living, nil
}

// release removes the session from the list and then the contender's key, in this order: a session without a key is
// dead to the others.
func (s *semaphoreRecipe) release(ctx context.Context, _ kv.Fence) (bool, error) {
	held, err := s.depart(ctx)
	if err != nil {
		return false, err
	}
	if err := s.keys.Delete(ctx, s.contender()); err != nil {
		s.keeper.client.log.Info("contender's key not deleted, it will go with its session", "key", s.contender(), "err", err)
	}
	return held, nil
}

// depart removes the session from the list, and reports whether it was in there.
func (s *semaphoreRecipe) depart(ctx context.Context) (bool, error) {
	for {
		found, err := s.readContenders(ctx, 0)
		if err != nil {
			return false, err
		}
		if !found.list.Holders[s.keeper.session] {
			return false, nil
		}
		delete(found.list.Holders, s.keeper.session)
		if written, err := s.replace(ctx, found.list, found.modified); err != nil || written {
			return written, err
		}
	}
}

var errPruned = errors.New("its session was taken out of the list of holders, or its key was deleted")

// watch watches the list and the contender's key, which any client may change.
func (s *semaphoreRecipe) watch(ctx context.Context) error {
	w := s.follow(s.prefix(), url.Values{"recurse": {""}})
	return w.run(ctx, func(entries []Pair) error {
		found, err := s.found(entries)
		if err == nil && (!found.list.Holders[s.keeper.session] || !found.alive[s.keeper.session]) {
			err = errPruned
		}
		return err
	})
}
