package web

import (
	"maps"
	"net/netip"
	"sync"
	"time"
)

// failures bounds how many failed credentials from one address (for IPv6: /64) get a response of their own: failBurst
// at once, and failRate a second. Good credentials are never refused because of a neighbor's bad ones. The zero value
// is ready.
type failures struct {
	mu    sync.Mutex
	spent map[netip.Prefix]spent
}

const (
	failRate  = 10.0
	failBurst = 20.0
	// failKept is how many addresses are remembered; beyond it the addresses with nothing left to pay back are
	// forgotten.
	failKept = 10_000
)

type spent struct {
	tries float64
	at    time.Time
}

// left returns what remains to be paid back.
func (s spent) left(now time.Time) float64 { return max(s.tries-failRate*now.Sub(s.at).Seconds(), 0) }

// admit reports whether an address may fail once more.
func (f *failures) admit(from netip.Addr) bool {
	prefix := NetworkOf(from)
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.spent == nil {
		f.spent = make(map[netip.Prefix]spent)
	}
	left := f.spent[prefix].left(now)
	if left+1 > failBurst {
		return false
	}
	f.spent[prefix] = spent{left + 1, now}
	if len(f.spent) > failKept {
		maps.DeleteFunc(f.spent, func(_ netip.Prefix, s spent) bool { return s.left(now) == 0 })
	}
	if len(f.spent) > failKept { // no address has paid back
		clear(f.spent)
	}
	return true
}
