//go:build !nextlevel && !skiplevel

package kv

import "github.com/seed-20419f34/rollcall/fsm/codec"

// nextRows is empty: only programs that play the next version have such operations.
var nextRows []codec.Row
