package kv

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestViewCutsKeysBehindTheSeparator(t *testing.T) {
	r := newRig(t)
	for _, key := range []string{"a", "a/", "a/b", "a/b/c", "a/b/d", "a/c", "ab", "b//c", "é/x"} {
		r.yes(set(key, ""))
	}
	tests := []struct {
		prefix, separator string
		want              []string
	}{
		{"", "", []string{"a", "a/", "a/b", "a/b/c", "a/b/d", "a/c", "ab", "b//c", "é/x"}},
		{"", "/", []string{"a", "a/", "ab", "b/", "é/"}},
		{"a", "/", []string{"a", "a/", "ab"}},
		{"a/", "/", []string{"a/", "a/b", "a/b/", "a/c"}},
		{"a/b", "/", []string{"a/b", "a/b/"}},
		{"a/b/", "/", []string{"a/b/c", "a/b/d"}},
		{"b/", "/", []string{"b//"}},
		{"b", "//", []string{"b//"}},
		{"x", "/", nil},
	}
	for _, test := range tests {
		got, _, _ := r.View().Keys(test.prefix, test.separator)
		expect.That(t, slices.Equal(got, test.want), "keys under %q cut at %q are %q, want %q", test.prefix, test.separator, got, test.want)
	}
}

func TestViewOfTheSameStateIsShared(t *testing.T) {
	r := newRig(t)
	r.yes(set("a", "1"))
	first := r.View()
	r.pass(1)
	r.yes(set("a", "1"))
	second := r.View()
	expect.That(t, first.shown == second.shown, "without a change the tables were copied")
	expect.That(t, first.Lease() != second.Lease() && second.Lease() == r.now,
		"the lease clock went from %d to %d, want %d", first.Lease(), second.Lease(), r.now)
}

func TestDeletionRecordsAreDroppedAfterADay(t *testing.T) {
	r := newRig(t)
	r.yes(set("a", "1"))
	r.yes(del("a"))
	deleted := r.now
	r.Advance(deleted + deletionsFor - 1)
	need.Equal(t, len(r.Freeze().Deletions), 1, "records of deletions within a day:")
	r.Advance(deleted + deletionsFor)
	f := r.Freeze()
	expect.That(t, len(f.Deletions) == 0 && f.Pruned == 101,
		"%d records after a day, the newest that was forgotten is %d, want none and 101", len(f.Deletions), f.Pruned)
}

func TestDeletionRecordsAreDroppedOldestFirst(t *testing.T) {
	r := newRig(t)
	r.yes(set("first", "1"))
	r.yes(del("first"))
	for i := range deletionsLimit {
		r.Apply(r.at(), set(fmt.Sprint("k/", i), "")) // without a view of each
		r.next++
	}
	tree := r.yes(KeyOp{Verb: DeleteTree, Key: "k/"}).Index
	f := r.Freeze()
	expect.That(t, len(f.Deletions) == deletionsLimit && f.Pruned == 101 && f.Deletions[0].Index == tree && !slices.ContainsFunc(f.Deletions, func(d Deletion) bool { return d.Key == "first" }),
		"%d records, first key %q, the newest that was dropped is %d; want %d, and the oldest one dropped", len(f.Deletions), f.Deletions[0].Key, f.Pruned, deletionsLimit)
}

// weigh counts the bytes of a state by a walk.
func weigh(s *State) int {
	bytes := s.kept.bytes
	for _, e := range s.keys.pairs.Values() {
		bytes += e.Weight()
	}
	for _, d := range s.keys.deletions.byKey.Values() {
		bytes += d.weight()
	}
	for _, l := range s.sessions.byID.Values() {
		bytes += l.session.Weight()
	}
	for _, key := range s.keys.delays.until.Keys() {
		bytes += delayWeight + len(key)
	}
	for _, kind := range []Kind{Lock, Semaphore} {
		for p := range s.View().AllPermits(kind) {
			bytes += permitsWeight + len(p.Name) + len(p.Delays)*delayWeight
			for _, h := range p.Holders {
				bytes += weightWith(h.Value)
			}
			for _, w := range p.Queue {
				bytes += weightWith(w.Value)
			}
		}
	}
	return bytes
}

