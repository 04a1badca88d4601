package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// runningUsage reads proc(5); what cannot be read is 0.
func runningUsage(pid int) processUsage {
	dir := fmt.Sprintf("/proc/%d/", pid)
	stat, _ := os.ReadFile(dir + "stat")
	return processUsage{
		cpu:     statCPU(string(stat)),
		memory:  1024 * procNumber(dir+"status", "VmRSS"),
		written: procNumber(dir+"io", "write_bytes"),
	}
}

// statCPU is the time in both modes that /proc/PID/stat tells, in ticks of 10 ms on every processor that Go
// runs on. The second field, the name, may hold spaces and brackets.
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

// endedUsage is what a process has used that was waited for.
func endedUsage(s *os.ProcessState) processUsage {
	u := processUsage{cpu: s.UserTime() + s.SystemTime()}
	if r, ok := s.SysUsage().(*syscall.Rusage); ok {
		u.written = int64(r.Oublock) * 512 // what write_bytes was, in blocks (getrusage(2))
	}
	return u
}

// syncDisk writes out what earlier loads left in the page cache, so that the next measurement does
// not pay for it.
func syncDisk() { syscall.Sync() }
