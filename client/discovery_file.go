package client

import (
	"context"
	"errors"
	"io/fs"
	"time"
)

// listFile keeps a Discovery's list on disk, by a goroutine of its own: a slow disk keeps nobody waiting.
type listFile struct {
	of   *Discovery
	disk lastKnown
	wake chan struct{} // the list may have changed

	// Of the goroutine.
	saved   *Snapshot // what is on disk; nil: nothing, or nothing of use
	asOf    time.Time // of what is on disk
	failing bool
}

func newListFile(d *Discovery) *listFile {
	return &listFile{of: d, disk: lastKnown{path: d.config.File}, wake: make(chan struct{}, 1)}
}

// restore begins with what is on disk, if that is of use.
func (r *refresher) restore() {
	list, asOf, err := r.file.disk.load(r.config.App)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		r.client.log.Warn("the list of instances on disk is of no use, starting without one", "app", r.config.App, "err", err)
		return
	}
	r.file.saved, r.file.asOf = list, asOf
	r.publish(list)
	r.came(SourceFile, "", asOf)
}

// changed says that there may be something to save.
func (f *listFile) changed() {
	select {
	case f.wake <- struct{}{}:
	default: // it will look
	}
}

// run saves the list after changes, once per interval at most, and at the end if it is newer than the file.
func (f *listFile) run(ctx context.Context) {
	for alive := true; alive; {
		select {
		case <-f.wake:
			list, asOf := f.of.dated()
			if list != f.saved {
				f.save(list, asOf)
			}
			alive = wait(ctx, f.of.config.Interval)
		case <-ctx.Done():
			alive = false
		}
	}
	if list, asOf := f.of.dated(); list != f.saved || asOf.After(f.asOf) {
		f.save(list, asOf)
	}
}

// dated is the list and when it was up to date; nil before there is one.
func (d *Discovery) dated() (*Snapshot, time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.asOf.IsZero() {
		return nil, time.Time{}
	}
	return d.list.Load(), d.asOf
}

// save replaces the file. What fails is tried again after an interval.
func (f *listFile) save(list *Snapshot, asOf time.Time) {
	err := f.disk.save(f.of.config.App, list, asOf)
	switch log := f.of.client.log; {
	case err != nil && !f.failing:
		log.Warn("the list of instances cannot be saved, trying again", "app", f.of.config.App, "err", err)
	case err == nil && f.failing:
		log.Info("the list of instances is saved again", "app", f.of.config.App, "file", f.disk.path)
	}
	if f.failing = err != nil; f.failing {
		f.changed()
		return
	}
	f.saved, f.asOf = list, asOf
}
