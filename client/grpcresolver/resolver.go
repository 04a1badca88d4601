package grpcresolver

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/client/balance"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Scheme is the scheme of the targets.
const Scheme = "rollcall"

// roundRobin is the service config of all targets. gRPC's own default sends everything to one instance.
const roundRobin = `{"loadBalancingConfig": [{"round_robin": {}}]}`

// List is where instances are looked up: a *client.Discovery.
type List interface {
	// Snapshot returns the current list.
	Snapshot() *client.Snapshot
	// OnChange calls each after every change of the list. stop ends that; a call in progress may go on.
	OnChange(each func(old, new *client.Snapshot)) (stop func())
}

// Config says which instances are called, and where. The zero Config has a default for each field.
type Config struct {
	// Host returns the name or address to call an instance at, or "" if it cannot be called. Nil means
	// balance.ByHostName. See also balance.ByIP.
	Host func(i *registry.Instance) string
	// Port returns the port where an instance speaks gRPC, or false if it does not and must not be called. Nil means
	// the port in its metadata under gRPC_port, or gRPC.port, in any case (as grpc-spring-boot-starter registers),
	// otherwise its port, or its secure port for svip, if that is enabled.
	Port func(i *registry.Instance) (port uint16, ok bool)
	// Zone is preferred: its instances are called while it has any, see client.PreferZone. "" means no preference.
	Zone string
}

// NewBuilder returns a builder of resolvers for grpc.WithResolvers. One builder serves any number of targets and
// connections; their resolvers end with the connections, not with the list.
func NewBuilder(list List, config Config) (resolver.Builder, error) {
	if list == nil {
		return nil, errors.New("no list is given; give a *client.Discovery")
	}
	return &builder{list: list, config: config}, nil
}

type builder struct {
	list   List
	config Config
}

// Scheme implements resolver.Builder.
func (b *builder) Scheme() string { return Scheme }

// Build implements resolver.Builder.
func (b *builder) Build(target resolver.Target, cc resolver.ClientConn, options resolver.BuildOptions) (resolver.Resolver, error) {
	service, err := parseTarget(target)
	if err != nil {
		return nil, err
	}
	var serviceConfig *serviceconfig.ParseResult
	if !options.DisableServiceConfig {
		if serviceConfig = cc.ParseServiceConfig(roundRobin); serviceConfig.Err != nil {
			return nil, fmt.Errorf("the service config %s: %w", roundRobin, serviceConfig.Err)
		}
	}
	config := b.config.withDefaults(service.secure)
	r := &following{list: b.list, service: service, config: config, cc: cc, serviceConfig: serviceConfig}
	// Before the first update, so that no change is missed in between.
	r.stop = b.list.OnChange(func(_, _ *client.Snapshot) { r.update() })
	r.update()
	return r, nil
}

// service is what a target names.
type service struct {
	what   string // for messages
	secure bool   // instances are called on their secure port
	lookup func(s *client.Snapshot) []*registry.Instance
}

// parseTarget reads a target, whose authority says what kind of name the rest is.
func parseTarget(target resolver.Target) (service, error) {
	name := target.Endpoint()
	if name == "" {
		return service{}, fmt.Errorf("target %q names no service; %s", &target.URL, targets)
	}
	switch target.URL.Host {
	case "":
		return service{
			what:   fmt.Sprintf("application %q", name),
			lookup: func(s *client.Snapshot) []*registry.Instance { return s.App(name) },
		}, nil
	case "vip":
		return service{
			what:   fmt.Sprintf("VIP address %q", name),
			lookup: func(s *client.Snapshot) []*registry.Instance { return s.VIP(name) },
		}, nil
	case "svip":
		return service{
			what:   fmt.Sprintf("secure VIP address %q", name),
			secure: true,
			lookup: func(s *client.Snapshot) []*registry.Instance { return s.SecureVIP(name) },
		}, nil
	}
	return service{}, fmt.Errorf("target %q has the unknown authority %q; %s", &target.URL, target.URL.Host, targets)
}

