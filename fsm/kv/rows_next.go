//go:build nextlevel || skiplevel

package kv

import (
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// nextRows are the operations of a program with the build tag nextlevel, which plays the next version in tests.
var nextRows = []codec.Row{codec.RowOf(4, "note", Note.fields)}

// Note writes a key, as an operation of level 4.
type Note struct {
	Key   string
	Value []byte
}

func (Note) kind() byte { return codec.MaxKind }

func (op Note) fields(c *codec.Codec) Note {
	c.String(&op.Key)
	c.Bytes(&op.Value)
	return op
}

func (op Note) needs(v *registry.View) []access.Need {
	return KeyOp{Verb: Set, Key: op.Key}.needs(v)
}

func (op Note) apply(s *State, at At) Result {
	return KeyOp{Verb: Set, Key: op.Key, Value: op.Value}.apply(s, at)
}
