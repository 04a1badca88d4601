package store

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// watchedDisk is a disk in a bubble, and how long it takes until a watchdog finds that it hangs.
func watchedDisk(t *testing.T, delay time.Duration, work func(*disk) error, pause func(looks int) time.Duration) (hangs string, after time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := need.Got(openDisk(t.TempDir(), nil, func(err error) { t.Error(err) }))(t)
		defer d.close()
		d.delay.set(delay)
		worked := make(chan error, 1)
		began := time.Now()
		go func() { worked <- work(d) }()
		synctest.Wait()
		dog := watchdog[diskCall]{limit: hungDisk, last: began}
		for looks := 0; hangs == "" && len(worked) == 0; looks++ {
			time.Sleep(watchInterval + pause(looks))
			synctest.Wait()
			if call, found := dog.look(time.Now(), d.running()); found {
				hangs, after = call.name, time.Since(began)
			}
		}
		d.delay.set(0)
		expect.OK(t, <-worked)
	})
	return hangs, after
}

func TestACallHangsByTheLooksAtWhichItWasSeenAndNotByTheTimeThatPassed(t *testing.T) {
	one := func(d *disk) error { return d.StoreLog(&raft.Log{Index: 1, Term: 1}) }
	several := func(d *disk) error {
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
		work   func(*disk) error
		pause  func(looks int) time.Duration // by which so many looks later the next one is late
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
