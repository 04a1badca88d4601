package raftio

import (
	"bytes"
	"errors"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
)

// logsOf are entries from an index on, each with so many bytes.
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
	if err := c.GetLog(n+1, &got); err == nil {
		t.Errorf("entry %d is there: %+v", n+1, got)
	}

	entries, known := c.EntriesWithin(5*size + 1)
	expect.That(t, entries == 5 && known, "%d entries (%v) have 5 MiB, want 5", entries, known)
	bytes := c.BytesAfter(n - 3)
	expect.That(t, bytes == 3*size, "the last 3 entries have %d bytes, want %d", bytes, 3*size)

	// Another leader's entries take the place of the last ones.
	need.OK(t, c.DeleteRange(n-1, n))
	need.OK(t, c.StoreLog(&raft.Log{Index: n - 1, Term: 2, Data: []byte("x")}))
	if err := c.GetLog(n-1, &got); err != nil || got.Term != 2 {
		t.Errorf("entry %d is of term %d (%v), want the new one", n-1, got.Term, err)
	}
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

// TestLogFromBeforeTheStartIsInMemoryAndItsBytesCount: else Raft reads it from the disk twice more, and each
// restart lets the log grow by its bound.
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
