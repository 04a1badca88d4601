package consul

import "github.com/seed-20419f34/rollcall/fsm/kv"

// Entry is a key's entry in answers. Flags are a number of 64 bits: the markers of Consul's clients fit
// into no smaller one.
type Entry struct {
	LockIndex   uint64
	Key         string
	Flags       uint64
	Value       []byte // in base64; null if it is empty
	Session     string `json:",omitempty"` // the holder
	CreateIndex kv.Index
	ModifyIndex kv.Index
}

// ShowEntry is an entry as answers show it.
func ShowEntry(e *kv.Entry) Entry {
	shown := Entry{
		LockIndex: e.LockIndex, Key: e.Key, Flags: e.Flags, Session: e.Session, CreateIndex: e.CreateIndex, ModifyIndex: e.ModifyIndex,
	}
	if len(e.Value) > 0 { // a client that gets "" makes something else of it than of null
		shown.Value = e.Value
	}
	return shown
}

// ShowEntries is ShowEntry for a list, which is never null.
func ShowEntries(entries []*kv.Entry) []Entry {
	shown := make([]Entry, len(entries))
	for i, e := range entries {
		shown[i] = ShowEntry(e)
	}
	return shown
}
