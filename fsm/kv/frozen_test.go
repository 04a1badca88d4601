package kv

import (
	"strings"
	"testing"
	"unsafe"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestThawRefusesASnapshotThatLies(t *testing.T) {
	// lived returns a state with a bit of everything.
	lived := func(t *testing.T) Frozen {
		r := newRig(t)
		r.session(s1, ttl(30_000), lockDelay(2000))
		r.session(s2)
		for _, key := range []string{"deleted", "deleted too", "held"} {
			r.yes(acquire(key, s2))
		}
		r.yes(set("free", ""))
		r.yes(del("deleted"))
		r.pass(10)
		r.yes(del("deleted too"))
		r.yes(acquire("delayed", s1))
		r.yes(acquire("delayed too", s1))
		r.yes(DestroySession{s1})
		r.session(s1)
		r.yes(Once{"x", set("free", "1")})
		r.yes(Once{"y", set("free", "2")})
		return r.Freeze()
	}
	tests := []struct {
		lie  func(f *Frozen)
		want string
	}{
		{func(f *Frozen) { f.KeysIndex = f.Index + 1 }, "the last one was"},
		{func(f *Frozen) { f.SessionsIndex = f.Index + 1 }, "the last one was"},
		{func(f *Frozen) { f.PermitsIndex = f.Index + 1 }, "the last one was"},
		{func(f *Frozen) { f.Pruned = f.KeysIndex + 1 }, "was dropped"},
		{func(f *Frozen) { f.Established = f.Lease + 1 }, "was established"},

		{func(f *Frozen) { f.Sessions[1] = f.Sessions[0] }, "is not after"},
		{func(f *Frozen) { f.Sessions[1].Session.ID = strings.ToUpper(s3) }, "is not after"},
		{func(f *Frozen) { f.Sessions[1].Session.ID += "X" }, "not in lower case"},
		{func(f *Frozen) { f.Sessions[0].Session.CreateIndex = 0 }, "created at 0"},
		{func(f *Frozen) { f.Sessions[0].Session.ModifyIndex = f.SessionsIndex + 1 }, "modified at"},
		{func(f *Frozen) { f.Sessions[0].Session.CreateIndex = f.Sessions[1].Session.CreateIndex }, "by one operation"},
		{func(f *Frozen) { f.Sessions[0].Session.TTL = -1 }, "negative"},
		{func(f *Frozen) { f.Sessions[0].Renewed = f.Lease + 1 }, "renewed at"},
		{func(f *Frozen) { f.Sessions[0].Renewed = f.Sessions[0].Session.CreatedAt - 1 }, "renewed at"},

		{func(f *Frozen) { f.Pairs[1] = f.Pairs[0] }, "is not after"},
		{func(f *Frozen) { f.Pairs[0].Key = "" }, "without a name"},
		{func(f *Frozen) { f.Pairs[0].CreateIndex = 0 }, "created at 0"},
		{func(f *Frozen) { f.Pairs[0].ModifyIndex = f.KeysIndex + 1 }, "modified at"},
		{func(f *Frozen) { f.Pairs[0].Fence = f.Pairs[0].ModifyIndex + 1 }, "acquired at"},
		{func(f *Frozen) { heldPair(f).LockIndex = 0 }, "never acquired"},
		{func(f *Frozen) { heldPair(f).Fence = 0 }, "never acquired"},
		{func(f *Frozen) { heldPair(f).Session = s3 }, "which is not there"},

		{func(f *Frozen) { f.Deletions[0], f.Deletions[1] = f.Deletions[1], f.Deletions[0] }, "is not after"},
		{func(f *Frozen) { f.Deletions[1].Key = "held" }, "the key is there"},
		{func(f *Frozen) { f.Deletions[0].Key = "" }, "no name"},
		{func(f *Frozen) { f.Deletions[0].Index = 0 }, "index 0"},
		{func(f *Frozen) { f.Deletions[0].Index = f.KeysIndex + 1 }, "is not in"},
		{func(f *Frozen) { f.Pruned = f.Deletions[0].Index + 1 }, "is not in"},
		{func(f *Frozen) { f.Deletions[0].Fence = f.Deletions[0].Index + 1 }, "acquired at"},
		{func(f *Frozen) { f.Deletions[0].At = f.Lease + 1 }, "deleted at"},
		{func(f *Frozen) { f.Deletions[0].At, f.Deletions[1].At = f.Deletions[1].At, f.Deletions[0].At }, "has the lower index"},
		{func(f *Frozen) { f.Deletions = make([]Deletion, deletionsLimit+1) }, "records of deletions"},

		{func(f *Frozen) { f.Delays[1] = f.Delays[0] }, "is not after"},
		{func(f *Frozen) { f.Delays[0].Key = "" }, "is not after"},
		{func(f *Frozen) { f.Delays[0].Until = f.Lease + 60_001 }, "too far"},

		{func(f *Frozen) { f.Kept[1].Key = f.Kept[0].Key }, "there twice"},
		{func(f *Frozen) { f.Kept[1].At = f.Lease + 1 }, "out of order"},
		{func(f *Frozen) { f.Kept[0].At = f.Kept[1].At + 1 }, "out of order"},
		{func(f *Frozen) { f.Kept[0].Result.Index = f.Index + 1 }, "the last change was"},
		{func(f *Frozen) { f.Kept = make([]KeptResult, onceLimit+1) }, "kept results"},
	}
	for _, test := range tests {
		f := lived(t)
		need.OKf(t, expect.Err(Thaw(f, checks{})), "the truth")
		test.lie(&f)
		_, err := Thaw(f, checks{})
		expect.That(t, err != nil && strings.Contains(err.Error(), test.want), "thawed with error %v, want one that says %q", err, test.want)
	}
}

// heldPair returns a pair of a frozen state that a session holds.
func heldPair(f *Frozen) *Pair {
	for _, e := range f.Pairs {
		if e.Session != "" {
			return e
		}
	}
	panic("no key is held")
}

// Operations are parts of a log entry, which may be much larger than what the state keeps of it.
func TestStateKeepsNothingOfTheOperationsMemory(t *testing.T) {
	r := newRig(t)
	text := "keysessionnodechecktext"
	check := text[14:19]
	r.nodes[CheckRef{Node: text[10:14], ID: check}], r.nodes[CheckRef{Node: text[10:14]}] = false, false
	value := []byte("value")
	s := r.yes(CreateSession{
		ID: text[3:10], Name: text[3:10], Node: text[10:14], TTLText: text[19:],
		Checks: []string{check}, NodeChecks: []string{check}, ServiceChecks: []string{check},
	}).Session
	r.yes(Once{text[:5], KeyOp{Verb: Acquire, Key: text[:3], Value: value, Session: text[3:10]}})
	r.yes(Once{text[:6], KeyTxn([]KeyOp{{Verb: GetOrEmpty, Key: text[:2]}})})
	e := r.pair("key")
	expect.That(t, unsafe.SliceData(e.Value) != unsafe.SliceData(value), "the value is kept in the operation's memory")
	f := r.Freeze()
	kept := []string{
		e.Key, e.Session, s.ID, s.Name, s.Node, s.TTLText, s.Checks[0], s.NodeChecks[0], s.ServiceChecks[0],
		f.Kept[0].Key, f.Kept[1].Key, f.Kept[1].Result.Pairs[0].Key, r.Touched()[1].Name,
	}
	begin := uintptr(unsafe.Pointer(unsafe.StringData(text)))
	for _, k := range kept {
		at := uintptr(unsafe.Pointer(unsafe.StringData(k)))
		expect.That(t, at < begin || at >= begin+uintptr(len(text)), "%q is kept in the operation's memory", k)
	}
}

// frozenPermits returns a state where a holds lock "l", b holds semaphore "x" beside a lock-delay, and c waits for
// it.
func frozenPermits(t *testing.T) (Frozen, Catalog) {
	r := newRig(t)
	r.session(s1)
	r.session(s2)
	r.session(s3)
	r.session("00000000-0000-0000-0000-00000000000d", lockDelay(5000))
	r.yes(AcquirePermit{Kind: Lock, Name: "l", Session: s1, Value: []byte("v")}) // 104
	r.yes(ask("00000000-0000-0000-0000-00000000000d", 0))
	r.yes(ask(s2, 0))
	r.queued(ask(s3, 60_000), 1)
	r.yes(DestroySession{ID: "00000000-0000-0000-0000-00000000000d"}) // 108
	return r.Freeze(), r.nodes
}

func TestThawRefusesPermitsThatLie(t *testing.T) {
	for _, c := range []struct {
		name string
		lie  func(lock, sem *Permits, f *Frozen)
		want string
	}{
		{"twice", func(_, _ *Permits, f *Frozen) { f.Permits[1] = f.Permits[0] }, "not after"},
		{"a key", func(lock, _ *Permits, _ *Frozen) { lock.Kind = Key }, "neither a lock nor a semaphore"},
		{"a lock for two", func(lock, _ *Permits, _ *Frozen) { lock.Limit = 2 }, "a limit of 2"},
		{"a semaphore without permits", func(_, sem *Permits, _ *Frozen) { sem.Limit = 0 }, "a limit of 0"},
		{"too many", func(_, sem *Permits, _ *Frozen) { sem.Limit = 1 }, "2 are held or kept back, of 1"},
		{"idle", func(lock, _ *Permits, _ *Frozen) { lock.Holders = nil }, "no session holds it"},
		{"a queue for what is free", func(_, sem *Permits, _ *Frozen) { sem.Limit = 3 }, "1 wait, while one is free"},
		{"never modified", func(lock, _ *Permits, _ *Frozen) { lock.ModifyIndex = 0 }, "modified at 0"},
		{"modified in the future", func(lock, _ *Permits, f *Frozen) { lock.ModifyIndex = f.PermitsIndex + 1 }, "modified at 109"},
		{"delays out of order", func(_, sem *Permits, _ *Frozen) {
			sem.Limit, sem.Delays = 3, []int64{106_000, 105_000}
		}, "not in the order of time"},
		{"a delay without end", func(_, sem *Permits, _ *Frozen) { sem.Delays = []int64{1 << 60} }, "too far"},
		{"held by an unknown session", func(lock, _ *Permits, _ *Frozen) { lock.Holders[0].Session = "s" }, `session "s"`},
		{"awaited by an unknown session", func(_, sem *Permits, _ *Frozen) { sem.Queue[0].Session = "s" }, `session "s"`},
		{"held and awaited", func(_, sem *Permits, _ *Frozen) { sem.Queue[0].Session = s2 }, "twice"},
		{"held since the future", func(lock, _ *Permits, f *Frozen) { lock.Holders[0].Since = f.Lease + 1 }, "after the lease clock's"},
		{"no token", func(lock, _ *Permits, _ *Frozen) { lock.Holders[0].Fence = 0 }, "token 0"},
		{"a token of the future", func(lock, _ *Permits, _ *Frozen) { lock.Holders[0].Fence = 105 }, "token 105"},
		{"two of one token", func(_, sem *Permits, _ *Frozen) {
			sem.Queue, sem.Delays = nil, nil
			sem.Holders = append(sem.Holders, Holder{Session: s3, Fence: sem.Holders[0].Fence})
		}, "token 106"},
		{"a long value", func(lock, _ *Permits, _ *Frozen) { lock.Holders[0].Value = make([]byte, MaxPermitValue+1) }, "4097 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, catalog := frozenPermits(t)
			c.lie(f.Permits[0], f.Permits[1], &f)
			_, err := Thaw(f, catalog)
			expect.That(t, err != nil && strings.Contains(err.Error(), c.want), "error %v, want one that says %q", err, c.want)
		})
	}
}
