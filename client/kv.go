package client

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/transport"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// KV accesses the cluster's keys and values, through Consul's routes (/v1/kv). Safe for concurrent use.
type KV struct{ client *Client }

// KV returns the cluster's keys and values.
func (c *Client) KV() KV { return KV{c} }

// Pair is a key with its value. The names of its members in JSON are Consul's.
type Pair struct {
	Key         string
	Value       []byte
	Flags       uint64 // free for use
	Session     string // the holder's; "" if the key is not held
	LockIndex   uint64 // how often a new holder acquired it
	CreateIndex uint64
	ModifyIndex uint64 // what CAS compares
	// Fence is the token of the holder's acquisition, in entries that Get and Watch return; 0 if the key is not held.
	Fence uint64 `json:"-"`
}

// Write is one conditional write of a key. At most one of CAS, Acquire and Release is set.
type Write struct {
	Key   string
	Value []byte // at most 512 KiB
	Flags uint64
	// CAS, if not nil, makes the write conditional on the key's ModifyIndex; 0 means that there must be no such key.
	CAS     *uint64
	Acquire string // a session, which becomes the holder unless another session is
	Release string // a session, which must be the holder and stops being it
	// Fence, if not nil, is an acquisition that must still last, of this key or of anything else.
	Fence *kv.Fence
}

// Written is the outcome of a write that was tried.
type Written struct {
	OK bool // false if the condition did not hold and nothing was changed
	// token of the key's acquisition, after Acquire; if Write.Fence did not hold, of the current holder; may be 0
	Fence uint64
}

// Get returns a key's entry, or ErrNoKey.
func (k KV) Get(ctx context.Context, key string) (Pair, error) {
	entries, a, err := transport.AskWhole[[]Pair](ctx, k.client.cluster, k.reading(key).Or(ErrNoKey), "get key %q", key)
	if err == nil && len(entries) == 0 {
		err = fmt.Errorf("get key %q: %w", key, ErrNoKey)
	}
	if err != nil {
		return Pair{}, err
	}
	entries[0].Fence = fenceOf(a)
	return entries[0], nil
}

// List returns the entries whose keys begin with prefix, in byte order.
func (k KV) List(ctx context.Context, prefix string) ([]Pair, error) {
	return listKeys[Pair](ctx, k, prefix, "recurse", "")
}

// Keys returns the keys that begin with prefix, in byte order. With a separator it cuts each key after the first one
// that follows the prefix, and lists each result once; with "" it returns whole keys.
func (k KV) Keys(ctx context.Context, prefix, separator string) ([]string, error) {
	return listKeys[string](ctx, k, prefix, "keys", separator)
}

// listKeys reads the keys that begin with prefix: their entries, or the keys themselves.
func listKeys[T any](ctx context.Context, k KV, prefix, form, separator string) ([]T, error) {
	q := k.reading(prefix).With("separator", separator)
	q.Query.Set(form, "")
	all, a, err := transport.AskWhole[[]T](ctx, k.client.cluster, q, "list keys %q", prefix)
	if a.Status == http.StatusNotFound {
		return nil, nil
	}
	return all, err
}

// reading returns a call that reads a key, or those that begin with it.
func (k KV) reading(key string) *transport.Call {
	q := ofKey(http.MethodGet, key).With()
	switch k.client.consistency {
	case "stale":
		q.Query.Set("stale", "")
	case "linearizable":
		q.Query.Set("consistent", "")
	}
	return q
}

// ofKey returns a call about a key, which is one segment of the path whatever it contains.
func ofKey(method, key string) *transport.Call {
	return transport.Consul(method, "kv", key)
}

// Put writes a key's value, whatever it was and whichever session holds the key.
func (k KV) Put(ctx context.Context, key string, value []byte) error {
	_, err := k.Write(ctx, Write{Key: key, Value: value})
	return err
}

// CAS writes a key's value if its ModifyIndex is index (0 if there must be no such key), and reports whether it did.
func (k KV) CAS(ctx context.Context, key string, value []byte, index uint64) (bool, error) {
	w, err := k.Write(ctx, Write{Key: key, Value: value, CAS: &index})
	return w.OK, err
}

// Write writes a key under conditions. This package may repeat it when a server dies; it still takes effect once.
func (k KV) Write(ctx context.Context, w Write) (Written, error) {
	q := ofKey(http.MethodPut, w.Key)
	q.Query, q.Body, q.Raw = w.query(), w.Value, true
	if q.Body == nil {
		q.Body = []byte{}
	}
	return k.change(ctx, q, "write", w.Key)
}

// change performs a write of a key. After a response that is neither true nor false, as from a proxy, the outcome is
// unknown.
func (k KV) change(ctx context.Context, q *transport.Call, verb, key string) (Written, error) {
	a, err := k.client.cluster.Perform(ctx, q, verb+" key %q", key)
	if err != nil {
		return Written{}, err
	}
	said := strings.TrimSpace(string(a.Body))
	if said != "true" && said != "false" {
		return Written{}, fmt.Errorf("%s key %q: %w: %s answered %d, and neither true nor false", verb, key, ErrUnknownOutcome, a.Server, a.Status)
	}
	return Written{OK: said == "true", Fence: fenceOf(a)}, nil
}

