package consul

import (
	"github.com/seed-20419f34/rollcall/fsm/kv"
)

// Pair is a key's entry in responses. Flags are a number of 64 bits: the markers of Consul's clients fit
// into no smaller one.
type Pair struct {
	LockIndex   uint64
	Key         string
	Flags       uint64
	Value       []byte // in base64; null if it is empty
	Session     string `json:",omitempty"` // the holder
	CreateIndex kv.Index
	ModifyIndex kv.Index
}

// ShowPair is an entry as responses show it.
func ShowPair(e *kv.Pair) Pair {
	shown := Pair{
		LockIndex: e.LockIndex, Key: e.Key, Flags: e.Flags, Session: e.Session, CreateIndex: e.CreateIndex, ModifyIndex: e.ModifyIndex,
	}
	if len(e.Value) > 0 { // a client that gets "" makes something else of it than of null
		shown.Value = e.Value
	}
	return shown
}

// ShowPairs is ShowPair for a list, which is never null.
func ShowPairs(entries []*kv.Pair) []Pair {
	shown := make([]Pair, len(entries))
	for i, e := range entries {
		shown[i] = ShowPair(e)
	}
	return shown
}
