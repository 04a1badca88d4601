package store

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// Environment of the process that is killed: this test's binary, run once more.
const (
	killedDir  = "ROLLCALL_TEST_KILLED_DIR"
	killedSync = "ROLLCALL_TEST_KILLED_SYNC"
)

// killedOp is the nth operation, from 1, of the process that is killed. Each is a change.
func killedOp(n int) registry.Op {
	id := func(n int) string { return fmt.Sprint("i", n) }
	switch {
	case n%3 == 0:
		return registry.Cancel{Key: registry.NewKey("A", id(n-2))}
	case n%9 == 8:
		return registry.SetOverride{Key: registry.NewKey("A", id(n-1)), Status: registry.OutOfService}
	}
	return registry.Register{Instance: instance("A", id(n), 90)}
}

// workUntilKilled runs a node that performs one operation after the other, and prints the number of each
// that was answered.
func workUntilKilled(dir string) {
	sync := Sync(os.Getenv(killedSync))
	s, err := OpenLocal(Config{Node: "n1", DataDir: dir, Sync: sync, SyncInterval: 2 * time.Millisecond})
	if err != nil {
		panic(err)
	}
	go s.Run(context.Background())
	onDisk := func() registry.Index {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.flushed
	}
	begun := onDisk()
	for n := 1; ; n++ {
		for n == 1000 && sync == SyncInterval && onDisk() == begun { // the first write may take a slow disk long
			time.Sleep(time.Millisecond)
		}
		if _, err := s.Apply(context.Background(), registry.FromClient, killedOp(n)); err != nil {
			panic(err)
		}
		fmt.Println(n)
	}
}

// killAfter runs a node in a process of its own, kills it after some operations were answered, and returns
// the last one that is known to be.
func killAfter(t *testing.T, dir string, sync Sync, operations int) int {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), killedDir+"="+dir, killedSync+"="+string(sync))
	cmd.Stderr = t.Output()
	out := need.Got(cmd.StdoutPipe())(t)
	need.OK(t, cmd.Start())
	answered := 0
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var err error
		if answered, err = strconv.Atoi(lines.Text()); err != nil {
			t.Errorf("the process printed %q", lines.Text())
			break
		}
		if answered == operations {
			need.OK(t, cmd.Process.Kill())
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the process ended by itself")
	}
	return answered
}

func TestAKillLeavesTheStateOfOneWrite(t *testing.T) {
	tests := []struct {
		name       string
		sync       Sync
		operations int
	}{
		{"always", SyncAlways, 100},
		{"interval", SyncInterval, 5000},
		{"none", SyncNone, 5000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			answered := killAfter(t, dir, tt.sync, tt.operations)
			d := need.Got(openLocalDisk(dir))(t)
			defer d.close()
			r := need.Got(d.load())(t)
			got := r.View()
			there := int(got.Index() - reserved)
			t.Logf("%d operations were answered, %d are there", answered, there)
			if tt.sync == SyncAlways && there < answered || tt.sync == SyncInterval && there == 0 || tt.sync == SyncNone && there != 0 {
				t.Errorf("%d operations were answered, %d are there", answered, there)
			}
			model := registry.New()
			for n := 1; n <= there; n++ {
				model.Apply(registry.Stamp{}, 1, registry.FromClient, killedOp(n))
			}
			expect.Deep(t, contents(got), contents(model.View()), "of %d operations there is", there)
		})
	}
}

// contents is what there is, and what was removed.
func contents(v *registry.View) map[string]string {
	found := map[string]string{}
	for l := range v.All() {
		found[l.Key().String()] = fmt.Sprintf("%v at %d, life %d", l.Instance.Status, l.Changed, l.Life)
	}
	for rec := range v.Removals() {
		found[rec.Lease.Key().String()] = fmt.Sprintf("removed at %d, life %d", rec.Lease.Changed, rec.Lease.Life)
	}
	return found
}
