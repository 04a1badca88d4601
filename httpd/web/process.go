package web

import (
	"fmt"
	"runtime"
	"time"
)

// Memory is the process's memory in bytes.
type Memory struct{ used, Total uint64 }

// ReadMemory returns the memory that the process has now.
func ReadMemory() Memory {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return Memory{used: m.HeapAlloc, Total: m.Sys}
}

// Usage formats memory as upstream's status document does: 112mb (28%).
func (m Memory) Usage() string {
	return fmt.Sprintf("%dmb (%d%%)", m.used>>20, m.used*100/max(m.Total, 1))
}

// Uptime formats a duration as upstream's status document does: 1 day 03:07.
func Uptime(d time.Duration) string {
	minutes := int(d / time.Minute)
	clock := fmt.Sprintf("%02d:%02d", minutes/60%24, minutes%60)
	switch days := minutes / (24 * 60); days {
	case 0:
		return clock
	case 1:
		return "1 day " + clock
	default:
		return fmt.Sprintf("%d days %s", days, clock)
	}
}
