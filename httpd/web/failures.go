package web

import (
	"net/netip"
	"sync"
	"time"
)

// failures bounds how many failed credentials of one address (of IPv6: /64) get a response of their own: failBurst at once, and
// failRate a second. Good credentials are never refused for the bad ones of a neighbor. The zero value is ready.
type failures struct {
	mu    sync.Mutex
	spent map[netip.Prefix]spent
}

const (
	failRate  = 10.0
	failBurst = 20.0
	// failKept is how many addresses are remembered; beyond it those are forgotten that have nothing to pay back.
	failKept = 10_000
)

type spent struct {
	tries float64
	at    time.Time
}

// left is what is still to be paid back.
func (s spent) left(now time.Time) float64 { return max(s.tries-failRate*now.Sub(s.at).Seconds(), 0) }

// admit says whether an address may have failed once more.
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
		f.forget(now)
	}
	return true
}

// forget drops the addresses that have paid back, or if none has, all.
func (f *failures) forget(now time.Time) {
	for prefix, s := range f.spent {
		if s.left(now) == 0 {
			delete(f.spent, prefix)
		}
	}
	if len(f.spent) > failKept {
		clear(f.spent)
	}
}
