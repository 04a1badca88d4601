package store

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/hashicorp/raft"
)

// BenchmarkEntryChecksum stores entries as each node does for each commit, and reports the CPU that it takes,
// the CPU of the checksum, and the share of one in the other, which must be at most 2 %. What else a commit
// takes (encoding, the network, Apply) is left out, so the share in all of it is smaller.
func BenchmarkEntryChecksum(b *testing.B) {
	for _, size := range []int{100, 1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			d, err := openDisk(b.TempDir(), nil, func(err error) { b.Error(err) })
			if err != nil {
				b.Fatal(err)
			}
			defer d.close()
			data := bytes.Repeat([]byte("x"), size)
			began := cpuTime(b)
			for i := range b.N {
				if err := d.StoreLog(&raft.Log{Index: uint64(i + 1), Term: 1, Data: data}); err != nil {
					b.Fatal(err)
				}
			}
			whole := cpuTime(b) - began
			const often = 100 // of what is short, more is measured
			began = cpuTime(b)
			for i := range b.N * often {
				if damaged := seal([]*raft.Log{{Index: uint64(i + 1), Term: 1, Data: data}}); damaged != nil {
					b.Fatal(damaged)
				}
			}
			checksum := (cpuTime(b) - began) / often
			b.ReportMetric(float64(whole)/float64(b.N), "cpu-ns/op")
			b.ReportMetric(float64(checksum)/float64(b.N), "checksum-ns/op")
			b.ReportMetric(100*float64(checksum)/float64(whole), "%")
		})
	}
}
