package integration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

// lockCall is what a holder did to a lock, or to the key that the lock guards.
type lockCall struct {
	do, lock string
	fence    uint64 // write, release: the token of the acquisition that it went by
}

// lockReply is the outcome of a lockCall.
type lockReply struct {
	ok    bool
	fence uint64 // acquire
}

// lockState is a lock in the model: the token of the last acquisition, and whether it was released.
type lockState struct {
	fence    uint64
	released bool
}

// lockModel is a lock with fencing tokens. A session may end at any moment, which no holder sees, so the next
// acquisition is always possible. It is never possible that a holder of an older token still writes, or that a token is
// not higher than all before it.
var lockModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byLock := map[string][]porcupine.Operation{}
		for _, op := range history {
			lock := op.Input.(lockCall).lock
			byLock[lock] = append(byLock[lock], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range byLock {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return lockState{} },
	Step: func(state, input, output any) (bool, any) {
		s, c, r := state.(lockState), input.(lockCall), output.(lockReply)
		switch {
		case !r.ok:
			return true, s // it changed nothing
		case c.do == "acquire":
			return r.fence > s.fence, lockState{fence: r.fence}
		case c.do == "release":
			return c.fence == s.fence && !s.released, lockState{fence: s.fence, released: true}
		}
		return c.fence == s.fence && !s.released, s
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v = %+v", input, output) },
}

// tenure is a time in which a holder believed that it held a lock: from the response to its acquisition until
// its TTL after its last renewal was sent, or until it released.
type tenure struct {
	lock      string
	from, end time.Time
}

// lockHistory is what all holders did.
type lockHistory struct {
	began time.Time

	mu         sync.Mutex
	operations []porcupine.Operation
	tenures    []tenure
}

func (h *lockHistory) add(client int, c lockCall, r lockReply, began time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations = append(h.operations, porcupine.Operation{
		ClientId: client, Input: c, Output: r, Call: int64(began.Sub(h.began)), Return: int64(time.Since(h.began)),
	})
}

func (h *lockHistory) held(lock string, from, end time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tenures = append(h.tenures, tenure{lock, from, end})
}

// overlaps returns two tenures of one lock that overlap; none: no holder ever believed that it held the lock while
// another did.
func (h *lockHistory) overlaps() []tenure {
	slices.SortFunc(h.tenures, func(a, b tenure) int { return cmp.Or(cmp.Compare(a.lock, b.lock), a.from.Compare(b.from)) })
	for i := 1; i < len(h.tenures); i++ {
		if a, b := h.tenures[i-1], h.tenures[i]; a.lock == b.lock && b.from.Before(a.end) {
			return []tenure{a, b}
		}
	}
	return nil
}

// pausedRound has a holder that is paused beyond its TTL, and an heir that waits for the lock meanwhile.
type pausedRound struct {
	t       *testing.T
	ctx     context.Context
	history *lockHistory
	lock    string
	client  int // number of the first holder; the heir's is one more
	first   *holderProcess
	heir    *holderProcess
}

// ask has a holder perform a command, and records it.
func (r *pausedRound) ask(p *holderProcess, client int, do string, fence uint64) (holderReply, error) {
	began := time.Now()
	reply, err := p.ask(r.ctx, do, r.lock)
	if err != nil {
		return reply, fmt.Errorf("%s %s: %w", do, r.lock, err)
	}
	r.history.add(client, lockCall{do: do, lock: r.lock, fence: fence}, lockReply{ok: reply.OK, fence: reply.Fence}, began)
	return reply, nil
}

// errTooBusy says that a holder could not renew its session in time, or got no response, so that nothing follows from
// the round.
var errTooBusy = errors.New("the machine is too busy")

// noLeader matches the error of a holder while the cluster has no leader, or does not respond in time.
var noLeader = regexp.MustCompile(`: (500 No cluster leader|503 |504 )`)

// refusal is the error of a response that should have been OK.
func refusal(command string, reply holderReply, err error) error {
	if reply.Sent > 0 && time.Since(time.Unix(0, reply.Sent)) >= holderTTL || noLeader.MatchString(reply.Error) {
		return fmt.Errorf("%w: %s: %+v, %v", errTooBusy, command, reply, err)
	}
	return fmt.Errorf("%s: %+v, %v", command, reply, err)
}

func (r *pausedRound) run() error {
	mine, err := r.ask(r.first, r.client, "acquire", 0)
	if err != nil || !mine.OK {
		return refusal("the first holder", mine, err)
	}
	acquired := time.Now()
	wrote, err := r.ask(r.first, r.client, "write", mine.Fence)
	if err != nil || !wrote.OK {
		return refusal("a write by the holder", wrote, err)
	}
	renewed := time.Unix(0, wrote.Sent) // or later
	if err := r.first.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	theirs, err := r.ask(r.heir, r.client+1, "acquire", 0)
	if err != nil || !theirs.OK {
		return refusal("the heir", theirs, err)
	}
	inherited := time.Now()
	if waited := inherited.Sub(renewed); waited < holderTTL+holderDelay {
		return fmt.Errorf("the heir got the lock %v after the holder's last renewal: before TTL and lock-delay were over", waited)
	}
	if wrote, err := r.ask(r.heir, r.client+1, "write", theirs.Fence); err != nil || !wrote.OK {
		return refusal("a write by the heir", wrote, err)
	}
	// The paused holder writes first of all.
	woken := time.Now()
	if err := r.first.send("write", r.lock); err != nil {
		return err
	}
	if err := r.first.signal(syscall.SIGCONT); err != nil {
		return err
	}
	late, err := r.first.receive(r.ctx)
	if err != nil {
		return err
	}
	r.history.add(r.client, lockCall{do: "write", lock: r.lock, fence: mine.Fence}, lockReply{ok: late.OK}, woken)
	if late.OK {
		return fmt.Errorf("the write of a holder that slept through the end of its session was accepted: %+v", late)
	}
	r.history.held(r.lock, acquired, time.Unix(0, late.Sent).Add(holderTTL))
	released, err := r.ask(r.heir, r.client+1, "release", theirs.Fence)
	if err != nil || !released.OK {
		return refusal("the heir's release", released, err)
	}
	r.history.held(r.lock, inherited, time.Unix(0, released.Sent))
	return nil
}

// TestLockHolderThatWasPausedIsFencedOff pauses processes of holders beyond the end of their sessions: another holder
// gets the lock after the lock delay, and the write of the paused one when it wakes is refused. The history must be
// one of exclusive locks. TestLateHolderOfALockIsFencedOff of cmd/internal/sim has the exact times.
func TestLockHolderThatWasPausedIsFencedOff(t *testing.T) {
	t.Parallel()
	const locks, rounds = 4, 2
	c := StartCluster(t, withSteadyLeader(Config{}))
	history := &lockHistory{began: time.Now()}
	ctx, cancel := context.WithTimeout(t.Context(), 10*ReadyLimit)
	defer cancel()
	errs := make(chan error, locks)
	for i := range locks {
		go func() {
			errs <- func() error {
				busy := 0
				for k := 0; k < rounds; {
					// A session ends once, so each round has new holders.
					r := &pausedRound{
						t: t, ctx: ctx, history: history, lock: fmt.Sprintf("lock-%d", i), client: 2 * i,
						first: startHolder(t, c.Nodes[(i+k)%3]), heir: startHolder(t, c.Nodes[(i+k+1)%3]),
					}
					err := r.run()
					r.first.stop()
					r.heir.stop()
					if errors.Is(err, errTooBusy) && busy < rounds {
						t.Logf("round %d of %s is played again: %v", k+1, r.lock, err)
						busy++
						continue
					}
					if err != nil {
						return fmt.Errorf("round %d of %s: %w", k+1, r.lock, err)
					}
					k++
				}
				return nil
			}()
		}()
	}
	for range locks {
		expect.OK(t, <-errs)
	}
	result, info := porcupine.CheckOperationsVerbose(lockModel, history.operations, time.Minute)
	t.Logf("%d rounds, %d operations checked: %s", len(history.tenures)/2, len(history.operations), result)
	if result != porcupine.Ok {
		t.Errorf("the history is not one of exclusive locks: %s", visualizeAs(t, lockModel, info))
	}
	two := history.overlaps()
	expect.That(t, two == nil, "two believed to hold the lock at a time: %+v", two)
}

func TestLockModelFindsTwoHolders(t *testing.T) {
	acquire := func(client int, fence uint64, call, ret int64) porcupine.Operation {
		return porcupine.Operation{ClientId: client, Input: lockCall{do: "acquire", lock: "l"}, Output: lockReply{ok: true, fence: fence}, Call: call, Return: ret}
	}
	write := func(client int, fence uint64, ok bool, call, ret int64) porcupine.Operation {
		return porcupine.Operation{ClientId: client, Input: lockCall{do: "write", lock: "l", fence: fence}, Output: lockReply{ok: ok}, Call: call, Return: ret}
	}
	for _, c := range []struct {
		name    string
		history []porcupine.Operation
		want    bool
	}{
		{"one after the other", []porcupine.Operation{acquire(1, 5, 0, 1), write(1, 5, true, 2, 3), acquire(2, 7, 4, 5), write(2, 7, true, 6, 7)}, true},
		{"a late write that was refused", []porcupine.Operation{acquire(1, 5, 0, 1), acquire(2, 7, 2, 3), write(1, 5, false, 4, 5)}, true},
		{"a late write that was accepted", []porcupine.Operation{acquire(1, 5, 0, 1), acquire(2, 7, 2, 3), write(1, 5, true, 4, 5)}, false},
		{"a write that may have been before", []porcupine.Operation{acquire(1, 5, 0, 1), acquire(2, 7, 2, 5), write(1, 5, true, 3, 4)}, true},
		{"a token that goes back", []porcupine.Operation{acquire(1, 7, 0, 1), acquire(2, 5, 2, 3)}, false},
		{"a write after the release", []porcupine.Operation{acquire(1, 5, 0, 1), {ClientId: 1, Input: lockCall{do: "release", lock: "l", fence: 5}, Output: lockReply{ok: true}, Call: 2, Return: 3}, write(1, 5, true, 4, math.MaxInt64)}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect.Equal(t, porcupine.CheckOperations(lockModel, c.history), c.want, "accepted is")
		})
	}
}
