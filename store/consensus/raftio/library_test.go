package raftio

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
)

func TestWaitForAFutureIsBoundedAlsoWhereItTakesTimeToGetIt(t *testing.T) {
	busy := make(chan struct{})
	defer close(busy)
	err := Wait(t.Context(), Later(func() raft.SnapshotFuture {
		<-busy
		return nopSnapshot{}
	}), time.Millisecond)
	expect.ErrorIs(t, err, ErrNoResult, "got")
}

func TestWhatWaitsForAPlaceInTheQueueEndsByTheSameBound(t *testing.T) {
	for name, row := range map[string]struct {
		free time.Duration // until Raft has a place
		ends time.Duration // when the wait ends, in s
		want error
	}{
		"at once":      {0, 4, ErrNoResult},
		"late":         {1900 * time.Millisecond, 4, ErrNoResult},
		"without room": {time.Hour, 2, raft.ErrEnqueueTimeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			began, answer := time.Now(), make(neverDone)
			err := Within(t.Context(), 4*time.Second, func(patience time.Duration) raft.Future {
				time.Sleep(min(row.free, patience))
				if row.free > patience {
					return refused{}
				}
				return answer
			})
			expect.ErrorIs(t, err, row.want, "%s: got", name)
			expect.Equal(t, time.Since(began), row.ends*time.Second, "%s: ended after", name)
			close(answer)
		})
	}
}

// neverDone is a future without an answer until it is closed.
type neverDone chan struct{}

func (n neverDone) Error() error { <-n; return nil }

// refused is a request that Raft had no place for.
type refused struct{}

func (refused) Error() error { return raft.ErrEnqueueTimeout }

// nopSnapshot is a snapshot that was saved.
type nopSnapshot struct{ raft.SnapshotFuture }

func (nopSnapshot) Error() error { return nil }

// The wait for an entry that is not applied leaves no goroutine behind: it ends with the wait, not with the entry,
// which Raft may never answer.
func TestWaitLeavesNoOneWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conf, machine := raft.DefaultConfig(), &stuckFSM{release: make(chan struct{})}
		conf.LocalID, conf.LogOutput = "n1", io.Discard
		store, snapshots := raft.NewInmemStore(), raft.NewInmemSnapshotStore()
		_, transport := raft.NewInmemTransport("n1")
		need.OK(t, raft.BootstrapCluster(conf, store, store, snapshots, transport, raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: "n1"}}}))
		r := need.Got(raft.NewRaft(conf, machine, store, store, snapshots, transport))(t)
		<-r.LeaderCh()
		entry := r.Apply([]byte("x"), 0)
		expect.ErrorIs(t, Wait(t.Context(), entry, time.Second), ErrNoResult, "got")
		synctest.Wait()
		expect.ErrorIs(t, entry.Error(), raft.ErrRaftShutdown, "got")
		close(machine.release)
		need.OK(t, r.Shutdown().Error())
	})
}

// stuckFSM applies nothing until it is released.
type stuckFSM struct {
	raft.FSM
	release chan struct{}
}

func (f *stuckFSM) Apply(*raft.Log) any { <-f.release; return nil }

// logsOf returns n entries from an index on, each of the given size.
func logsOf(from uint64, n, size int) (logs []*raft.Log) {
	for i := range uint64(n) {
		logs = append(logs, &raft.Log{Index: from + i, Term: 1, Data: bytes.Repeat([]byte{byte(from + i)}, size)})
	}
	seal(logs)
	return logs
}

func TestLogReadsFromTheDiskAnEntryThatIsDamagedInMemory(t *testing.T) {
	disk, c, err := Open(t.TempDir(), store.LogBolt, func(err error) { t.Error(err) })
	need.OK(t, err)
	defer disk.Close()
	var told []uint64
	c.Damaged = func(index uint64) { told = append(told, index) }
	need.OK(t, c.StoreLogs(logsOf(1, 3, 100)))
	c.newest[1].Data[7] ^= 1
	for index := range uint64(3) {
		var got raft.Log
		err := c.GetLog(index+1, &got)
		expect.That(t, err == nil && intact(&got) && bytes.Equal(got.Data, logsOf(index+1, 1, 100)[0].Data), "entry %d: %v, %+v", index+1, err, got)
	}
	expect.Slice(t, told, []uint64{2}, "told of the entries")
}

