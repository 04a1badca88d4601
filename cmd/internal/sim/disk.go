package sim

import (
	"sync"
	"time"
)

// disk is what happens to the durable writes of a node. The writes themselves go to real files.
type disk struct {
	mu    sync.Mutex
	slow  time.Duration
	hung  chan struct{} // closed when the disk resumes; nil if it does not hang
	hangs []func()      // end all hangs so far
	fail  error         // of the next write
	trap  *trap         // the next write runs into it; may be nil
}

// trap holds a write, before it is made or before its caller knows that it was.
type trap struct {
	after   bool
	reached chan struct{} // closed by the write
	sprung  chan struct{} // closed when the write may go on
}

// write is store.TestConfig.Write.
func (d *disk) write(_ string, write func() error) error {
	d.mu.Lock()
	slow, hung, fail, trap := d.slow, d.hung, d.fail, d.trap
	d.fail, d.trap = nil, nil
	d.mu.Unlock()
	time.Sleep(slow)
	if hung != nil {
		<-hung
	}
	if fail != nil {
		return fail
	}
	if trap == nil {
		return write()
	}
	hold := func() {
		close(trap.reached)
		<-trap.sprung
	}
	if !trap.after {
		hold()
		return write()
	}
	err := write()
	hold()
	return err
}

// trapped is how long to wait for a write.
const trapped = 5 * time.Second

// killInWrite kills a node inside its next durable write, before the disk has it or after, or once it has waited in
// vain for one.
func (w *World) killInWrite(n *Node, after bool) {
	t := &trap{after, make(chan struct{}), make(chan struct{})}
	n.disk.mu.Lock()
	n.disk.trap = t
	n.disk.mu.Unlock()
	select {
	case <-t.reached:
	case <-time.After(trapped):
	}
	if n.alive() {
		w.kill(n.Name, false)
	}
	n.disk.mu.Lock()
	n.disk.trap = nil
	n.disk.mu.Unlock()
	close(t.sprung)
}

// mend ends all faults.
func (d *disk) mend() {
	d.mu.Lock()
	d.slow, d.fail = 0, nil
	hangs := d.hangs
	d.mu.Unlock()
	for _, release := range hangs {
		release()
	}
}

// SlowDisk slows each durable write of a node from now on. 0 ends the delay.
func (w *World) SlowDisk(node string, by time.Duration) {
	w.Helper()
	d := &w.Node(node).disk
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slow = by
}

// FailDisk makes the next durable write of a node fail, before anything was written.
func (w *World) FailDisk(node string, err error) {
	w.Helper()
	n := w.Node(node)
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	n.disk.fail = err
	n.broken.Store(true)
}

// HangDisk keeps all durable writes of a node from returning until release is called, or the scenario has ended.
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
		close(hung)
		if d.hung == hung { // otherwise it hangs again, for the writes that come now
			d.hung = nil
		}
	})
	d.hangs = append(d.hangs, release)
	w.ends = append(w.ends, release)
	return release
}
