package client

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// savedAs is the list in a file, as words; "none" if there is none.
func savedAs(t *testing.T, path string) string {
	t.Helper()
	s, _, err := lastKnown{path}.load("")
	if err != nil {
		return "none"
	}
	return words(s)
}

func TestAListBeginsWithTheOneOnDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "list")
		s := newListServer(newListModel("e", orders("o1", registry.Up)), true)
		before := discover(t, DiscoveryConfig{File: path}, s)
		pass(time.Minute)
		need.OK(t, before.Close(t.Context()))
		s.kill()
		pass(time.Hour)
		var told heard
		d := discover(t, DiscoveryConfig{File: path, OnChange: told.each}, s)
		need.OK(t, d.Ready(t.Context()))
		status := d.Status()
		// It was heard of 15 s before the end at the earliest.
		expect.That(t, status.Source == SourceFile && status.Server == "" && status.Age >= time.Hour && status.Age <= time.Hour+15*time.Second,
			"the status is %+v, want a file of an hour", status)
		d.wantList(t, "without a server", "ORDERS/o1=UP")
		pass(time.Minute)
		age := d.Age()
		expect.That(t, age >= time.Hour+time.Minute, "a minute later it is %v old", age)
		s.put(orders("o2", registry.Up))
		s.revive()
		pass(longestRetry)
		d.wantList(t, "with a server", "ORDERS/o1=UP ORDERS/o2=UP")
		told.want(t, "", "ORDERS/o1=UP", "ORDERS/o1=UP ORDERS/o2=UP")
		if status := d.Status(); status.Source != SourceWatch {
			t.Errorf("the status is %+v, want a watch", status)
		}
	})
}

func TestAListIsSavedOncePerIntervalAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "list")
		s := newListServer(newListModel("e", orders("o1", registry.Up)), true)
		d := discover(t, DiscoveryConfig{File: path}, s)
		synctest.Wait()
		first := "ORDERS/o1=UP"
		s.put(orders("o2", registry.Up))
		pass(time.Second)
		got := savedAs(t, path)
		expect.That(t, got == first, "after the first list %q is saved, want %q", got, first)
		s.put(orders("o3", registry.Up))
		pass(DefaultRefreshInterval - time.Second - 1)
		got = savedAs(t, path)
		expect.That(t, got == first, "before the interval is over %q is saved, want %q", got, first)
		pass(1)
		if got := savedAs(t, path); got != s.words("") {
			t.Errorf("after the interval %q is saved, want %q", got, s.words(""))
		}
		need.OK(t, os.Remove(path))
		pass(10 * DefaultRefreshInterval)
		got = savedAs(t, path)
		expect.That(t, got == "none", "%q is saved although nothing has changed", got)
		s.put(orders("o4", registry.Up))
		pass(1)
		s.put(orders("o5", registry.Up))
		pass(1)
		need.OK(t, d.Close(t.Context()))
		if got := savedAs(t, path); got != s.words("") {
			t.Errorf("at the end %q is saved, want %q", got, s.words(""))
		}
	})
}

func TestAListThatDoesNotChangeIsNotSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "list")
		s := newListServer(newListModel("", orders("o1", registry.Up)), false)
		discover(t, DiscoveryConfig{File: path}, s)
		pass(time.Second)
		need.OK(t, os.Remove(path))
		pass(10 * DefaultRefreshInterval)
		got := savedAs(t, path)
		expect.That(t, got == "none", "%q is saved although nothing has changed", got)
	})
}

func TestADamagedListOnDiskIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "list")
		need.OK(t, os.WriteFile(path, []byte(`{"version":1,`), 0o600))
		s := newListServer(newListModel("e"), true)
		s.kill()
		c := clientOf(t, s)
		var log logged
		c.log = slog.New(slog.NewTextHandler(&log, nil))
		d := need.Got(c.StartDiscovery(DiscoveryConfig{File: path}))(t)
		synctest.Wait()
		if d.Status().Source != SourceNone || !strings.Contains(log.String(), "of no use") || !strings.Contains(log.String(), "damaged") {
			t.Errorf("the status is %+v, the log %q", d.Status(), log.String())
		}
		s.revive()
		pass(longestRetry)
		got := savedAs(t, path)
		expect.That(t, got == "", "%q is saved, want the empty list", got)
	})
}

func TestAListThatCannotBeSavedIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "later")
		path := filepath.Join(dir, "list")
		s := newListServer(newListModel("e", orders("o1", registry.Up)), true)
		c := clientOf(t, s)
		var log logged
		c.log = slog.New(slog.NewTextHandler(&log, nil))
		need.Got(c.StartDiscovery(DiscoveryConfig{File: path}))(t)
		pass(5 * DefaultRefreshInterval)
		need.OK(t, os.Mkdir(dir, 0o700))
		pass(DefaultRefreshInterval)
		if got := savedAs(t, path); got != "ORDERS/o1=UP" {
			t.Errorf("%q is saved", got)
		}
		for text, want := range map[string]int{"cannot be saved": 1, "saved again": 1} {
			if got := strings.Count(log.String(), text); got != want {
				t.Errorf("the log says %d times %q, want %d; %s", got, text, want, log.String())
			}
		}
	})
}

// logged is a log in memory.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
