//go:build !planted

package node

import (
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store"
)

// plantIn leaves the store as its tests want it.
func plantIn(*store.TestConfig, string) {}

// planted returns the service itself: only builds with the tag planted have faults.
func planted(_ string, service registry.Service) registry.Service { return service }
