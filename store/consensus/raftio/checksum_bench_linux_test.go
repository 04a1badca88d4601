package raftio

import (
	"bytes"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
)

// BenchmarkEntryChecksum stores entries, and reads each for two followers, as the leader of three nodes does for
// each commit. It reports the CPU that this takes, the CPU of the checksum, which is computed for the disk and
// compared at each read, and the share of one in the other, which must be at most 2 %. What else a commit takes
// (encoding, the network, Apply) is left out, so the share in all of it is smaller.
func BenchmarkEntryChecksum(b *testing.B) {
	for _, size := range []int{100, 1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			d, logs, err := Open(b.TempDir(), store.LogBolt, func(err error) { b.Error(err) })
			if err != nil {
				b.Fatal(err)
			}
			defer d.Close()
			const followers = 2
			var read raft.Log
			data := bytes.Repeat([]byte("x"), size)
			began := cpuTime(b)
			for i := range b.N {
				if err := logs.StoreLog(&raft.Log{Index: uint64(i + 1), Term: 1, Data: data}); err != nil {
					b.Fatal(err)
				}
				for range followers {
					if err := logs.GetLog(uint64(i+1), &read); err != nil {
						b.Fatal(err)
					}
				}
			}
			whole := cpuTime(b) - began
			const often = 100 // of what is short, more is measured
			began = cpuTime(b)
			for i := range b.N * often {
				log := &raft.Log{Index: uint64(i + 1), Term: 1, Data: data}
				if damaged := seal([]*raft.Log{log}); damaged != nil {
					b.Fatal(damaged)
				}
				for range followers {
					if !intact(log) {
						b.Fatal(log)
					}
				}
			}
			checksum := (cpuTime(b) - began) / often
			b.ReportMetric(float64(whole)/float64(b.N), "cpu-ns/op")
			b.ReportMetric(float64(checksum)/float64(b.N), "checksum-ns/op")
			b.ReportMetric(100*float64(checksum)/float64(whole), "%")
		})
	}
}

// cpuTime is the processor time of this process so far.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	need.OK(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