func TestViewBytesAreThoseOfWhatIsInTheState(t *testing.T) {
	r := newRig(t)
	set := func(key string, bytes int) Op { return KeyOp{Verb: Set, Key: key, Value: make([]byte, bytes)} }
	for i, op := range []Op{
		CreateSession{ID: s1, Name: "first", Behavior: DeleteKeys},
		CreateSession{ID: s2, NodeChecks: []string{serfHealth}, TTL: 10_000},
		set("a", 100), set("a", 10), set("b/1", 1000), set("b/2", 1000),
		KeyOp{Verb: Acquire, Key: "held", Session: s1, Value: make([]byte, 50)},
		KeyOp{Verb: Acquire, Key: "kept", Session: s2, Value: make([]byte, 50)},
		KeyOp{Verb: Delete, Key: "a"}, set("a", 1), KeyOp{Verb: Delete, Key: "a"},
		KeyTxn([]KeyOp{{Verb: Set, Key: "t", Value: make([]byte, 70)}, {Verb: CAS, Key: "t", Index: 1}}),
		KeyTxn([]KeyOp{{Verb: Set, Key: "u", Value: make([]byte, 70)}}),
		KeyOp{Verb: DeleteTree, Key: "b/"},
		Once{Key: "once", Op: set("c", 300)},
		CreateSession{ID: s3, LockDelay: 15_000_000_000},
		KeyOp{Verb: Acquire, Key: "delayed", Session: s3},
		AcquirePermit{Kind: Lock, Name: "lock", Session: s1, Value: make([]byte, 100)},
		AcquirePermit{Kind: Lock, Name: "lock", Session: s1, Value: make([]byte, 200)},
		AcquirePermit{Kind: Lock, Name: "lock", Session: s2, Value: make([]byte, 300), Wait: 60_000},
		AcquirePermit{Kind: Lock, Name: "lock", Session: s2, Value: make([]byte, 400), Wait: 90_000},
		AcquirePermit{Kind: Lock, Name: "lock", Session: s3, Wait: 90_000},
		AcquirePermit{Kind: Semaphore, Name: "two", Session: s2, Limit: 2},
		AcquirePermit{Kind: Semaphore, Name: "two", Session: s3, Limit: 2, Value: make([]byte, 50)},
		LeaveQueue{Kind: Lock, Name: "lock", Session: s2},
		ReleasePermit{Kind: Semaphore, Name: "two", Session: s2},
		DestroySession{ID: s1}, DestroySession{ID: s3}, DestroySession{ID: s2},
	} {
		r.do(op)
		got, want := r.View().Bytes(), weigh(r.State)
		need.That(t, got == want, "operation %d, %+v: %d bytes, want %d", i, op, got, want)
		thawed := need.Got(Thaw(r.Freeze(), r.nodes))(t)
		if got, want := thawed.View().Bytes(), r.View().Bytes(); got != want || got == 0 {
			t.Fatalf("operation %d, %+v: %d bytes after a restore, want %d", i, op, got, want)
		}
	}
	r.Advance(r.now + 2*deletionsFor + OnceFor)
	got, want := r.View().Bytes(), weigh(r.State)
	expect.That(t, got == want, "%d bytes after a day, want %d", got, want)
	before := r.View().Bytes()
	for i := range 10 {
		r.do(set(fmt.Sprintf("k%d", i), 1000))
	}
	grown := r.View().Bytes() - before
	expect.That(t, grown >= 10_000, "ten values of 1000 bytes count as %d", grown)
}

// part returns a part of a restore with an image.
func part(t testing.TB, id string, number uint64, m Image) StagePart {
	packer := need.Got(zstd.NewWriter(nil))(t)
	return StagePart{ID: id, Part: number, Content: packer.EncodeAll(m.Encode(codec.Newest), nil)}
}

