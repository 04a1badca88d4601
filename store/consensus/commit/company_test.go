package commit

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store/consensus/leadership"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
	"github.com/seed-20419f34/rollcall/store/expiry"
)

// instantLog is a log whose entries take effect as they come.
type instantLog struct {
	machine *fsm.Machine

	mu      sync.Mutex // guards the following
	index   uint64
	entries []loggedEntry
}

type loggedEntry struct {
	at    time.Duration // since the leader was started
	items int
}

// Apply implements applier.
func (l *instantLog) Apply(entry []byte, _ time.Duration) raft.ApplyFuture {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.index++
	applied, err := l.machine.Apply(l.index, 1, entry)
	return instantResult{applied, err, l.index}
}

type instantResult struct {
	applied fsm.Applied
	err     error
	index   uint64
}

func (r instantResult) Error() error  { return r.err }
func (r instantResult) Response() any { return r.applied }
func (r instantResult) Index() uint64 { return r.index }

// companyRig is the committer of a leader in virtual time.
type companyRig struct {
	*Committer
	log   *instantLog
	ctx   context.Context // until the rig stops
	began time.Time
	calls sync.WaitGroup
}

const renewalWait = 100 * time.Millisecond

func newCompanyRig(t *testing.T, wait time.Duration) *companyRig {
	t.Helper()
	log := &instantLog{machine: fsm.NewMachine(), index: 1}
	founded := need.Got(log.machine.Apply(1, 1, fsm.AppendEstablish(nil, codec.Newest, fsm.Establish{Node: "n1", Cluster: "c", Level: codec.Newest})))(t)
	began := time.Now()
	ctx, stop := context.WithCancel(context.Background())
	state := new(leadership.State)
	state.Lead(leadership.New(expiry.NewReign(founded.Epoch, 0, log.machine.View()), ctx, began))
	metrics := NewMetrics(prometheus.NewRegistry())
	r := &companyRig{log: log, ctx: ctx, began: began}
	r.Committer = New(Config{
		InFlight: 2, RenewalWait: wait, Node: "n1", Boot: 1, Leadership: state, Nodes: port.NewNodes(nil, nil), Metrics: metrics,
		Proposer: &Proposer{Raft: r, Level: log.machine.Level, Leadership: state, Metrics: metrics, Stamp: func() registry.Stamp {
			return registry.Stamp{Lease: time.Since(began).Milliseconds(), Wall: time.Now().UnixMilli()}
		}},
	})
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	t.Cleanup(func() {
		r.calls.Wait()
		stop()
		running.Wait()
	})
	return r
}

// Apply implements applier.
func (r *companyRig) Apply(entry []byte, patience time.Duration) raft.ApplyFuture {
	f := r.log.Apply(entry, patience)
	items := 0
	for _, b := range f.Response().(fsm.Applied).Batches {
		items += len(b.Results)
	}
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	r.log.entries = append(r.log.entries, loggedEntry{time.Since(r.began), items})
	return f
}

func (r *companyRig) entries() []loggedEntry {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	return slices.Clone(r.log.entries)
}

// send commits an operation and reports its outcome.
func (r *companyRig) send(t *testing.T, op registry.Op, pace Pace, want registry.Outcome) {
	r.calls.Go(func() {
		results, err := r.Commit(r.ctx, []fsm.Item{{Origin: registry.FromClient, Op: op}}, pace)
		if err != nil || results.Registry[0].Outcome != want {
			t.Errorf("%T: %+v, %v; want %v", op, results, err, want)
		}
	})
	synctest.Wait()
}

var waiter = registry.NewKey("A", "i")

func registration() registry.Op {
	return registry.Register{Instance: &registry.Instance{App: waiter.App, InstanceID: waiter.ID, Status: registry.Up, Duration: 90}}
}

func TestRenewalsOfALeaderWaitForCompanyAfterTheLastEntry(t *testing.T) {
	renew := registry.Renew{Key: waiter}
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	type step struct {
		after time.Duration
		op    registry.Op
		pace  Pace
		want  registry.Outcome
	}
	tests := []struct {
		name  string
		wait  time.Duration
		steps []step // after a registration
		want  []loggedEntry
	}{
		{"several share an entry", renewalWait,
			[]step{{ms(10), renew, MayWait, registry.Done}, {ms(10), renew, MayWait, registry.Done}, {ms(70), renew, MayWait, registry.Done}},
			[]loggedEntry{{0, 1}, {renewalWait, 3}}},
		{"one long after the last entry", renewalWait,
			[]step{{renewalWait, renew, MayWait, registry.Done}},
			[]loggedEntry{{0, 1}, {renewalWait, 1}}},
		{"one that may not wait, which takes the others along", renewalWait,
			[]step{{ms(10), renew, MayWait, registry.Done}, {ms(10), renew, AtOnce, registry.Done}, {ms(10), renew, MayWait, registry.Done}},
			[]loggedEntry{{0, 1}, {ms(20), 2}, {ms(120), 1}}},
		{"another write of the instance, in its order", renewalWait,
			[]step{{ms(10), renew, MayWait, registry.Done}, {ms(10), registry.Cancel{Key: waiter}, AtOnce, registry.Done}, {ms(10), renew, MayWait, registry.NotFound}},
			[]loggedEntry{{0, 1}, {ms(20), 2}, {ms(120), 1}}},
		{"off", 0,
			[]step{{ms(10), renew, MayWait, registry.Done}, {ms(10), renew, MayWait, registry.Done}},
			[]loggedEntry{{0, 1}, {ms(10), 1}, {ms(20), 1}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newCompanyRig(t, tt.wait)
				r.send(t, registration(), AtOnce, registry.Done)
				for _, s := range tt.steps {
					time.Sleep(s.after)
					r.send(t, s.op, s.pace, s.want)
				}
				r.calls.Wait()
				need.Slice(t, r.entries(), tt.want, "entries, by time and number of operations:")
			})
		})
	}
}

