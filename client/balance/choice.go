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

// ErrNoInstance: the service has no instance that is UP and listens for the URL's scheme.
var ErrNoInstance = errors.New("no instance to call")

// address is where an instance is connected to.
type address struct {
	host string
	port uint16
}

// String returns host:port, as URLs have it.
func (a address) String() string { return net.JoinHostPort(a.host, strconv.Itoa(int(a.port))) }

// filter returns the instances of list that are good: list itself if all are, as nearly always.
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

// Picker chooses one of the instances that may be called. Safe for concurrent use.
type Picker interface {
	// Pick returns one of list, which is sorted by id; nil if it is empty.
	Pick(list []*registry.Instance) *registry.Instance
}

// RoundRobin takes turns: of a list that stays the same each is chosen equally often, also when other
// lists are chosen from in between. Each picker begins with any of them, so that the clients of a service
// do not all begin with the same.
func RoundRobin() Picker { return &roundRobin{seed: maphash.MakeSeed()} }

// roundRobin counts turns by list: two services that are called in alternation would see every other turn
// of a common count, and each of them half of its instances. The table has places for more lists than
// most callers have services. Lists that drive each other out of a place are chosen from at random.
type roundRobin struct {
	seed   maphash.Seed
	places [256]atomic.Pointer[turns]
}

// turns are those of one list, from a random one on.
type turns struct {
	of    identity
	count atomic.Uint64
}

// identity tells a list from others, and from itself after most changes. A change that it does not tell
// goes on with the turns that were.
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
		fresh.count.Store(uint64(rand.Uint32())) // far from where the count would begin anew
		if place.CompareAndSwap(now, fresh) {
			return fresh
		}
	}
}

// InZone chooses, by next (nil: RoundRobin), among the instances of a zone while there is one, and among
// all otherwise. client.ZoneOf says what an instance's zone is.
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

// avoided are the instances that could not be connected to lately. Every request reads them, and they
// change when something dies; so they are read without a lock, and copied to be changed.
type avoided struct {
	time  time.Duration // for which an instance is avoided; not positive: it is not
	mu    sync.Mutex    // held while until is changed
	until atomic.Pointer[map[listed]time.Time]
}

// listed is an instance at an address, as the list had it. One that has registered anew since then is
// alive, and another one: what was avoided may be called again at once.
type listed struct {
	address address
	version int64 // lastDirtyTimestamp
}

// now returns the instances that are avoided at present, which must not be changed. nil: none is.
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
		a.drop(one)
	}
}

// add avoids an instance from now on.
func (a *avoided) add(one listed) {
	a.change(func(until map[listed]time.Time) { until[one] = time.Now().Add(a.time) })
}

// drop does not avoid an instance any more: it was connected to after all.
func (a *avoided) drop(one listed) {
	if _, is := a.now()[one]; is {
		a.change(func(until map[listed]time.Time) { delete(until, one) })
	}
}

// change changes a copy, without the entries whose time is over, and returns it.
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

// unconnected says that an instance was not reached, so that nothing was sent.
func unconnected(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
