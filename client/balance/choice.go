package balance

import (
	"errors"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// ErrNoInstance means that the service has no instance that is UP and listens for the URL's scheme.
var ErrNoInstance = errors.New("no instance to call")

// address is where an instance is connected to.
type address struct {
	host string
	port uint16
}

// String returns host:port, as in URLs.
func (a address) String() string { return net.JoinHostPort(a.host, strconv.Itoa(int(a.port))) }

// filter returns the instances of list that are good. If all are, as nearly always, it returns list itself.
func filter(list []*registry.Instance, good func(*registry.Instance) bool) []*registry.Instance {
	bad := slices.IndexFunc(list, func(i *registry.Instance) bool { return !good(i) })
	if bad < 0 {
		return list
	}
	kept := slices.Clone(list[:bad])
	for _, i := range list[bad+1:] {
		if good(i) {
			kept = append(kept, i)
		}
	}
	return kept
}

// Picker picks one of the instances that may be called. Safe for concurrent use.
type Picker interface {
	// Pick returns one instance of list, which is sorted by id, or nil if it is empty.
	Pick(list []*registry.Instance) *registry.Instance
}

// RoundRobin takes turns: while a list stays the same it picks each instance equally often, even if it picks from
// other lists in between. Each picker starts anywhere in the list, so that the clients of a service do not all start
// with the same instance.
func RoundRobin() Picker { return &roundRobin{seed: maphash.MakeSeed()} }

// roundRobin counts turns per list: with a common count, two services that are called alternately would each see
// every other turn, and so only half of their instances. The table has places for more lists than most callers have
// services. From lists that displace each other in the table it picks at random.
type roundRobin struct {
	seed   maphash.Seed
	places [256]atomic.Pointer[turns]
}

// turns are the turns of one list, from a random one on.
type turns struct {
	of    identity
	count atomic.Uint64
}

// identity tells a list from others, and from itself after most changes. After a change that it does not notice, the
// turns continue.
type identity struct {
	first, last registry.Key
	n           int
}

// Pick implements Picker.
func (r *roundRobin) Pick(list []*registry.Instance) *registry.Instance {
	switch n := len(list); n {
	case 0:
		return nil
	case 1:
		return list[0]
	default:
		of := identity{list[0].Key(), list[n-1].Key(), n}
		return list[r.turnsOf(of).count.Add(1)%uint64(n)]
	}
}

func (r *roundRobin) turnsOf(of identity) *turns {
	place := &r.places[maphash.Comparable(r.seed, of)%uint64(len(r.places))]
	for {
		now := place.Load()
		if now != nil && now.of == of {
			return now
		}
		fresh := &turns{of: of}
		fresh.count.Store(uint64(rand.Uint32())) // far from where the count would wrap around
		if place.CompareAndSwap(now, fresh) {
			return fresh
		}
	}
}

// InZone picks, with next (RoundRobin if nil), among the instances of a zone while there is one, otherwise among all.
// See client.ZoneOf for an instance's zone.
func InZone(zone string, next Picker) Picker {
	if next == nil {
		next = RoundRobin()
	}
	return inZone{zone, next}
}

type inZone struct {
	zone string
	next Picker
}

// Pick implements Picker.
func (p inZone) Pick(list []*registry.Instance) *registry.Instance {
	return p.next.Pick(client.PreferZone(p.zone, list))
}

// avoided holds the instances that could not be connected to recently. Every request reads them, and they change when
// something dies; so they are read without a lock, and copied to be changed.
type avoided struct {
	time  time.Duration // how long an instance is avoided; not at all if this is not positive
	mu    sync.Mutex    // held while until is changed
	until atomic.Pointer[map[listed]time.Time]
}

// listed is an instance at an address, as listed. If it has registered anew since, it is alive and counts as another
// one, so it may be called again at once.
type listed struct {
	address address
	version int64 // lastDirtyTimestamp
}

// now returns the instances that are currently avoided, or nil. The map must not be changed.
func (a *avoided) now() map[listed]time.Time {
	until := a.until.Load()
	if until == nil {
		return nil
	}
	now := time.Now()
	for _, end := range *until {
		if !now.Before(end) {
			return a.change(func(map[listed]time.Time) {})
		}
	}
	return *until
}

// record is called after a try: an instance that could not be connected to is avoided, one that responded is not.
func (a *avoided) record(one listed, err error) {
	switch {
	case unconnected(err):
		a.add(one)
	case err == nil:
		if _, is := a.now()[one]; is {
			a.change(func(until map[listed]time.Time) { delete(until, one) })
		}
	}
}

// add avoids an instance from now on.
func (a *avoided) add(one listed) {
	a.change(func(until map[listed]time.Time) { until[one] = time.Now().Add(a.time) })
}

// change changes a copy without the expired entries, and returns it.
func (a *avoided) change(do func(map[listed]time.Time)) map[listed]time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	next := make(map[listed]time.Time)
	if until := a.until.Load(); until != nil {
		maps.Copy(next, *until)
	}
	do(next)
	now := time.Now()
	maps.DeleteFunc(next, func(_ listed, end time.Time) bool { return !now.Before(end) })
	if len(next) == 0 {
		a.until.Store(nil)
		return nil
	}
	a.until.Store(&next)
	return next
}

// unconnected reports whether an instance was not reached, so that nothing was sent.
func unconnected(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
