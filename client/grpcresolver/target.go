package grpcresolver

import (
	"fmt"

	"google.golang.org/grpc/resolver"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

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
