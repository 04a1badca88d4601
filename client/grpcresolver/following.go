package grpcresolver

import (
	"fmt"
	"slices"
	"sync"

	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
)

// following is a resolver that tells a connection where its service is, whenever that has changed.
type following struct {
	list          List
	service       service
	locate        locator
	cc            resolver.ClientConn
	serviceConfig *serviceconfig.ParseResult // nil: the connection wants none
	stop          func()                     // the calls of update after a change

	mu     sync.Mutex
	told   *resolution // what cc was told last; nil: nothing
	closed bool
}

// resolution is where a service is, or why it is nowhere.
type resolution struct {
	addresses []string // sorted
	empty     bool     // there are no instances of any service
	mute      int      // instances that are UP, but do not say where they speak gRPC, if all are so
}

func (r *resolution) equal(other *resolution) bool {
	return r.empty == other.empty && r.mute == other.mute && slices.Equal(r.addresses, other.addresses)
}

func (r *following) resolve() *resolution {
	list := r.list.Snapshot()
	up := r.service.lookup(list)
	if addresses := r.locate.addresses(up); len(addresses) > 0 {
		return &resolution{addresses: addresses}
	}
	return &resolution{empty: list.Len() == 0, mute: len(up)}
}

// update tells the connection where its service is at present, if it knows otherwise. The list is looked
// at under the lock: of two updates at once, the later one then tells nothing older.
func (r *following) update() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	known, found := r.told, r.resolve()
	if known != nil && known.equal(found) {
		return
	}
	r.told = found
	// A connection that has addresses keeps them in spite of errors: it is told first that they are gone.
	if len(found.addresses) > 0 || known != nil && len(known.addresses) > 0 {
		// The error that this returns asks for another resolution, which would find the same.
		_ = r.cc.UpdateState(r.state(found.addresses))
	}
	if len(found.addresses) == 0 {
		r.cc.ReportError(r.nowhere(found))
	}
}

func (r *following) state(addresses []string) resolver.State {
	state := resolver.State{ServiceConfig: r.serviceConfig}
	for _, a := range addresses {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: a})
	}
	return state
}

// nowhere is why there is nothing to call.
func (r *following) nowhere(found *resolution) error {
	switch {
	case found.mute > 0:
		return fmt.Errorf("none of the %d instances of %s that are UP says where it speaks gRPC; "+
			"register an enabled port or metadata gRPC_port", found.mute, r.service.what)
	case found.empty:
		return fmt.Errorf("no instance of %s is UP: the list of all instances is empty (Discovery.Ready waits for it)", r.service.what)
	}
	return fmt.Errorf("no instance of %s is UP", r.service.what)
}

// ResolveNow implements resolver.Resolver. It does nothing: the connection is told of every change, and
// asking the registry for one that it does not know of yet would cost it a call for each lost connection.
func (r *following) ResolveNow(resolver.ResolveNowOptions) {}

// Close implements resolver.Resolver. The connection is told nothing afterwards.
func (r *following) Close() {
	r.stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}