func TestRenewalsWaitTheShorterTheMoreCome(t *testing.T) {
	const share = fewRenewals / int(time.Second/renewalWait) // renewals in an entry, as few as wait for the whole time
	tests := []struct {
		perSecond int
		entries   int // in a second
	}{
		{fewRenewals / 5, 10},
		{fewRenewals, 10},
		{2 * fewRenewals, 2 * fewRenewals / share},
		{manyRenewals * 4 / 5, manyRenewals * 4 / 5 / share},
		{manyRenewals * 2, manyRenewals * 2},
	}
	for _, tt := range tests {
		t.Run(strconv.Itoa(tt.perSecond), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newCompanyRig(t, renewalWait)
				r.send(t, registration(), AtOnce, registry.Done)
				renewForASecond := func() (entries int) {
					before := len(r.entries())
					for range tt.perSecond {
						r.send(t, registry.Renew{Key: waiter}, MayWait, registry.Done)
						time.Sleep(time.Second / time.Duration(tt.perSecond))
					}
					return len(r.entries()) - before
				}
				renewForASecond() // in the first second nobody knows yet how many come
				got := renewForASecond()
				// One may be of renewals that came before, and each waits for the next renewal, too.
				expect.That(t, got <= tt.entries+1 && got >= tt.entries*3/4, "%d entries in a second, want %d", got, tt.entries)
			})
		})
	}
}

func TestFewRenewalsWaitAgainAfterMany(t *testing.T) {
	k := company{limit: renewalWait}
	now := time.Now()
	k.count(2*manyRenewals, now)
	expect.Equal(t, k.wait(now), 0, "while many come:")
	expect.Equal(t, k.wait(now.Add(time.Second)), 0, "in the second after that:")
	expect.Equal(t, k.wait(now.Add(2*time.Second)), renewalWait, "in the next one:")
}

func TestRenewalsOfOtherNodesWaitAtTheLeaderAndHoldNoSlotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newCompanyRig(t, renewalWait)
		r.send(t, registration(), AtOnce, registry.Done)
		serve := func(seq uint64, mayWait bool) {
			r.calls.Go(func() {
				id := fsm.BatchID{Node: "n2", Boot: 1, Seq: seq}
				items := []fsm.Item{{Origin: registry.FromClient, Op: registry.Renew{Key: waiter}}}
				reply := r.Serve(fsm.AppendBatch(nil, codec.Newest, id, items), mayWait)
				res, err := fsm.ParseResults(reply.Results)
				expect.That(t, reply.Answer == port.OK && err == nil && res.Results[0].Outcome == registry.Done, "batch %d: %+v, %v", seq, res, err)
			})
			synctest.Wait()
		}
		time.Sleep(renewalWait / 10)
		serve(1, true)
		serve(2, true)
		time.Sleep(renewalWait)
		serve(3, true)
		serve(4, false)
		serve(5, true)
		r.send(t, registry.Cancel{Key: waiter}, AtOnce, registry.Done) // does not overtake it
		r.calls.Wait()
		later := renewalWait + renewalWait/10
		need.Slice(t, r.entries(), []loggedEntry{{0, 1}, {renewalWait, 2}, {later, 2}, {later, 2}}, "entries, by time and number of operations:")
	})
}

func TestFollowerSendsRenewalsThatMayWaitBesideItsSlots(t *testing.T) {
	c := New(Config{InFlight: 1, RenewalWait: renewalWait, Leadership: new(leadership.State), Nodes: port.NewNodes(nil, nil), Metrics: NewMetrics(prometheus.NewRegistry())})
	queue := func(pace Pace) {
		k := newCall(registry.Renew{Key: waiter})
		k.pace = pace
		c.enqueue(k)
	}
	for i := range waitingBatches {
		queue(MayWait)
		expect.Equal(t, c.holdBack(time.Now()), false, "held back:")
		own, proposals := c.closeBatch()
		need.That(t, c.sendAside(own, proposals, nil), "batch %d takes a slot", i+1)
	}
	queue(MayWait)
	expect.Equal(t, c.holdBack(time.Now()), true, "with as many at the leader as may be, held back:")
	queue(AtOnce)
	expect.Equal(t, c.holdBack(time.Now()), false, "with one that may not wait, held back:")
	own, proposals := c.closeBatch()
	expect.That(t, len(own.calls) == 2 && !c.sendAside(own, proposals, nil), "the batch of %d is sent aside, want both, in a slot", len(own.calls))
	queue(MayWait)
	c.returnAside()
	expect.Equal(t, c.holdBack(time.Now()), false, "with one back, held back:")
}
