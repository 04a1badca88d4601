//go:build nogate

package fsm

import "github.com/seed-20419f34/rollcall/fsm/codec"

// gated is the newest level: a program with the tag nogate has this fault, which tests of upgrades must find.
func gated(byte) byte { return codec.Newest }
