package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/compare"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestUsageGrowsAndOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp(".", "usage-*") // on a disk: nothing written to a file system in memory is counted
	need.OK(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	c := launchedIn(t, dir, compare.Spec{Column: apColumn, Datacenters: 1, Settings: map[string]string{"data.sync": "always"}})
	usage := func() trial.Usage {
		t.Helper()
		return need.Got(c.Usage(0))(t)
	}
	notBelow := func(when string, now, then trial.Usage) {
		t.Helper()
		expect.That(t, now.CPU >= then.CPU && now.Written >= then.Written && now.Sent >= then.Sent, "%s: %+v, want no less than before: %+v", when, now, then)
	}
	begin := usage()
	expect.That(t, begin.Memory >= 1<<20 && begin.Stored != 0, "at the begin: %+v, want memory and files", begin)
	i := 0
	within(t, "work shows in the usage", func() bool {
		i++
		register(t, c.Nodes()[0], fmt.Sprint("i", i))
		now := usage()
		return now.CPU > begin.CPU && now.Written > begin.Written && now.Sent > begin.Sent
	})
	working := usage()
	need.OK(t, c.Kill(0))
	ended := usage()
	notBelow("after its end", ended, working)
	expect.That(t, ended.Memory == 0 && ended.Stored != 0, "after its end: %+v, want files, and no memory", ended)
	need.OK(t, c.Start(t.Context(), 0))
	again := usage()
	notBelow("started again", again, ended)
	expect.That(t, again.Memory >= 1<<20, "started again: %+v, want memory", again)
}

func TestUsageReadsTheTimeOfAProcessBehindItsName(t *testing.T) {
	for _, tc := range []struct {
		stat string
		want time.Duration
	}{
		{"4711 (a) b) R 1 4711 4711 0 -1 4194560 1 2 3 4 150 25 0 0 20 0 9 0 100 0 0", 1750 * time.Millisecond},
		{"4711 (a) R 1", 0},
		{"", 0},
	} {
		expect.Equal(t, statCPU(tc.stat), tc.want, "%q: got", tc.stat)
	}
}

func TestUsageOfADirectoryIsThatOfItsFiles(t *testing.T) {
	dir := t.TempDir()
	need.OK(t, os.Mkdir(filepath.Join(dir, "below"), 0o700))
	for name, size := range map[string]int{"a": 3, "below/b": 4} {
		need.OK(t, os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o600))
	}
	for path, want := range map[string]int64{dir: 7, filepath.Join(dir, "gone"): 0} {
		got, err := bytesBelow(path)
		expect.That(t, got == want && err == nil, "%s: got %d, %v, want %d", path, got, err, want)
	}
}
