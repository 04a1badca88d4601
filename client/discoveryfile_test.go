package client

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/wait"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// savedAs is the list in a file, as words; "none" if there is none.
func savedAs(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		return "none"
	}
	var file struct{ List json.RawMessage }
	need.OK(t, json.Unmarshal(text, &file))
	var all []string
	for _, l := range need.Got(eureka.DecodeApplications(file.List))(t).Leases {
		all = append(all, word(l.Instance))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func TestDiscoveryFileIsTheFirstList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "list")
		s := newListServer(newListModel("e", orders("o1", registry.Up)), true)
		before := discover(t, DiscoveryConfig{File: path}, s)
		pass(time.Minute)
		need.OK(t, before.Close(t.Context()))
		s.kill()
		pass(time.Hour)
		var changes recorder
		d := discover(t, DiscoveryConfig{File: path, OnChange: changes.each}, s)
		need.OK(t, d.Ready(t.Context()))
		status := d.Status()
		// It was heard of 15 s before the end at the earliest.
		expect.That(t, status.Source == SourceFile && status.Server == "" && status.Age >= time.Hour && status.Age <= time.Hour+15*time.Second,
			"the status is %+v, want a file of an hour", status)
		d.wantList(t, "without a server", "ORDERS/o1=UP")
		pass(time.Minute)
		age := d.Age()
		expect.That(t, age >= time.Hour+time.Minute, "a minute later it is %v old", age)
		s.set(orders("o2", registry.Up))
		s.revive()
		pass(wait.LongestRetry)
		d.wantList(t, "with a server", "ORDERS/o1=UP ORDERS/o2=UP")
		changes.want(t, "", "ORDERS/o1=UP", "ORDERS/o1=UP ORDERS/o2=UP")
		status = d.Status()
		expect.That(t, status.Source == SourceWatch, "the status is %+v, want a watch", status)
	})
}

func TestDiscoveryFileIsSavedOncePerIntervalAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "list")
		s := newListServer(newListModel("e", orders("o1", registry.Up)), true)
		d := discover(t, DiscoveryConfig{File: path}, s)
		synctest.Wait()
		first := "ORDERS/o1=UP"
		s.set(orders("o2", registry.Up))
		pass(time.Second)
		expect.Equal(t, savedAs(t, path), first, "after the first list there is saved")
		s.set(orders("o3", registry.Up))
		pass(DefaultRefreshInterval - time.Second - 1)
		expect.Equal(t, savedAs(t, path), first, "before the interval is over there is saved")
		pass(1)
		expect.Equal(t, savedAs(t, path), s.words(""), "after the interval there is saved")
		need.OK(t, os.Remove(path))
		pass(10 * DefaultRefreshInterval)
		expect.Equal(t, savedAs(t, path), "none", "although nothing has changed, there is saved")
		s.set(orders("o4", registry.Up))
		pass(1)
		s.set(orders("o5", registry.Up))
		pass(1)
		need.OK(t, d.Close(t.Context()))
		expect.Equal(t, savedAs(t, path), s.words(""), "at the end there is saved")
	})
}

func TestDiscoveryFileThatIsDamagedIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "list")
		need.OK(t, os.WriteFile(path, []byte(`{"version":1,`), 0o600))
		s := newListServer(newListModel("e"), true)
		s.kill()
		c := clientOfLists(t, s)
		var log logged
		c.log = slog.New(slog.NewTextHandler(&log, nil))
		d := need.Got(c.StartDiscovery(DiscoveryConfig{File: path}))(t)
		synctest.Wait()
		expect.That(t, d.Status().Source == SourceNone && strings.Contains(log.String(), "of no use") && strings.Contains(log.String(), "damaged"),
			"the status is %+v, the log %q", d.Status(), log.String())
		s.revive()
		pass(wait.LongestRetry)
		expect.Equal(t, savedAs(t, path), "", "saved")
	})
}

func TestDiscoveryFileThatCannotBeSavedIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "later")
		path := filepath.Join(dir, "list")
		s := newListServer(newListModel("e", orders("o1", registry.Up)), true)
		c := clientOfLists(t, s)
		var log logged
		c.log = slog.New(slog.NewTextHandler(&log, nil))
		need.Got(c.StartDiscovery(DiscoveryConfig{File: path}))(t)
		pass(5 * DefaultRefreshInterval)
		need.OK(t, os.Mkdir(dir, 0o700))
		pass(DefaultRefreshInterval)
		expect.Equal(t, savedAs(t, path), "ORDERS/o1=UP", "saved")
		for text, want := range map[string]int{"cannot be saved": 1, "saved again": 1} {
			got := strings.Count(log.String(), text)
			expect.That(t, got == want, "the log says %d times %q, want %d; %s", got, text, want, log.String())
		}
	})
}

// logged is a log in memory.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

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