func keys(names ...string) (m Image) {
	for _, name := range names {
		m.Pairs = append(m.Pairs, &Pair{Key: name, Value: []byte("saved"), CreateIndex: 1, ModifyIndex: 1})
	}
	return m
}

// saysNo performs an operation that must be refused with these words.
func (r *rig) saysNo(op Op, words string) {
	r.t.Helper()
	res := r.do(op)
	expect.That(r.t, !res.OK && strings.Contains(res.Refusal, words), "%T: %+v, want it refused: %s", op, res, words)
}

// restore performs the last operation of a restore, whose index is the catalog's.
func (r *rig) restore(op Restore) {
	r.t.Helper()
	res := r.Apply(r.at(), op)
	need.That(r.t, res.OK, "%+v: %+v, want it done", op, res)
}

// stored returns a key's pair after a restore, or nil.
func (r *rig) stored(key string) *Pair {
	p, _ := r.View().Get(key)
	return p
}

func TestOneRestoreAtATimeIsUnderWay(t *testing.T) {
	r := newRig(t)
	r.yes(part(t, "first", 0, keys("a")))
	r.saysNo(part(t, "second", 0, keys("b")), "another restore")
	r.saysNo(Restore{ID: "second", Parts: 1}, "given up")
	r.saysNo(part(t, "first", 2, keys("c")), "part 1 is missing")
	r.yes(part(t, "first", 1, keys("b")))
	r.yes(part(t, "first", 0, keys("a"))) // repetitions
	r.yes(part(t, "first", 1, keys("b")))
	expect.That(t, r.stored("a") == nil, "key %q is there", "a") // nothing has happened yet
	r.restore(Restore{ID: "first", Parts: 2})
	r.restore(Restore{ID: "first", Parts: 2})
	expect.That(t, r.stored("a") != nil && r.stored("b") != nil, "the keys are %v and %v", r.stored("a"), r.stored("b"))
	r.yes(part(t, "second", 0, keys("c")))
	r.yes(DropStaged{ID: "second"})
	r.yes(part(t, "third", 0, keys("c")))
}

// A sender that falls silent keeps others from restoring for a minute.
func TestRestoreWhoseSenderFellSilentIsGivenUp(t *testing.T) {
	r := newRig(t)
	r.yes(part(t, "first", 0, keys("a")))
	r.pass(stagedFor - 1)
	r.saysNo(part(t, "second", 0, keys("b")), "given up after 60 s")
	r.pass(1)
	r.yes(part(t, "second", 0, keys("b")))
	r.saysNo(Restore{ID: "first", Parts: 1}, "given up")
	r.restore(Restore{ID: "second", Parts: 1})
	expect.That(t, r.stored("a") == nil, "key %q is there", "a")
}

// A key that ends with its session does not come back without the session.
func TestRestoreLeavesKeysAwayThatEndedWithTheirSession(t *testing.T) {
	r := newRig(t)
	m := keys("ephemeral", "lasting", "plain")
	m.Sessions = []*Session{{ID: s1, Behavior: DeleteKeys, CreateIndex: 1, ModifyIndex: 1}, {ID: s2, CreateIndex: 1, ModifyIndex: 1}}
	m.Pairs[0].Session, m.Pairs[1].Session = s1, s2
	m.Sessions[0].LockDelay = 5_000_000_000
	r.session(s3, deleteKeys)
	r.yes(acquire("now", s3))
	r.yes(part(t, "r", 0, m))
	r.restore(Restore{ID: "r", Parts: 1})
	expect.That(t, r.stored("ephemeral") == nil, "key %q is there", "ephemeral")
	expect.That(t, r.stored("now") == nil, "key %q is there", "now") // its session has ended by the restore
	expect.That(t, r.stored("lasting").Session == "" && r.stored("plain") != nil, "the key of a session that releases is %+v", r.stored("lasting"))
	expect.That(t, r.View().Delayed("ephemeral") > 0, "no lock-delay keeps back the key whose holder may believe that it holds it")
	last := r.View().LastRestoration()
	expect.That(t, last.Keys == 2 && last.KeysDeleted == 1 && last.SessionsEnded == 1, "restored: %+v", last)
}

