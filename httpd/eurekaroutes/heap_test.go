package eurekaroutes

import (
	"runtime"
	"testing"
)

// BenchmarkHeapPerInstance reports the live heap per instance with JSON and XML served, plain and
// compressed. Goal: 4 KB.
func BenchmarkHeapPerInstance(b *testing.B) {
	const n = 20_000
	for b.Loop() {
		before := liveHeap()
		s := filled(b, n)
		registered := liveHeap()
		d := newTestDocuments(s)
		for _, rep := range []representation{{}, {gzip: true}} {
			d.newestOf(whole, s.Newest(), rep)
			rep.format.XML = true
			d.newestOf(whole, s.Newest(), rep)
		}
		served := liveHeap()
		b.ReportMetric(float64(registered-before)/n, "B/instance-registered")
		b.ReportMetric(float64(served-before)/n, "B/instance-served")
		runtime.KeepAlive(s)
		runtime.KeepAlive(d)
	}
}

func liveHeap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
