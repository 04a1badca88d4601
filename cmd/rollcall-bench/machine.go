package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// describeMachine describes the machine, and times the disk of dir. The result contains nothing that names the machine
// or its owner.
func describeMachine(dir string) (trial.Machine, error) {
	sync, err := timeSync(dir)
	if err != nil {
		return trial.Machine{}, fmt.Errorf("try the disk: %w", err)
	}
	return trial.Machine{
		CPU:    procField("/proc/cpuinfo", "model name"),
		Cores:  runtime.NumCPU(),
		Memory: memoryText(procField("/proc/meminfo", "MemTotal")),
		Disk:   describeDisk(dir),
		Sync:   fmt.Sprintf("4 KiB appended and synced in %.2f ms (p50)", float64(sync.Microseconds())/1000),
		Kernel: kernelText(runtime.GOOS, firstOf("/proc/sys/kernel/osrelease")),
		Go:     runtime.Version() + " " + runtime.GOARCH,
	}, nil
}

const unknownPart = "unknown"

// procField returns the first value of a key in a file of "key: value" lines.
func procField(path, key string) string {
	text, _ := os.ReadFile(path) // absent on other systems
	for line := range strings.Lines(string(text)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return unknownPart
}

func firstOf(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// kernelText leaves out what a builder appended to the release, as in "6.1.2-site-7".
func kernelText(system, release string) string {
	number, _, _ := strings.Cut(release, "-")
	return strings.TrimSpace(strings.ToUpper(system[:1]) + system[1:] + " " + number)
}

// memoryText turns "24101112 kB" into GiB.
func memoryText(total string) string {
	kb, err := strconv.ParseFloat(strings.TrimSuffix(total, " kB"), 64)
	if err != nil {
		return unknownPart
	}
	return fmt.Sprintf("%.0f GiB", kb/(1<<20))
}

// describeDisk names the file system and the kind of device below dir.
func describeDisk(dir string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return unknownPart
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo") // absent on other systems
	m, ok := findMount(string(mounts), dir)
	if !ok {
		return unknownPart
	}
	return m.kind + " on " + deviceKind(m)
}

type mount struct{ point, device, kind, source string }

// findMount returns the mount of an absolute path: the longest match, and the last of equal ones, which hides the
// others. Fields are as in proc(5).
func findMount(mountinfo, path string) (best mount, ok bool) {
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		dash := slices.Index(fields, "-")
		if len(fields) < 5 || dash < 0 || dash+2 >= len(fields) {
			continue
		}
		m := mount{point: fields[4], device: fields[2], kind: fields[dash+1], source: fields[dash+2]}
		below, err := filepath.Rel(m.point, path)
		if err == nil && below != ".." && !strings.HasPrefix(below, "../") && len(m.point) >= len(best.point) {
			best, ok = m, true
		}
	}
	return best, ok
}

// deviceKind says what the mount's device is.
func deviceKind(m mount) string {
	name := filepath.Base(m.source)
	switch {
	case strings.HasPrefix(name, "vd"), strings.HasPrefix(name, "xvd"):
		return "a virtual disk"
	case strings.HasPrefix(name, "nvme"):
		return "an NVMe disk"
	}
	sys := "/sys/dev/block/" + m.device
	switch firstOf(sys+"/queue/rotational") + firstOf(sys+"/../queue/rotational") { // a partition has none of its own
	case "0":
		return "a solid-state disk"
	case "1":
		return "a rotating disk"
	}
	return "an unknown device"
}

// timeSync returns the median time of a 4 KiB append with fsync.
func timeSync(dir string) (time.Duration, error) {
	const tries = 200
	times, err := timeSyncs(dir, tries)
	if err != nil {
		return 0, err
	}
	slices.Sort(times)
	return times[tries/2], nil
}

// timeSyncs returns how long each of some durable writes takes.
func timeSyncs(dir string, tries int) ([]time.Duration, error) {
	f, err := os.CreateTemp(dir, "sync-*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	block := make([]byte, 4<<10)
	times := make([]time.Duration, tries)
	for i := range times {
		begin := time.Now()
		if _, err := f.Write(block); err != nil {
			return nil, err
		}
		if err := f.Sync(); err != nil {
			return nil, err
		}
		times[i] = time.Since(begin)
	}
	return times, nil
}

// machineHealth measures what the machine has done so far, and how long a durable write in a directory takes now.
func machineHealth(dir string) func() (trial.Health, error) {
	return func() (trial.Health, error) {
		busy, own, err := machineUsage()
		if err != nil {
			return trial.Health{}, err
		}
		syncs, err := timeSyncs(dir, 1)
		if err != nil {
			return trial.Health{}, err
		}
		return trial.Health{Busy: trial.Of(busy), Own: trial.Of(own), Sync: trial.Of(syncs[0])}, nil
	}
}