const targets = "targets are rollcall:///APPLICATION, rollcall://vip/ADDRESS and rollcall://svip/ADDRESS"

func (c Config) withDefaults(secure bool) Config {
	if c.Host == nil {
		c.Host = balance.ByHostName
	}
	if c.Port == nil {
		c.Port = func(i *registry.Instance) (uint16, bool) { return portOf(i, secure) }
	}
	return c
}

// addresses returns where to call instances, each address once, in an order that does not depend on the instances'
// ids. Instances that speak no gRPC do not count as part of their zone.
func (c Config) addresses(instances []*registry.Instance) []string {
	at := make(map[*registry.Instance]string, len(instances))
	var located []*registry.Instance
	for _, i := range instances {
		host := c.Host(i)
		if port, ok := c.Port(i); ok && host != "" {
			at[i] = net.JoinHostPort(host, strconv.Itoa(int(port)))
			located = append(located, i)
		}
	}
	var addresses []string
	for _, i := range client.PreferZone(c.Zone, located) {
		addresses = append(addresses, at[i])
	}
	slices.Sort(addresses)
	return slices.Compact(addresses)
}

// portOf is the default of Config.Port. If metadata names a port that is invalid, the instance is not called:
// whatever listens on its other ports is not its gRPC server. Source of the keys:
// net.devh.boot.grpc.client.nameresolver.DiscoveryClientNameResolver.
func portOf(i *registry.Instance, secure bool) (uint16, bool) {
	for _, key := range []string{"gRPC_port", "gRPC.port"} {
		for _, m := range i.Metadata {
			if strings.EqualFold(m.Key, key) {
				port, err := strconv.ParseUint(m.Value, 10, 16)
				return uint16(port), err == nil && port != 0
			}
		}
	}
	port := i.PortFor(secure)
	return port, port != 0
}

// following is a resolver that gives a connection the addresses of its service whenever they have changed.
type following struct {
	list          List
	service       service
	config        Config // with defaults
	cc            resolver.ClientConn
	serviceConfig *serviceconfig.ParseResult // nil if the connection wants none
	stop          func()                     // ends the calls of update after a change

	mu     sync.Mutex
	known  *resolution // the one that cc was given last; nil before the first
	closed bool
}

// resolution is where a service is, or why it is nowhere.
type resolution struct {
	addresses []string // sorted
	empty     bool     // there are no instances of any service
	mute      int      // the number of instances that are UP, if none says where it speaks gRPC
}

// update gives the connection the current resolution, if that differs from the last. The list is read under the lock:
// of two concurrent updates, the later one then passes on nothing older.
func (r *following) update() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	list := r.list.Snapshot()
	up := r.service.lookup(list)
	known, found := r.known, &resolution{addresses: r.config.addresses(up)}
	if len(found.addresses) == 0 {
		found.empty, found.mute = list.Len() == 0, len(up)
	}
	if known != nil && known.empty == found.empty && known.mute == found.mute &&
		slices.Equal(known.addresses, found.addresses) {
		return
	}
	r.known = found
	// A connection that has addresses keeps them in spite of errors: it first gets the empty list.
	if len(found.addresses) > 0 || known != nil && len(known.addresses) > 0 {
		state := resolver.State{ServiceConfig: r.serviceConfig}
		for _, a := range found.addresses {
			state.Addresses = append(state.Addresses, resolver.Address{Addr: a})
		}
		// The error that this returns asks for another resolution, which would find the same.
		_ = r.cc.UpdateState(state)
	}
	if len(found.addresses) == 0 {
		r.cc.ReportError(r.nowhere(found))
	}
}

// nowhere returns why no instance can be called.
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

// ResolveNow implements resolver.Resolver. It does nothing: the connection gets every change, and asking the registry
// for changes that the list does not have yet would cost a call for each lost connection.
func (r *following) ResolveNow(resolver.ResolveNowOptions) {}

// Close implements resolver.Resolver. The connection gets nothing afterwards.
func (r *following) Close() {
	r.stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}
