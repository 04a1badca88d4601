//go:build !planted

package node

import "github.com/seed-20419f34/rollcall/fsm/registry"

// planted is the service itself: faults are planted by builds with the tag of that name only.
func planted(_ string, service registry.Service) registry.Service { return service }
