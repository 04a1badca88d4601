package client

import "github.com/seed-20419f34/rollcall/fsm/registry"

// NewInstance returns an instance of this machine: app listening on port, UP, with the lease that stock
// clients ask for (30 s, 90 s), named HOST:app:PORT, with app in lower case as its VIP address. Host and
// address are those of the machine: its name, and its first address that is not loopback. The caller may
// change what it likes before it is registered.
func NewInstance(app string, port uint16) *registry.Instance { panic("not written") }
