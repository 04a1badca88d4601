//go:build !nextlevel && !skiplevel

package kv

import "github.com/seed-20419f34/rollcall/fsm/codec"

// nextRows are no operations: only programs that stand for the next version have some.
var nextRows []codec.Row
