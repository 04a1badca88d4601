package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// runningUsage reads proc(5); values that cannot be read are 0.
func runningUsage(pid int) processUsage {
	dir := fmt.Sprintf("/proc/%d/", pid)
	stat, _ := os.ReadFile(dir + "stat")
	return processUsage{
		cpu:     statCPU(string(stat)),
		memory:  1024 * procNumber(dir+"status", "VmRSS"),
		written: procNumber(dir+"io", "write_bytes"),
	}
}

// statCPU returns the user and system time in /proc/PID/stat, in ticks of 10 ms on every processor that Go runs on.
// The second field, the name, may contain spaces and brackets.
func statCPU(stat string) time.Duration {
	const utime, stime, tick = 14 - 3, 15 - 3, 10 * time.Millisecond
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	if len(fields) <= stime {
		return 0
	}
	user, _ := strconv.ParseInt(fields[utime], 10, 64)
	system, _ := strconv.ParseInt(fields[stime], 10, 64)
	return time.Duration(user+system) * tick
}

func procNumber(path, key string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSuffix(procField(path, key), " kB"), 10, 64)
	return n
}

// endedUsage returns what a process that was waited for has used.
func endedUsage(s *os.ProcessState) processUsage {
	u := processUsage{cpu: s.UserTime() + s.SystemTime()}
	if r, ok := s.SysUsage().(*syscall.Rusage); ok {
		u.written = int64(r.Oublock) * 512 // the equivalent of write_bytes, in blocks (getrusage(2))
	}
	return u
}

// machineUsage returns the processor time that all processes, and this one, have used.
func machineUsage() (busy, own time.Duration, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, err
	}
	// The first line: cpu user nice system idle iowait irq softirq steal …, in ticks.
	const idle, iowait, last, tick = 4, 5, 8, 10 * time.Millisecond
	line, _, _ := strings.Cut(string(text), "\n")
	for i, field := range strings.Fields(line) {
		if ticks, err := strconv.ParseInt(field, 10, 64); err == nil && i != idle && i != iowait && i <= last {
			busy += time.Duration(ticks) * tick
		}
	}
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, 0, err
	}
	return busy, time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// syncDisk writes out what earlier loads left in the page cache, so that the next measurement does not pay for it.
func syncDisk() { syscall.Sync() }

// lockFile keeps other processes from locking a file until it is closed.
func lockFile(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errors.New("another run is under way there: wait for its end, or name another directory")
	}
	return err
}