func TestRestoreBringsPermissionsBackOnlyIfAskedTo(t *testing.T) {
	token := &access.Token{Accessor: strings.Repeat("a", 16), Name: "saved", Roles: []string{"all"}, Secrets: []access.Secret{{}}}
	roles := []*access.Role{{Name: "all", Rules: access.Everything()}}
	m := keys("a")
	m.Access = access.Content{Mode: access.On, Bootstrapped: true, Roles: roles, Tokens: []*access.Token{token}}
	r := newRig(t)
	r.yes(part(t, "without", 0, m))
	r.restore(Restore{ID: "without", Parts: 1})
	got := r.Access()
	expect.That(t, r.stored("a") != nil && got.Empty(), "without asking for it: %+v", got.Content)

	for _, op := range []Restore{{KeysOnly: true, WithAuth: true}, {Founding: true, WithAuth: true}} {
		r.yes(part(t, "r", 0, m))
		op.ID, op.Parts = "r", 1
		r.saysNo(op, "roles and tokens come back with a restore of everything")
	}
	bad := m
	bad.Access.Roles = []*access.Role{{Name: "a b"}}
	r.yes(part(t, "bad", 0, bad))
	r.saysNo(Restore{ID: "bad", Parts: 1, WithAuth: true}, "its roles and tokens: role \"a b\"")

	r.yes(part(t, "with", 0, m))
	r.restore(Restore{ID: "with", Parts: 1, WithAuth: true})
	got = r.Access()
	last := r.View().LastRestoration()
	expect.That(t, got.Mode == access.On && got.Holder(token.Accessor) != nil && got.Revision > 0 && last.Roles == 1 && last.Tokens == 1, "when asked for it: %+v, %+v", got.Content, last)

	r.yes(Access{access.Change{Revoke: []string{token.Accessor}, Sure: true}})
	r.yes(part(t, "again", 0, m))
	r.restore(Restore{ID: "again", Parts: 1, WithAuth: true})
	expect.That(t, r.Access().Holder(token.Accessor) == nil, "a revoked token is back")
}

// woken reports whether a wait is over.
func woken(w *Wait) bool {
	select {
	case <-w.Woken():
		return true
	default:
		return false
	}
}

func TestWatchersWakeOnlyThoseOfTheTopic(t *testing.T) {
	topics := []Topic{
		{KeyTopic, "a/b"}, {KeyTopic, "a"}, {KeyTopic, "a/b/c"},
		{PrefixTopic, ""}, {PrefixTopic, "a"}, {PrefixTopic, "a/"}, {PrefixTopic, "a/b"}, {PrefixTopic, "a/bc"}, {PrefixTopic, "b"},
		{Kind: SessionsTopic}, {LockTopic, "a/b"}, {SemaphoreTopic, "a/b"},
	}
	tests := []struct {
		touched []Topic
		want    []Topic
	}{
		{nil, nil},
		{[]Topic{{KeyTopic, "a/b"}}, []Topic{{KeyTopic, "a/b"}, {PrefixTopic, ""}, {PrefixTopic, "a"}, {PrefixTopic, "a/"}, {PrefixTopic, "a/b"}}},
		{[]Topic{{KeyTopic, "c"}}, []Topic{{PrefixTopic, ""}}},
		{[]Topic{{KeyTopic, "b"}, {KeyTopic, "bc"}}, []Topic{{PrefixTopic, ""}, {PrefixTopic, "b"}}},
		{[]Topic{{Kind: SessionsTopic}}, []Topic{{Kind: SessionsTopic}}},
		{[]Topic{{LockTopic, "a/b"}}, []Topic{{LockTopic, "a/b"}}},
		{[]Topic{{SemaphoreTopic, "a/b"}, {SemaphoreTopic, "a"}}, []Topic{{SemaphoreTopic, "a/b"}}},
	}
	for _, test := range tests {
		var w Watchers
		waits := make([]*Wait, len(topics))
		for i, topic := range topics {
			waits[i] = w.Join(topic)
		}
		w.Wake(test.touched)
		var got []Topic
		for i, wait := range waits {
			if woken(wait) {
				got = append(got, topics[i])
			}
		}
		expect.Slice(t, got, test.want, "%v wakes", test.touched)
		n := w.Len()
		expect.That(t, n == len(topics)-len(test.want), "after %v %d wait, want %d", test.touched, n, len(topics)-len(test.want))
		for _, wait := range waits {
			wait.Leave()
		}
		n = w.Len()
		expect.That(t, n == 0 && len(w.lengths) == 0, "after all left %d wait, for %d lengths of prefixes", n, len(w.lengths))
	}
}

