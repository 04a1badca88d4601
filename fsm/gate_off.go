//go:build nogate

package fsm

import "github.com/seed-20419f34/rollcall/fsm/codec"

// gated returns the newest level. Programs with the build tag nogate have this fault, which tests of upgrades must
// find.
func gated(byte) byte { return codec.Newest }