func (w Write) query() url.Values {
	q := make(url.Values)
	if w.Flags != 0 {
		q.Set("flags", strconv.FormatUint(w.Flags, 10))
	}
	if w.CAS != nil {
		q.Set("cas", strconv.FormatUint(*w.CAS, 10))
	}
	if w.Acquire != "" {
		q.Set("acquire", w.Acquire)
	}
	if w.Release != "" {
		q.Set("release", w.Release)
	}
	if f := w.Fence; f != nil {
		q.Set("fence", fenceText(*f))
		if f.Kind != kv.Key || f.Name != w.Key {
			q.Set("fence-"+kindName(f.Kind), f.Name)
		}
	}
	return q
}

// Delete removes a key, whichever session holds it; an absent one stays absent.
func (k KV) Delete(ctx context.Context, key string) error {
	_, err := k.remove(ctx, key, nil)
	return err
}

// DeleteCAS removes a key if its ModifyIndex is index, and reports whether it is absent now.
func (k KV) DeleteCAS(ctx context.Context, key string, index uint64) (bool, error) {
	return k.remove(ctx, key, url.Values{"cas": {strconv.FormatUint(index, 10)}})
}

// DeleteTree removes all keys that begin with prefix; "" means all keys.
func (k KV) DeleteTree(ctx context.Context, prefix string) error {
	_, err := k.remove(ctx, prefix, url.Values{"recurse": {""}})
	return err
}

func (k KV) remove(ctx context.Context, key string, query url.Values) (bool, error) {
	q := ofKey(http.MethodDelete, key)
	q.Query = query
	w, err := k.change(ctx, q, "delete", key)
	return w.OK, err
}

// fenceOf returns the token in a response, or 0.
func fenceOf(a transport.Response) uint64 {
	fence, _ := strconv.ParseUint(a.Header.Get("X-Rollcall-Fence"), 10, 64)
	return fence
}

// blockFor is how long a server is asked to wait for a change; it adds up to a sixteenth of that.
const blockFor = time.Minute

// Watch calls each with a key's entry (nil if the key does not exist): first as it is, then after every change, until
// ctx ends or each returns an error. Changes in quick succession may be reported as the last of them.
//
// It returns nil when ctx has ended, the error of each unchanged, an error if a server refuses the question, and
// ErrClosed if the client was closed. While no server can be reached it keeps trying.
func (k KV) Watch(ctx context.Context, key string, each func(*Pair) error) error {
	w := kvWatch{kv: k, key: key, query: url.Values{}}
	return w.run(ctx, func(entries []Pair) error {
		if len(entries) == 0 {
			return each(nil)
		}
		return each(&entries[0])
	})
}

// WatchTree is Watch for all keys that begin with prefix, in byte order.
func (k KV) WatchTree(ctx context.Context, prefix string, each func([]Pair) error) error {
	w := kvWatch{kv: k, key: prefix, query: url.Values{"recurse": {""}}}
	return w.run(ctx, each)
}

// kvWatch is the state of one watch. It belongs to the goroutine that called it.
type kvWatch struct {
	kv    KV
	key   string
	query url.Values
	index uint64 // of what was reported last; 0 before that
}

func (w *kvWatch) run(ctx context.Context, each func([]Pair) error) error {
	outage := wait.Outage{Log: w.kv.client.log}
	for failures := 0; ; {
		entries, index, err := w.ask(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if refused(err) || offersNone(err) {
			return fmt.Errorf("watch key %q: %w", w.key, err)
		}
		outage.Report(err, "watch of a key was cut, trying again", "watch of a key goes on", "key", w.key)
		if err != nil {
			if !wait.For(ctx, wait.Retry(failures)) {
				return nil
			}
			failures++
			continue
		}
		failures = 0
		if index == w.index {
			continue // the server's time was up
		}
		w.index = index
		if err := each(entries); err != nil {
			return err
		}
	}
}

// ask waits for a change after the index. An index that has gone back is a change: the cluster has lost its data.
func (w *kvWatch) ask(ctx context.Context) ([]Pair, uint64, error) {
	q := w.kv.reading(w.key)
	maps.Copy(q.Query, w.query)
	q.Patience = w.kv.client.cluster.Timeout()
	if w.index > 0 {
		q = q.With("index", strconv.FormatUint(w.index, 10), "wait", blockFor.String())
		q.Patience += blockFor + blockFor/16
	}
	entries, a, err := transport.AskWhole[[]Pair](ctx, w.kv.client.cluster, q, "")
	if err != nil && a.Status != http.StatusNotFound {
		return nil, 0, err
	}
	index, err := strconv.ParseUint(a.Header.Get("X-Consul-Index"), 10, 64)
	if err != nil || index == 0 {
		return nil, 0, fmt.Errorf("response of %s: X-Consul-Index %q is not an index", a.Server, a.Header.Get("X-Consul-Index"))
	}
	if len(entries) == 1 {
		entries[0].Fence = fenceOf(a)
	}
	return entries, index, nil
}
