package consul

import (
	"net/http"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

var errMissingKey = web.BadRequest("Missing key name")

// getKey is GET kv/{key}: one entry, all entries below a prefix (recurse), or only their names (keys).
func (c call) getKey() (any, error) {
	key := c.Rest()
	switch {
	case c.Given("keys"):
		return c.listKeys(key)
	case c.Given("recurse"):
		return c.getTree(key)
	case key == "":
		return nil, errMissingKey
	}
	return c.consulRead(c.KVSource(kv.Topic{Kind: kv.KeyTopic, Name: key}, func(v *kv.View) web.Found {
		e, index := v.Get(key)
		return web.Found{Index: uint64(index), Absent: e == nil, Document: func() (any, error) {
			if e == nil {
				return c.respondNothing()
			}
			if e.Session != "" {
				web.LabelFence(c.W.Header(), e.Fence)
			}
			if !c.Given("raw") {
				return []pair{showPair(e)}, nil
			}
			c.W.Header().Set("Content-Security-Policy", "sandbox")
			web.Respond(c.W, c.R, http.StatusOK, "text/plain", e.Value)
			return web.Sent, nil
		}}
	}))
}

func (c call) getTree(prefix string) (any, error) {
	return c.consulRead(c.KVSource(kv.Topic{Kind: kv.PrefixTopic, Name: prefix}, func(v *kv.View) web.Found {
		entries, index, ok := v.List(prefix)
		return web.Found{Index: uint64(index), Absent: ok && len(entries) == 0, Document: func() (any, error) {
			switch {
			case !ok:
				return nil, errReadTooLarge
			case len(entries) == 0:
				return c.respondNothing()
			case (kv.Result{Pairs: entries}).Weight() >= maxWhole:
				return c.respondLarge(plainList(len(entries), func(i int) any { return showPair(entries[i]) }))
			}
			shown := make([]pair, len(entries)) // a list is never null
			for i, e := range entries {
				shown[i] = showPair(e)
			}
			return shown, nil
		}}
	}))
}

// listKeys responds with names. An empty list gets a 404, unless all names were asked for.
func (c call) listKeys(prefix string) (any, error) {
	separator, given := c.Lookup("separator")
	if !given {
		separator = c.Text("seperator") // some clients misspell it
	}
	return c.consulRead(c.KVSource(kv.Topic{Kind: kv.PrefixTopic, Name: prefix}, func(v *kv.View) web.Found {
		keys, index, ok := v.Keys(prefix, separator)
		return web.Found{Index: uint64(index), Absent: ok && len(keys) == 0, Document: func() (any, error) {
			switch {
			case !ok:
				return nil, errReadTooLarge
			case len(keys) == 0 && prefix != "":
				return c.respondNothing()
			case len(keys) > maxWhole/100:
				return c.respondLarge(plainList(len(keys), func(i int) any { return keys[i] }))
			}
			return append([]string{}, keys...), nil // an empty list, not null
		}}
	}))
}

// putKey is PUT kv/{key}, with at most one of cas, acquire and release.
func (c call) putKey() (any, error) {
	op := kv.KeyOp{Key: c.Rest()}
	if op.Key == "" {
		c.Err = errMissingKey
	}
	op.Flags, _ = c.Number("flags")
	cas, acquire, release := c.Given("cas"), c.Given("acquire"), c.Given("release")
	switch {
	case cas && acquire, cas && release, acquire && release:
		c.refuseConflict()
	case cas:
		op.Verb, op.Index = kv.CAS, c.cas()
	case acquire:
		op.Verb, op.Session = kv.Acquire, c.Text("acquire")
	case release:
		op.Verb, op.Session = kv.Release, c.Text("release")
	}
	if c.Err == nil {
		op.Value, c.Err = c.readValue()
	}
	return c.writeKey(op)
}

// deleteKey is DELETE kv/{key}, with at most one of cas and recurse.
func (c call) deleteKey() (any, error) {
	op := kv.KeyOp{Verb: kv.Delete, Key: c.Rest()}
	cas, recurse := c.Given("cas"), c.Given("recurse")
	switch {
	case cas && recurse:
		c.refuseConflict()
	case recurse:
		op.Verb = kv.DeleteTree
	case op.Key == "":
		return nil, errMissingKey
	case cas:
		op.Verb, op.Index = kv.DeleteCAS, c.cas()
	}
	c.IgnoreBody()
	return c.writeKey(op)
}

// writeKey performs a write, if the fence that it may carry holds, and names the acquisition that holds the key.
func (c call) writeKey(write kv.KeyOp) (any, error) {
	write.Fence = c.fenceFor(write.Key)
	result, err := c.performOnce(write)
	if err == nil && result.Excess == kv.Crowded {
		result, err = c.deleteInParts(write)
	}
	if err != nil {
		return nil, err
	}
	if write.Fence != nil && c.mayReadFence(write.Fence) || (write.Verb == kv.Acquire && result.OK) {
		web.LabelFence(c.W.Header(), result.Fence)
	}
	return result.OK, nil
}

// mayReadFence reports whether the caller may know the token behind a fence. Whoever may take the lock or key learns
// its token anyway.
func (c call) mayReadFence(f *kv.Fence) bool {
	need := access.Need{Resource: access.Lock, Name: f.Name, Verb: access.Read}
	if f.Kind == kv.Key {
		need.Resource = access.KV
	}
	if c.May(need) {
		return true
	}
	need.Verb = access.Write
	return c.May(need)
}

// performOnce performs a write or a transaction, and only once if the call has a key for that.
func (c call) performOnce(op kv.Op) (kv.Result, error) {
	op = c.Once(op)
	if c.Err != nil {
		return kv.Result{}, c.Err
	}
	result, err := c.CoordinateAwaitingLeader(c.R.Context(), op)
	if err == nil && result.Refusal != "" {
		err = rejected("raft apply failed: %s", result.Refusal)
	}
	return result, err
}

// respondNothing sends 404 without a body.
func (c call) respondNothing() (any, error) {
	c.W.WriteHeader(http.StatusNotFound)
	return web.Sent, nil
}

func (c call) refuseConflict() { c.Refuse("Conflicting flags: %s\n", c.R.URL.Query().Encode()) }

func (c call) cas() kv.Index {
	index, _ := c.Number("cas")
	return kv.Index(index)
}

// fencedBy lists the parameters that name what was acquired, if that is not the key being written.
var fencedBy = []struct {
	param string
	kind  kv.Kind
}{{"fence-key", kv.Key}, {"fence-lock", kv.Lock}, {"fence-semaphore", kv.Semaphore}}

// fenceFor reads the acquisition that must last for a write of key to take effect, or returns nil.
func (c call) fenceFor(key string) *kv.Fence {
	token, given := c.Number("fence")
	fence := &kv.Fence{Kind: kv.Key, Name: key, Index: kv.Index(token)}
	names := 0
	for _, by := range fencedBy {
		if name, named := c.Lookup(by.param); named {
			fence.Kind, fence.Name = by.kind, name
			names++
		}
	}
	switch {
	case names > 1:
		c.Refuse("fence-key, fence-lock and fence-semaphore name what was acquired: give one of them")
	case names == 1 && !given:
		c.Refuse("fence must be given with fence-key, fence-lock or fence-semaphore: the token of the acquisition")
	case !given:
		return nil
	}
	return fence
}

// pair is a key's entry in responses. Flags has 64 bits: the markers of Consul's clients fit into nothing smaller.
type pair struct {
	LockIndex   uint64
	Key         string
	Flags       uint64
	Value       []byte // in base64; null if it is empty
	Session     string `json:",omitempty"` // the holder
	CreateIndex kv.Index
	ModifyIndex kv.Index
}

// showPair returns an entry as responses show it.
func showPair(e *kv.Pair) pair {
	shown := pair{
		LockIndex: e.LockIndex, Key: e.Key, Flags: e.Flags, Session: e.Session, CreateIndex: e.CreateIndex, ModifyIndex: e.ModifyIndex,
	}
	if len(e.Value) > 0 { // clients read "" differently from null
		shown.Value = e.Value
	}
	return shown
}
