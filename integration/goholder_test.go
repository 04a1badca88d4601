package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// goPause has a holder by package client that is paused beyond its TTL, and an heir that waits for the lock meanwhile.
type goPause struct {
	ctx     context.Context
	kind    string // of goLocks
	lock    string
	way     string // of firstLooks
	self    bool   // the holder stops itself, and looks as the first thing; otherwise the test stops it
	renewed bool   // the session is renewed before the pause
	holder  *child[goHolderReply]
	clients *client.Client // the heir's

	margin, late time.Duration // of the heir behind the holder's deadline; of the first look behind the heir
}

// heir is the next holder of the lock.
type heir struct {
	held *client.Held
	at   time.Time // when it had the lock
	err  error
}

func (r *goPause) run() error {
	acquired, err := r.holder.ask(r.ctx, "acquire", r.kind, r.lock)
	if err != nil {
		return fmt.Errorf("the holder: %w", err)
	}
	if err := r.awaitRenewal(acquired); err != nil {
		return err
	}
	if err := r.pause(); err != nil {
		return err
	}
	next := make(chan heir, 1)
	go func() { next <- r.inherit() }()
	h := <-next
	if h.err != nil {
		return fmt.Errorf("the heir: %w", h.err)
	}
	if err := r.holder.signal(syscall.SIGCONT); err != nil {
		return err
	}
	first, err := r.holder.receive(r.ctx)
	if err != nil {
		return err
	}
	if err := r.check(first, h); err != nil {
		return err
	}
	if released, err := r.holder.ask(r.ctx, "release", r.way, r.lock); err != nil || !released.Lost {
		return fmt.Errorf("release of the lost lock: %+v, %v, want it lost", released, err)
	}
	if err := h.held.Err(); err != nil {
		return fmt.Errorf("the heir, after the first holder's release: %w", err)
	}
	return h.held.Release(r.ctx)
}

// awaitRenewal waits for the first renewal after the acquisition, if it is wanted.
func (r *goPause) awaitRenewal(acquired goHolderReply) error {
	if !r.renewed {
		return nil
	}
	return Poll(ReadyLimit, func() error {
		now, err := r.holder.ask(r.ctx, "look", r.way, r.lock)
		if err == nil && now.Sent == acquired.Sent {
			err = errors.New("the session is not renewed")
		}
		return err
	})
}

// pause stops the holder, which already has its next command.
func (r *goPause) pause() error {
	if r.self {
		return r.holder.send("pause", r.way, r.lock)
	}
	if err := r.holder.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	if err := localcluster.AwaitStopped(r.holder.cmd.Process.Pid); err != nil {
		return err
	}
	return r.holder.send("look", r.way, r.lock)
}

func (r *goPause) inherit() heir {
	o := goLocks[r.kind]
	o.Name, o.TTL = r.lock, ReadyLimit // so long that it holds the lock even on a busy machine
	held, err := r.clients.AcquireLock(r.ctx, o)
	return heir{held: held, at: time.Now(), err: err}
}

// check wants the first look to find the lock lost, and the holder's own deadline to be over before
// another had the lock.
func (r *goPause) check(first goHolderReply, h heir) error {
	r.margin, r.late = h.at.Sub(first.deadline()), time.Unix(0, first.Looked).Sub(h.at)
	switch {
	case !first.Lost:
		return fmt.Errorf("%s, %v after another had the lock, says that it is held", r.way, r.late)
	case !strings.Contains(first.Cause, client.ErrLost.Error()):
		return fmt.Errorf("the context ended because of %q, want %q", first.Cause, client.ErrLost)
	case r.margin <= 0:
		return fmt.Errorf("another had the lock %v before the TTL was over since the last renewal was sent", -r.margin)
	}
	return nil
}

