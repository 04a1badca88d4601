package client

import (
	"context"
	"errors"
	"net/url"

	"github.com/seed-20419f34/rollcall/fsm/kv"
)

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
