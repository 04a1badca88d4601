package store

import "time"

// upstreamInterval is upstream's default of evictionIntervalTimerInMs.
const upstreamInterval = 60 * time.Second

// upstreamTimer says when upstream's EvictionTask would run: for the first time one interval after it
// was started. It counts on the lease clock, in ms.
type upstreamTimer struct {
	last int64 // the last run, at first the start
	ran  bool
}

// due says whether it is time to run.
func (t *upstreamTimer) due(now int64) bool {
	return now-t.last >= upstreamInterval.Milliseconds()
}

// run notes a run, and returns by how much it came too late: that time is granted to every lease.
// The first run is never late. Source: AbstractInstanceRegistry.EvictionTask.getCompensationTimeMs.
func (t *upstreamTimer) run(now int64) (compensation int64) {
	if t.ran {
		compensation = max(0, now-t.last-upstreamInterval.Milliseconds())
	}
	t.last, t.ran = now, true
	return compensation
}
