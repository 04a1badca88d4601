package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/kv"
)

// semaphoreRecipe is the protocol of api.Semaphore: each contender has a key, which says that it lives,
// and the holders are a list in another one.
type semaphoreRecipe struct {
	recipe
	token uint64 // of the contender's key; 0: there is none yet, as far as anybody knows
}

// holdersList is the value of the list, in the names of api.Semaphore.
type holdersList struct {
	Limit   int
	Holders map[string]bool // by session
}

func (s *semaphoreRecipe) prefix() string    { return "semaphore/" + s.permit.Name + "/" }
func (s *semaphoreRecipe) contender() string { return s.prefix() + s.keeper.session }
func (s *semaphoreRecipe) list() string      { return s.prefix() + ".lock" }

func (s *semaphoreRecipe) take(ctx context.Context) (kv.Fence, error) {
	return s.persist(ctx, s.attempt)
}

// attempt is repeated at once when another contender was quicker to change the list.
func (s *semaphoreRecipe) attempt(ctx context.Context, behind uint64) (claim, error) {
	for {
		found, err := s.look(ctx, behind)
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
		if err != nil || done.taken || done.behind > 0 {
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

// join takes a permit if there is one. A claim that says nothing: another contender was quicker.
func (s *semaphoreRecipe) join(ctx context.Context, found contenders) (claim, error) {
	mine := claim{taken: true, fence: kv.Fence{Kind: kv.Key, Name: s.contender(), Index: kv.Index(s.token)}}
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

// replace writes the list if nobody has changed it.
func (s *semaphoreRecipe) replace(ctx context.Context, list holdersList, modified uint64) (bool, error) {
	value, err := json.Marshal(list)
	if err != nil {
		return false, err
	}
	w, err := s.write(ctx, Write{Key: s.list(), Value: value, Flags: semaphoreFlags, CAS: &modified})
	return w.OK, err
}

// contenders are the keys of a semaphore at one index.
type contenders struct {
	index    uint64
	list     holdersList
	modified uint64          // ModifyIndex of the list; 0: there is none
	alive    map[string]bool // sessions that hold a key
}

func (s *semaphoreRecipe) look(ctx context.Context, behind uint64) (contenders, error) {
	entries, index, err := s.read(ctx, s.prefix(), url.Values{"recurse": {""}}, behind)
	if err != nil {
		return contenders{}, err
	}
	found, err := s.found(entries)
	found.index = index
	return found, err
}

func (s *semaphoreRecipe) found(entries []Entry) (contenders, error) {
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
			return found, fmt.Errorf("%w: the value of key %q is no list of holders: %w", ErrKeyConflict, e.Key, err)
		}
	}
	return found, nil
}

// living is the list without those whose sessions have ended. Who finds nobody else sets the limit.
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

// release takes the session out of the list and removes the contender's key, in this order: who has no key
// is dead to the others.
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

// depart takes the session out of the list, and says whether it was in there.
func (s *semaphoreRecipe) depart(ctx context.Context) (bool, error) {
	for {
		found, err := s.look(ctx, 0)
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

// watch looks after the list and the contender's key: anybody may change them.
func (s *semaphoreRecipe) watch(ctx context.Context) error {
	w := s.follow(s.prefix(), url.Values{"recurse": {""}})
	return w.run(ctx, func(entries []Entry) error {
		found, err := s.found(entries)
		if err == nil && (!found.list.Holders[s.keeper.session] || !found.alive[s.keeper.session]) {
			err = errPruned
		}
		return err
	})
}