// TestGoClientLockIsFoundLostAtTheFirstLookAfterAPause pauses holders beyond their TTL, and lets them go on when
// another has the lock, without a lock delay in between. They look first of all, before any timer or response can have
// informed them.
func TestGoClientLockIsFoundLostAtTheFirstLookAfterAPause(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, withSteadyLeader(Config{}))
	for kind := range goLocks {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			pausedHolders(t, c, kind)
		})
	}
}

func pausedHolders(t *testing.T, c *Cluster, kind string) {
	const locks, rounds = 20, 3
	ctx, cancel := context.WithTimeout(t.Context(), 10*ReadyLimit)
	defer cancel()
	var clients []*client.Client
	for _, n := range c.Nodes {
		clients = append(clients, goClient(t, client.Config{Servers: []string{n.URL()}}))
	}
	var mu sync.Mutex
	var all []*goPause
	errs := make(chan error, locks)
	for i := range locks {
		go func() {
			errs <- func() error {
				for k := range rounds {
					r := &goPause{
						ctx: ctx, kind: kind, lock: fmt.Sprintf("%s-%d", kind, i), way: firstLooks[(i+k)%len(firstLooks)].name,
						self: k > 0, renewed: k > 1,
						holder: startGoHolder(t, c.Nodes[(i+k)%3]), clients: clients[(i+k+1)%3],
					}
					err := r.run()
					r.holder.stop()
					if err != nil {
						return fmt.Errorf("round %d of %s: %w", k+1, r.lock, err)
					}
					mu.Lock()
					all = append(all, r)
					mu.Unlock()
				}
				return nil
			}()
		}()
	}
	for range locks {
		expect.OK(t, <-errs)
	}
	report(t, all)
}

// report prints the smallest margins.
func report(t *testing.T, all []*goPause) {
	if len(all) == 0 {
		return
	}
	margin, late := all[0].margin, all[0].late
	for _, r := range all {
		margin, late = min(margin, r.margin), min(late, r.late)
	}
	t.Logf("%d pauses: others had the lock at least %v after the holder's deadline; first looks came from %v after that on", len(all), margin, late)
}

// TestGoClientLockIsStillHeldAfterABriefPause: a pause shorter than the TTL costs nothing.
func TestGoClientLockIsStillHeldAfterABriefPause(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, withSteadyLeader(Config{}))
	for kind := range goLocks {
		for _, l := range firstLooks {
			t.Run(kind+" by "+l.name, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), ReadyLimit)
				defer cancel()
				h := startGoHolder(t, c.Nodes[0])
				tries := 0
				// On a machine that is too busy the pause may be too long.
				need.OK(t, Poll(ReadyLimit, func() error {
					tries++
					return pausedBriefly(ctx, t, h, kind, l.name, fmt.Sprintf("brief-%s%s-%d", kind, l.name, tries))
				}))
			})
		}
	}
}

// pausedBriefly pauses a holder for a second. It is an error if the pause was too long for a result.
func pausedBriefly(ctx context.Context, t *testing.T, h *child[goHolderReply], kind, way, lock string) error {
	need.Got(h.ask(ctx, "acquire", kind, lock))(t)
	need.OK(t, h.send("pause", way, lock))
	need.OK(t, localcluster.AwaitStopped(h.cmd.Process.Pid))
	Pass(t, time.Second)
	need.OK(t, h.signal(syscall.SIGCONT))
	first := need.Got(h.receive(ctx))(t)
	inTime := time.Unix(0, first.Looked).Before(first.deadline().Add(-100 * time.Millisecond))
	released := need.Got(h.ask(ctx, "release", way, lock))(t)
	switch {
	case !inTime:
		return errors.New("the pause was too long to tell")
	case first.Lost:
		t.Errorf("%s says that the lock is lost %v before the TTL is over: %s", way, time.Until(first.deadline()), first.Cause)
	case released.Lost && !time.Now().Before(first.deadline()):
		return errors.New("the release was too late to tell")
	case released.Lost:
		t.Error("at its release the lock was lost")
	}
	return nil
}
