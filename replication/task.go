package replication

import (
	"context"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/replication/batcher"
)

// facts are what a task tells a peer of one instance.
type facts uint8

const (
	registered facts = 1 << iota // what the client says of itself, changed or new
	overridden                   // an override was set, ended or deleted
	heartbeat                    // it was renewed
	canceled                     // it was removed; alone
)

// task is what a peer is to be told of one instance. All but a removal is read from the registry when
// it is sent, so that the newest state goes and the queue holds no copies. Its id in the dispatcher is
// its key: there is one task per instance, and none while one is on its way (upstream's id has the
// action in it, so that a Register can overtake the Cancel of its instance).
type task struct {
	key   registry.Key
	facts facts
	// first is the oldest change that the task tells, 0 if it tells none (a heartbeat): the cursor stays
	// below it until the task was transmitted.
	first registry.Index
	// began: the instance's life began after the cursor, so that a Eureka server may know an older one.
	began bool
	// remove is the removal, with canceled.
	remove registry.Remove
	// tries counts how often an answer made a new task of this one.
	tries int
	// queued is when the task, or the oldest that was merged into it, was queued; asOf is when remove was
	// right.
	queued, asOf time.Time
}

// merge is the task that tells what two tasks of one instance do, of which newer was made later: a
// cancel clears everything before it, a registration clears a cancel and a heartbeat, and a heartbeat
// is dropped beside anything else, for all of that renews as well.
func merge(older, newer task) task {
	if newer.facts == heartbeat {
		return older.with(newer, older)
	}
	if newer.facts&canceled != 0 {
		return older.with(newer, newer)
	}
	live := newer
	live.facts |= older.facts &^ (canceled | heartbeat)
	live.facts &^= heartbeat
	if older.facts&canceled != 0 {
		live.facts |= registered
		live.began = true
	}
	live.began = live.began || older.began
	return older.with(newer, live)
}

// with is merged, with what two tasks have in common whatever they tell.
func (older task) with(newer, merged task) task {
	merged.first = earlier(older.first, newer.first)
	merged.tries = max(older.tries, newer.tries)
	merged.queued = older.queued
	return merged
}

// earlier is the lower of two changes, of which 0 is none.
func earlier(a, b registry.Index) registry.Index {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// link transmits to one peer.
type link interface {
	batcher.Processor[task]
	// run does what is to be done beside tasks, until ctx ends: it keeps the link known to be alive.
	run(ctx context.Context) error
	// compare compares with the peer. With repair it returns the tasks that make the peer equal too.
	// ErrNoDigests: it cannot; then the tasks, with repair, are everything.
	compare(ctx context.Context, repair bool) (api.PeerDiff, []task, error)
	// url is the one in use, without user info.
	url() string
}

// actor is a link that also tells an operator's act that is in no change list: those to nodes of the
// own datacenter.
type actor interface {
	act(ctx context.Context, op registry.SelfPreservation) batcher.Result
}

// linkEnv is what a link needs.
type linkEnv struct {
	config Config
	peer   PeerConfig
	// view is the newest state of this node, and clock the lease clock (ms).
	view  func() *registry.View
	clock func() int64
	// submit queues a task, such as the Register that an answer of 404 asks for.
	submit func(task)
	// sent counts a fact that the peer took ("register", "heartbeat", "cancel", "override").
	sent func(fact string)
	// succeeded and failed note the end of a call, for the status; failed takes a sentence.
	succeeded func()
	failed    func(err error)
	// origin is what the peer's own instances, which it sends back as newer, are applied as.
	origin registry.Origin
}

// transmission is the link, as the dispatcher sees it: it brings the ages of removals up to date.
type transmission struct{ *peer }

// Process implements batcher.Processor.
func (t transmission) Process(ctx context.Context, one task) batcher.Result {
	return t.link.Process(ctx, t.aged([]task{one})[0])
}

// ProcessBatch implements batcher.Processor.
func (t transmission) ProcessBatch(ctx context.Context, tasks []task) batcher.Result {
	return t.link.ProcessBatch(ctx, t.aged(tasks))
}

func (t transmission) aged(tasks []task) []task {
	now := time.Now()
	aged := make([]task, len(tasks))
	oldest := now
	for i, one := range tasks {
		if one.queued.Before(oldest) {
			oldest = one.queued
		}
		one.remove.Age += now.Sub(one.asOf).Milliseconds()
		aged[i] = one
	}
	t.metrics.waited(t.Name, now.Sub(oldest))
	return aged
}

// newActs is the dispatcher of operators' acts: in single-item form, without delay. Of two that wait the
// newer one counts.
func newActs(p *peer, a actor) *batcher.Dispatcher[struct{}, registry.SelfPreservation] {
	return batcher.New(batcher.Config[struct{}, registry.SelfPreservation]{
		Name: p.Name + " acts", Processor: acting{a}, WorkloadSize: 1,
		CongestionRetryDelay: p.CongestionDelay, NetworkFailureRetry: p.NetworkDelay, MaxRetryDelay: p.MaxDelay, Backoff: p.Backoff,
	})
}

// acting is a link that tells acts.
type acting struct{ actor }

// Process implements batcher.Processor.
func (a acting) Process(ctx context.Context, op registry.SelfPreservation) batcher.Result {
	return a.act(ctx, op)
}

// ProcessBatch implements batcher.Processor; in single-item form nobody calls it.
func (a acting) ProcessBatch(ctx context.Context, ops []registry.SelfPreservation) batcher.Result {
	for _, op := range ops {
		if result := a.act(ctx, op); result != batcher.Success {
			return result
		}
	}
	return batcher.Success
}

// tellAct queues an operator's act.
func (s *session) tellAct(op registry.SelfPreservation) {
	if s.acts != nil {
		s.acts.Process(struct{}{}, op, time.Now().Add(s.Expiry))
	}
}
