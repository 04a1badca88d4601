package sim

import (
	"sync"
	"time"
)

// disk is what happens to the durable writes of a node. The writes themselves go to real files.
type disk struct {
	mu   sync.Mutex
	slow time.Duration
	hung chan struct{} // closed when the disk goes on; nil: it does not hang
	fail error         // of the next write
}

// write is store.TestConfig.Write.
func (d *disk) write(_ string, write func() error) error {
	d.mu.Lock()
	slow, hung, fail := d.slow, d.hung, d.fail
	d.fail = nil
	d.mu.Unlock()
	time.Sleep(slow)
	if hung != nil {
		<-hung
	}
	if fail != nil {
		return fail
	}
	return write()
}

// mend ends all faults.
func (d *disk) mend() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slow, d.fail = 0, nil
	if d.hung != nil {
		close(d.hung)
		d.hung = nil
	}
}

// SlowDisk makes each durable write of a node take longer from now on; 0: no longer.
func (w *World) SlowDisk(node string, by time.Duration) {
	w.Helper()
	d := &w.Node(node).disk
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slow = by
}

// FailDisk has the next durable write of a node fail, before anything was written.
func (w *World) FailDisk(node string, err error) {
	w.Helper()
	n := w.Node(node)
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	n.disk.fail = err
	n.broken.Store(true)
}

// HangDisk has no durable write of a node return until release is called, or the scenario has ended.
func (w *World) HangDisk(node string) (release func()) {
	w.Helper()
	n := w.Node(node)
	n.broken.Store(true)
	d := &n.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	hung := make(chan struct{})
	d.hung = hung
	release = sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.hung == hung {
			close(hung)
			d.hung = nil
		}
	})
	w.ends = append(w.ends, release)
	return release
}
