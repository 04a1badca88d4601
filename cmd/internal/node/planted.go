package node

import (
	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// falsified returns what a node applies instead of entries, or nil.
func falsified(string) func([]byte) []byte { return nil }

// performed returns what to call after each operation, or nil.
func performed() func(fsm.Item) { return nil }

// planted returns the service itself. The comparison is tested on programs with integration/testdata/planted in the
// place of this file.
func planted(_ string, service registry.Service) registry.Service { return service }
