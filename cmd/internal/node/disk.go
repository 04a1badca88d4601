package node

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// diskMeter measures how much the disk of the data directory has left. With less than Least the node refuses what its
// clients want to add, before it must stop. In mode cp all nodes also go by the leader's disk, which every write
// reaches.
type diskMeter struct {
	Dir   string
	Least int64                           // bytes; 0 means no minimum
	Free  func(dir string) (int64, error) // of a directory's disk; nil asks the system
	// reports whether another node leads and its disk is nearly full; nil in mode ap
	LeaderLow func(context.Context) bool
	Log       *slog.Logger

	free      atomic.Int64 // bytes, as of the last successful measurement
	size      atomic.Int64 // of the whole disk, in bytes; 0 if not known
	low       atomic.Bool  // free is below Least
	leaderLow atomic.Bool  // the last result of LeaderLow

	mu      sync.Mutex // held while measuring
	failing bool       // the last measurement failed, which is logged already
}

// diskInterval is the time between two measurements.
const diskInterval = time.Second

// Low reports whether this node's disk is nearly full.
func (d *diskMeter) Low() bool { return d.low.Load() }

// Left returns how many bytes the disk has left, as of the last successful measurement.
func (d *diskMeter) Left() int64 { return d.free.Load() }

// Room returns how many bytes may be taken now without going below Least.
func (d *diskMeter) Room() int64 {
	d.Measure()
	return max(d.free.Load()-d.Least, 0)
}

// Run measures until ctx ends.
func (d *diskMeter) Run(ctx context.Context) {
	wait.Every(ctx, diskInterval, func(time.Time) {
		d.Measure()
		if d.LeaderLow != nil {
			d.leaderLow.Store(d.LeaderLow(ctx))
		}
	})
}

// Measure measures how much is left, and logs when additions start or stop being refused.
func (d *diskMeter) Measure() {
	d.mu.Lock()
	defer d.mu.Unlock()
	ask := d.Free
	if ask == nil {
		ask = freeBytes
	}
	free, err := ask(d.Dir)
	if err != nil {
		if !d.failing {
			d.Log.Warn("cannot tell how much room the disk has left", "err", err)
		}
		d.failing = true
		return
	}
	d.failing = false
	d.free.Store(free)
	d.size.Store(sizeBytes(d.Dir))
	low := free < d.Least
	if d.low.Swap(low) == low {
		return
	}
	if low {
		d.Log.Warn("the disk is nearly full: additions of clients are refused", "free", free, "data.min-free", d.Least)
		return
	}
	d.Log.Info("the disk has room again", "free", free)
}

// check refuses an operation that adds something while this node's or the leader's disk is nearly full.
func (d *diskMeter) check(adds bool) error {
	switch {
	case !adds || !d.low.Load() && !d.leaderLow.Load():
		return nil
	case !d.low.Load():
		return fmt.Errorf("%w: the disk of the leader has less left than its data.min-free wants; what is there can be read, renewed and removed", registry.ErrFull)
	}
	return fmt.Errorf("%w: the disk of this node has %d bytes left, and data.min-free wants %d; what is there can be read, renewed and removed", registry.ErrFull, d.free.Load(), d.Least)
}

// Metrics shows the room that is left, the total, and whether additions are refused.
func (d *diskMeter) Metrics() []prometheus.Collector {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "rollcall", Subsystem: "disk", Name: name, Help: help}, value)
	}
	return []prometheus.Collector{
		gauge("free_bytes", "Free bytes on the disk of the data directory.", func() float64 { return float64(d.free.Load()) }),
		gauge("size_bytes", "Size of the disk of the data directory; 0 if the system does not report it.", func() float64 { return float64(d.size.Load()) }),
		gauge("full", "1 while the disk has less than data.min-free left, so that additions are refused.", func() float64 {
			if d.low.Load() {
				return 1
			}
			return 0
		}),
	}
}
