package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/kv"
)

// What Consul's clients mark their keys with. Source: LockFlagValue and SemaphoreFlagValue of
// github.com/hashicorp/consul/api.
const (
	lockFlags      = 0x2ddccbc058a50c18
	semaphoreFlags = 0xe0f69a2baa414de0
)

// lockDelayPause is how long who meets a lock-delay waits before it tries again, at least: nobody tells
// when it is over.
const lockDelayPause = time.Second

// recipe is what the protocols of Consul's clients have in common.
type recipe struct {
	keeper *keeper
	permit permit
	keys   KV
}

// newRecipe reads keys as they are, whatever the client is content with: who has just acquired a key must
// see that.
func newRecipe(k *keeper, p permit) recipe {
	return recipe{keeper: k, permit: p, keys: KV{client: k.client, consistency: "linearizable"}}
}

// claim is what came of one attempt.
type claim struct {
	fence    kv.Fence
	taken    bool
	behind   uint64 // the index after which it may be free; 0: nobody has it, but there is a lock-delay
	modified uint64 // ModifyIndex of a key that nobody has; 0: there is none
	holders  string // who has it
}

// persist makes attempts until one has it. The first read of an attempt waits for a change behind an index.
func (r recipe) persist(ctx context.Context, attempt func(ctx context.Context, behind uint64) (claim, error)) (kv.Fence, error) {
	ctx, cancel := either(ctx, r.keeper.ctx)
	defer cancel()
	var last claim
	for failures := 0; ; {
		next, err := attempt(ctx, last.behind)
		switch {
		case err == nil && next.taken && r.keeper.valid():
			return next.fence, nil
		case ctx.Err() != nil:
			return kv.Fence{}, context.Cause(ctx)
		case err == nil && r.permit.Try:
			return kv.Fence{}, notAcquired(next.holders)
		case err != nil && (r.permit.Try || hopeless(err) || noSession(err)):
			return kv.Fence{}, err
		}
		r.report(last, next, failures, err)
		last = next
		if err != nil {
			failures++
		} else {
			failures = 0
		}
		if pause := r.pause(next, failures); pause > 0 && !wait(ctx, pause) {
			return kv.Fence{}, context.Cause(ctx)
		}
	}
}

// pause is how long to wait before the next attempt, if that does not wait by itself.
func (r recipe) pause(c claim, failures int) time.Duration {
	switch {
	case failures > 0:
		return retryPause(failures - 1)
	case c.behind == 0:
		return lockDelayPause + rand.N(lockDelayPause)
	}
	return 0
}

// report tells the log who is in the way, when that changes, and the first of several failures.
func (r recipe) report(last, next claim, failures int, err error) {
	switch {
	case err != nil && failures > 0:
	case err != nil:
		r.keeper.client.log.Info("waiting was cut, trying again", kindName(r.permit.kind), r.permit.Name, "err", err)
	case next.holders != last.holders:
		r.keeper.client.log.Info("waiting", kindName(r.permit.kind), r.permit.Name, "held_by", next.holders)
	}
}

// follow is a watch of keys that goes to another server when the one that it asks does not answer renewals.
func (r recipe) follow(key string, query url.Values) kvWatch {
	return kvWatch{kv: r.keys, key: key, query: query, routed: r.keeper.routed}
}

// read returns entries and their index; with behind not 0 it waits until there is another one.
func (r recipe) read(ctx context.Context, key string, query url.Values, behind uint64) ([]Entry, uint64, error) {
	w := r.follow(key, query)
	w.index = behind
	return w.ask(ctx)
}

// write writes a key. ErrNoSession: the session that acquires it has ended.
func (r recipe) write(ctx context.Context, w Write) (Written, error) {
	written, err := r.keys.Write(ctx, w)
	var refused *StatusError
	if errors.As(err, &refused) && refused.Status == http.StatusInternalServerError && strings.Contains(refused.Message, invalidSession) {
		err = ErrNoSession
	}
	return written, err
}

// invalidSession is how Consul's routes say that there is no such session.
const invalidSession = "invalid session"

// conflict is the error of a key that has other flags than it should.
func conflict(e Entry, use string, flags uint64) error {
	return fmt.Errorf("%w: key %q has flags %#x, and that of a %s has %#x", ErrKeyConflict, e.Key, e.Flags, use, flags)
}

// stamped is the value of a key: what was done, and when.
func stamped(what string) []byte { return []byte(what + ":" + time.Now().UTC().Format(time.RFC3339)) }

// lockRecipe is the protocol of api.Lock: the key is acquired with the session.
type lockRecipe struct{ recipe }

func (l lockRecipe) key() string { return "lock/" + l.permit.Name }

func (l lockRecipe) take(ctx context.Context) (kv.Fence, error) { return l.persist(ctx, l.attempt) }

// attempt is repeated at once when another was quicker, and has released the key again.
func (l lockRecipe) attempt(ctx context.Context, behind uint64) (claim, error) {
	seen, err := l.look(ctx, behind)
	for err == nil && !seen.taken && seen.behind == 0 {
		var w Written
		w, err = l.write(ctx, Write{Key: l.key(), Value: stamped("lock"), Flags: lockFlags, Acquire: l.keeper.session})
		if err != nil || w.OK {
			return claim{taken: w.OK, fence: l.fence(w.Fence)}, err
		}
		before := seen.modified
		if seen, err = l.look(ctx, 0); seen.modified == before {
			break // nobody took it, so there is a lock-delay
		}
	}
	return seen, err
}

// look says who has the key.
func (l lockRecipe) look(ctx context.Context, behind uint64) (claim, error) {
	entries, index, err := l.read(ctx, l.key(), make(url.Values), behind)
	if err != nil {
		return claim{}, err
	}
	free := claim{holders: "nobody until a lock-delay is over"}
	if len(entries) == 0 {
		return free, nil
	}
	e := entries[0]
	free.modified = e.ModifyIndex
	switch {
	case e.Flags != lockFlags:
		return claim{}, conflict(e, "lock", lockFlags)
	case e.Session == l.keeper.session:
		return claim{taken: true, fence: l.fence(e.Fence)}, nil
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

var errTaken = errors.New("its key was deleted, or is held by another session")

// watch looks after the key: anybody may delete it.
func (l lockRecipe) watch(ctx context.Context) error {
	w := l.follow(l.key(), make(url.Values))
	return w.run(ctx, func(entries []Entry) error {
		if len(entries) == 0 || entries[0].Session != l.keeper.session {
			return errTaken
		}
		return nil
	})
}
