package kv

import (
	"cmp"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Index counts the changes that readers see, including those of instances.
type Index = order.Index

// Epoch is a leadership: the Raft term and index of its Establish entry.
type Epoch = order.Epoch

// Kind is the kind of a thing that sessions can hold.
type Kind uint8

// The kinds. Never renumber one.
const (
	Key       Kind = iota // a key that a session acquired
	Lock                  // a lock of Rollcall's own: one holder, and a queue
	Semaphore             // the same with a limit on holders
)

func (k *Kind) fields(c *codec.Codec) { codec.Enum(c, k, Semaphore, "kind of what is held") }

// Fence names an acquisition: Index is its token, the Index of the operation that granted it. It
// holds while that acquisition lasts, and never again.
type Fence struct {
	Kind  Kind
	Name  string // of the key, lock or semaphore
	Index Index
}

func (f *Fence) fields(c *codec.Codec) {
	f.Kind.fields(c)
	c.String(&f.Name)
	codec.Uint(c, &f.Index)
}

// stake records that a session holds a key, or holds or waits for a permit.
type stake struct {
	session string
	kind    Kind
	name    string
}

func compareStakes(a, b stake) int {
	return cmp.Or(strings.Compare(a.session, b.session), cmp.Compare(a.kind, b.kind), strings.Compare(a.name, b.name))
}

// stakesOf lists the stakes of a session, by kind and name.
func stakesOf(all order.Tree[stake], session string) (found []stake) {
	all.Ascend(stake{session: session}, func(s stake) bool {
		if s.session == session {
			found = append(found, s)
		}
		return s.session == session
	})
	return found
}
