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

	mu   sync.Mutex
	told *resolution // what cc was told last; nil: nothing
}

// resolution is where a service is.
type resolution struct {
	addresses []string // sorted
	// mute is how many instances are UP without an address where they speak gRPC, if all are so.
	mute int
}

func (r *following) resolve() *resolution {
	instances := r.service.lookup(r.list.Snapshot())
	found := &resolution{addresses: r.locate.addresses(instances)}
	if len(found.addresses) == 0 {
		found.mute = len(instances)
	}
	return found
}

// update tells the connection where its service is at present, if it knows otherwise. The list is looked
// at under the lock: of two updates at once, the later one then tells nothing older.
func (r *following) update() {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := r.resolve()
	known := r.told
	if known != nil && known.mute == found.mute && slices.Equal(known.addresses, found.addresses) {
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
	if found.mute > 0 {
		return fmt.Errorf("none of the %d instances of %s that are UP says where it speaks gRPC; "+
			"register an enabled port or metadata gRPC_port", found.mute, r.service.what)
	}
	return fmt.Errorf("no instance of %s is UP", r.service.what)
}

// ResolveNow implements resolver.Resolver. It does nothing: the connection is told of every change, and
// asking the registry for one that it does not know of yet would cost it a call for each lost connection.
func (r *following) ResolveNow(resolver.ResolveNowOptions) {}

// Close implements resolver.Resolver.
func (r *following) Close() { r.stop() }