func TestLogHasTheNewestEntriesInMemoryAsFarAsTheirBytesFit(t *testing.T) {
	const size = 1 << 20
	disk := raft.NewInmemStore()
	c := &Log{LogStore: disk}
	const n = cachedLogBytes/size + 20
	need.OK(t, c.StoreLogs(logsOf(1, n, size)))
	expect.That(t, len(c.newest) == cachedLogBytes/size && c.bytes == cachedLogBytes,
		"%d entries of %d bytes are in memory, want %d of %d", len(c.newest), c.bytes, cachedLogBytes/size, cachedLogBytes)
	for _, index := range []uint64{1, 20, 21, n} {
		var got raft.Log
		if err := c.GetLog(index, &got); err != nil || got.Index != index || got.Data[0] != byte(index) {
			t.Errorf("entry %d is %d with %d (%v)", index, got.Index, got.Data[0], err)
		}
	}
	var got raft.Log
	expect.That(t, c.GetLog(n+1, &got) != nil, "entry %d is there: %+v", n+1, got)

	entries, known := c.EntriesWithin(5*size + 1)
	expect.That(t, entries == 5 && known, "%d entries (%v) have 5 MiB, want 5", entries, known)
	bytes := c.BytesAfter(n - 3)
	expect.That(t, bytes == 3*size, "the last 3 entries have %d bytes, want %d", bytes, 3*size)

	// Another leader's entries replace the last ones.
	need.OK(t, c.DeleteRange(n-1, n))
	need.OK(t, c.StoreLog(&raft.Log{Index: n - 1, Term: 2, Data: []byte("x")}))
	err := c.GetLog(n-1, &got)
	expect.That(t, err == nil && got.Term == 2, "entry %d is of term %d (%v), want the new one", n-1, got.Term, err)
	bytes = c.BytesAfter(n - 3)
	expect.That(t, bytes == size+1, "the last 2 entries have %d bytes, want %d", bytes, size+1)
}

func TestLogBoundsRequestsAndWritesByBytes(t *testing.T) {
	tests := []struct {
		name    string
		entries int
		size    int
		want    int
	}{
		{"none", 0, 0, 0},
		{"small ones", 500, 1 << 10, 500},
		{"large ones", 64, 1 << 20, 4},
		{"one that is larger than the bound", 3, 5 << 20, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			args := &raft.AppendEntriesRequest{Entries: logsOf(1, tt.entries, tt.size)}
			bound(args)
			expect.That(t, len(args.Entries) == tt.want, "%d of %d entries are sent, want %d", len(args.Entries), tt.entries, tt.want)
		})
	}
}

// Otherwise Raft reads it from the disk twice more, and each restart lets the log grow by its bound.
func TestLogFromBeforeTheStartIsInMemoryAndItsBytesCount(t *testing.T) {
	eachLog(t, func(t *testing.T, kind store.RaftLog) {
		dir := t.TempDir()
		const n, size = 10, 100
		fail := func(err error) { t.Error(err) }
		disk, _, err := Open(dir, kind, fail)
		need.OK(t, err)
		need.OK(t, errors.Join(disk.StoreLogs(logsOf(1, n, size)), disk.Close()))
		disk, c, err := Open(dir, kind, fail)
		need.OK(t, err)
		defer disk.Close()
		if got := c.BytesAfter(2); got != (n-2)*size {
			t.Errorf("the entries after 2 have %d bytes, want %d", got, (n-2)*size)
		}
		entries, known := c.EntriesWithin(5 * size)
		expect.That(t, entries == 5 && known, "%d entries (%v) have %d bytes, want 5", entries, known, 5*size)
		c.LogStore = raft.NewInmemStore() // which has nothing
		for index := uint64(1); index <= n; index++ {
			var got raft.Log
			if err := c.GetLog(index, &got); err != nil || got.Index != index || len(got.Data) != size {
				t.Errorf("entry %d is %d with %d bytes (%v)", index, got.Index, len(got.Data), err)
			}
		}
	})
}

func TestLoopWatchEndsALeaderWhoseMainLoopHangs(t *testing.T) {
	forever := time.Hour
	tests := []struct {
		name    string
		leads   bool
		stands  time.Duration // how long the loop hangs, after its first answers
		busy    bool          // the disk makes progress meanwhile
		givesUp bool
	}{
		{name: "a loop that turns", leads: true},
		{name: "a loop that stands", leads: true, stands: forever, givesUp: true},
		{name: "a loop that stands for a while", leads: true, stands: hungLoop / 2},
		{name: "a loop that is busy with a slow disk", leads: true, stands: forever, busy: true},
		{name: "the loop of a follower, which restores a snapshot", stands: forever},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				rpcs := make(chan raft.RPC)
				began := time.Now()
				var reason error
				w := &LoopWatch{
					Loop:  rpcs,
					Leads: func() bool { return tt.leads },
					Disk: func() uint64 {
						if tt.busy {
							return uint64(time.Since(began) / (4 * time.Second))
						}
						return 0
					},
					Applied: func() uint64 { return 0 },
					Fail:    func(err error) { reason = err },
				}
				go answerQuestions(ctx, rpcs, 10, tt.stands)
				go w.Run(ctx)
				time.Sleep(time.Minute)
				cancel()
				synctest.Wait()
				expect.Equal(t, errors.Is(reason, errLoopStands), tt.givesUp, "the node gives up:")
			})
		})
	}
}