func TestWatchersKeepOthersWaitingWhenOneLeaves(t *testing.T) {
	var w Watchers
	topic := Topic{KeyTopic, "a"}
	stays, leaves := w.Join(topic), w.Join(topic)
	leaves.Leave()
	leaves.Leave()
	expect.Equal(t, w.Len(), 1, "waiting:")
	w.Wake([]Topic{topic})
	expect.That(t, woken(stays), "the one that stayed was not woken")
	next := w.Join(topic)
	stays.Leave() // late, and for the wait before
	expect.That(t, !woken(next) && w.Len() == 1, "the next wait is over: %t, %d wait", woken(next), w.Len())
}

func TestWatchersAreAllWokenByANewState(t *testing.T) {
	var w Watchers
	var waits []*Wait
	for _, topic := range []Topic{{KeyTopic, "a"}, {PrefixTopic, "b"}, {PrefixTopic, "bb"}, {Kind: SessionsTopic}, {LockTopic, "c"}} {
		waits = append(waits, w.Join(topic))
	}
	w.WakeAll()
	for i, wait := range waits {
		expect.That(t, woken(wait), "wait %d goes on", i)
	}
	expect.Equal(t, w.Len(), 0, "waiting:")
}

// A watcher that joins, then reads, then waits misses nothing: each waits until it has seen the last write.
func TestWatchersMissNoChange(t *testing.T) {
	const readers, writes = 8, 500
	var w Watchers
	var mutex sync.Mutex
	r := newRig(t)
	view := r.View()
	read := func() *View {
		mutex.Lock()
		defer mutex.Unlock()
		return view
	}
	var done sync.WaitGroup
	for i := range readers {
		topic := []Topic{{KeyTopic, "a/b"}, {PrefixTopic, "a/"}}[i%2]
		done.Go(func() {
			for {
				wait := w.Join(topic)
				if e, _ := read().Get("a/b"); e != nil && string(e.Value) == fmt.Sprint(writes) {
					wait.Leave()
					return
				}
				<-wait.Woken()
				wait.Leave()
			}
		})
	}
	for i := range writes {
		r.yes(set("a/b", fmt.Sprint(i+1)))
		touched := r.Touched()
		next := r.View()
		mutex.Lock()
		view = next
		mutex.Unlock()
		w.Wake(touched)
	}
	done.Wait() // forever, if one is lost
	expect.Equal(t, w.Len(), 0, "waiting:")
}

func TestViewsAreReadWhileTheStateGoesOn(t *testing.T) {
	r := newRig(t)
	s := r.session(s1, ttl(10_000))
	var done sync.WaitGroup
	for i := range 300 {
		r.yes(set(fmt.Sprint("k/", i%7), fmt.Sprint(i)))
		if i%10 == 0 {
			view, want := r.View(), min(i+1, 7)
			done.Go(func() {
				for range 5 {
					pairs, _, _ := view.List("k/")
					expect.That(t, len(pairs) == want, "the view has %d keys, want %d", len(pairs), want)
					renewed := view.Renewed(s)
					expect.That(t, renewed >= s.CreatedAt, "renewed at %d, before its creation at %d", renewed, s.CreatedAt)
				}
			})
		}
		r.pass(1)
		r.yes(RenewSession{s1})
		r.no(KeyTxn([]KeyOp{{Verb: DeleteTree}, {Verb: Get, Key: "x"}}))
	}
	done.Wait()
}
