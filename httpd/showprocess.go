package httpd

import (
	"fmt"
	"runtime"
	"time"
)

// memory is the process's memory in bytes.
type memory struct{ used, total uint64 }

func readMemory() memory {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return memory{used: m.HeapAlloc, total: m.Sys}
}

// usage is in the form of upstream's status document: 112mb (28%).
func (m memory) usage() string {
	return fmt.Sprintf("%dmb (%d%%)", m.used>>20, m.used*100/max(m.total, 1))
}

// uptime is in the form of upstream's status document: 1 day 03:07.
func uptime(d time.Duration) string {
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