// answerQuestions is a main loop that hangs for some time after the given number of answers.
func answerQuestions(ctx context.Context, rpcs <-chan raft.RPC, answers int, stands time.Duration) {
	for n := 0; ; n++ {
		if n == answers {
			select {
			case <-time.After(stands):
			case <-ctx.Done():
				return
			}
		}
		select {
		case rpc := <-rpcs:
			rpc.Respond(nil, errors.New("RPC does not have a header"))
		case <-ctx.Done():
			return
		}
	}
}

// watchedDisk runs work on a slow disk in a bubble, and returns how long a watchdog takes to find that it hangs.
func watchedDisk(t *testing.T, delay time.Duration, work func(*Disk) error, pause func(looks int) time.Duration) (hangs string, after time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := diskIn(t, t.TempDir(), store.LogBolt)
		defer d.Close()
		d.slow.Set(delay)
		worked := make(chan error, 1)
		began := time.Now()
		go func() { worked <- work(d) }()
		synctest.Wait()
		dog := watchdog[diskCall]{limit: hungDisk, last: began}
		for looks := 0; hangs == "" && len(worked) == 0; looks++ {
			time.Sleep(watchInterval + pause(looks))
			synctest.Wait()
			if call, found := dog.overdue(time.Now(), d.running()); found {
				hangs, after = call.name, time.Since(began)
			}
		}
		d.slow.Set(0)
		expect.OK(t, <-worked)
	})
	return hangs, after
}

func TestWatchdogCountsLooksAndNotTheTimeThatPassed(t *testing.T) {
	one := func(d *Disk) error { return d.StoreLog(&raft.Log{Index: 1, Term: 1}) }
	several := func(d *Disk) error {
		for i := range uint64(4) {
			if err := d.StoreLog(&raft.Log{Index: i + 1, Term: 1}); err != nil {
				return err
			}
		}
		return nil
	}
	never := func(int) time.Duration { return 0 }
	at := func(look int, by time.Duration) func(int) time.Duration {
		return func(looks int) time.Duration {
			if looks == look {
				return by
			}
			return 0
		}
	}
	const name = "append to the log"
	tests := []struct {
		name   string
		delay  time.Duration
		work   func(*Disk) error
		pause  func(looks int) time.Duration // by how many looks' time the next one is late
		hangs  string
		within time.Duration
	}{
		{"a disk that hangs", time.Minute, one, never, name, hungDisk + 2*watchInterval},
		{"a slow disk", 4 * time.Second, one, never, "", 0},
		{"a slow disk that makes progress", 2 * time.Second, several, never, "", 0},
		{"a pause of the process in a call", 8 * time.Second, one, at(1, 7*time.Second), "", 0},
		{"a pause of the process late in a slow call", 11 * time.Second, one, at(15, 7*time.Second), "", 0},
		{"a disk that hangs on after a pause", time.Minute, one, at(3, 7*time.Second), name, 14 * time.Second},
		{"a disk that hangs while every other look is late", time.Minute, one, func(looks int) time.Duration { return time.Duration(looks%2) * 600 * time.Millisecond }, name, 25 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			hangs, after := watchedDisk(t, tt.delay, tt.work, tt.pause)
			expect.That(t, hangs == tt.hangs && after <= tt.within, "after %v %q hangs, want %q within %v", after, hangs, tt.hangs, tt.within)
		})
	}
}

// A follower receives a snapshot in the main loop, for as long as that takes.
func TestLoopIsAliveWhileASnapshotComes(t *testing.T) {
	for name, comes := range map[string]bool{"a snapshot that comes": true, "a snapshot of which nothing more comes": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				w := &LoopWatch{Loop: make(chan raft.RPC), Received: func() uint64 {
					if !comes {
						return 7
					}
					return uint64(time.Since(began) / time.Second)
				}}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				expect.Equal(t, w.Alive(ctx), comes, "alive")
			})
		})
	}
}
