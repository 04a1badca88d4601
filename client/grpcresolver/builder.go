package grpcresolver

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Scheme is the scheme of the targets.
const Scheme = "rollcall"

// roundRobin is the service config of all targets. gRPC's own default sends everything to one instance.
const roundRobin = `{"loadBalancingConfig": [{"round_robin": {}}]}`

// List is where instances are looked up: a *client.Discovery.
type List interface {
	// Snapshot returns the present list.
	Snapshot() *client.Snapshot
	// OnChange calls each after every change of the list. stop ends that; a call under way may go on.
	OnChange(each func(old, new *client.Snapshot)) (stop func())
}

// Config says which instances are called, and where. The zero Config has a default for each field.
type Config struct {
	// Host is the name or address at which an instance is called; "": it cannot be. Nil:
	// balance.ByHostName. See also balance.ByIP.
	Host func(i *registry.Instance) string
	// Port is where an instance speaks gRPC; false: it does not, and is not called. Nil: what its metadata
	// says under gRPC_port, or gRPC.port, in any case (as grpc-spring-boot-starter registers), else its
	// port, or its secure port for svip, if that is enabled.
	Port func(i *registry.Instance) (port uint16, ok bool)
	// Zone is preferred: its instances are called while it has any, see client.PreferZone. "": none is.
	Zone string
}

// NewBuilder returns a builder of resolvers for grpc.WithResolvers. One builder serves any number of
// targets and connections; their resolvers end with the connections, not with the list.
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
	var config *serviceconfig.ParseResult
	if !options.DisableServiceConfig {
		if config = cc.ParseServiceConfig(roundRobin); config.Err != nil {
			return nil, fmt.Errorf("the service config %s: %w", roundRobin, config.Err)
		}
	}
	r := &following{list: b.list, service: service, locate: b.config.locator(service.secure), cc: cc, serviceConfig: config}
	// Before the first look, so that no change goes unnoticed in between.
	r.stop = b.list.OnChange(func(_, _ *client.Snapshot) { r.update() })
	r.update()
	return r, nil
}
