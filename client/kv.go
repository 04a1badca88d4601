package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/kv"
)

// KV is the cluster's keys and values, on Consul's routes (/v1/kv). Safe for concurrent use.
type KV struct {
	client      *Client
	consistency string // as Config.Consistency
}

// KV returns the cluster's keys and values.
func (c *Client) KV() KV { return KV{client: c, consistency: c.consistency} }

// Entry is a key's. The names of its members in JSON are Consul's.
type Entry struct {
	Key         string
	Value       []byte
	Flags       uint64 // free for use
	Session     string // the holder's; "": nobody holds the key
	LockIndex   uint64 // how often it was acquired by a new holder
	CreateIndex uint64
	ModifyIndex uint64 // what CAS compares
	// Fence is the token of the holder's acquisition, of entries that Get and Watch return; 0: nobody
	// holds the key.
	Fence uint64 `json:"-"`
}

// Write is one conditional write of a key. At most one of CAS, Acquire and Release is set.
type Write struct {
	Key   string
	Value []byte // at most 512 KiB
	Flags uint64
	// CAS, if not nil: write if the key's ModifyIndex is this; 0: if there is no such key.
	CAS     *uint64
	Acquire string // a session, which becomes the holder unless another one is
	Release string // a session, which must be the holder and ceases to be it
	// Fence, if not nil, is an acquisition that must still last, of this key or of anything else.
	Fence *kv.Fence
}

// Written is the outcome of a write that was tried.
type Written struct {
	OK    bool   // false: the condition did not hold, and nothing was changed
	Fence uint64 // token of the key's acquisition, after Acquire; where Write.Fence did not hold, of who holds now; 0: none
}

// Get returns a key's entry. ErrNoKey: there is none.
func (k KV) Get(ctx context.Context, key string) (Entry, error) {
	a, err := k.read(ctx, key, make(url.Values), 0)
	if err != nil {
		return Entry{}, fmt.Errorf("get key %q: %w", key, err)
	}
	entries, err := a.entries()
	if err == nil && len(entries) == 0 {
		err = ErrNoKey
	}
	if err != nil {
		return Entry{}, fmt.Errorf("get key %q: %w", key, err)
	}
	entries[0].Fence = a.fence()
	return entries[0], nil
}

// List returns the entries whose keys begin with prefix, in byte order; none if there are none.
func (k KV) List(ctx context.Context, prefix string) ([]Entry, error) {
	a, err := k.read(ctx, prefix, url.Values{"recurse": {""}}, 0)
	if err != nil {
		return nil, fmt.Errorf("list keys %q: %w", prefix, err)
	}
	entries, err := a.entries()
	if err != nil {
		return nil, fmt.Errorf("list keys %q: %w", prefix, err)
	}
	return entries, nil
}

// Keys returns the keys that begin with prefix, in byte order. With a separator each is cut after the
// first one that follows the prefix, and each cut is listed once; "": whole keys.
func (k KV) Keys(ctx context.Context, prefix, separator string) ([]string, error) {
	parameters := url.Values{"keys": {""}}
	if separator != "" {
		parameters.Set("separator", separator)
	}
	var keys []string
	a, err := k.read(ctx, prefix, parameters, 0)
	if err == nil && a.status != http.StatusNotFound {
		err = a.decode(&keys)
	}
	if err != nil {
		return nil, fmt.Errorf("list keys %q: %w", prefix, err)
	}
	return keys, nil
}

// read asks for a key, or for those that begin with it.
func (k KV) read(ctx context.Context, key string, query url.Values, patience time.Duration) (answer, error) {
	switch k.consistency {
	case "stale":
		query.Set("stale", "")
	case "linearizable":
		query.Set("consistent", "")
	}
	return k.client.do(ctx, call{method: http.MethodGet, path: kvPath(key), query: query, patience: patience, consul: true})
}

// Put writes a key's value, whatever it was and whoever holds it.
func (k KV) Put(ctx context.Context, key string, value []byte) error {
	_, err := k.Write(ctx, Write{Key: key, Value: value})
	return err
}

// CAS writes a key's value if its ModifyIndex is index (0: if there is no such key), and says whether
// it did.
func (k KV) CAS(ctx context.Context, key string, value []byte, index uint64) (bool, error) {
	w, err := k.Write(ctx, Write{Key: key, Value: value, CAS: &index})
	return w.OK, err
}

// Write writes a key under conditions. It may be repeated by this package when a server dies, and
// takes effect once all the same.
func (k KV) Write(ctx context.Context, w Write) (Written, error) {
	body := w.Value
	if body == nil {
		body = []byte{}
	}
	a, err := k.client.do(ctx, call{
		method: http.MethodPut, path: kvPath(w.Key), query: w.query(), body: body, raw: true, write: true, consul: true, once: rand.Text(),
	})
	if err == nil {
		if refusal := a.refusal(); refusal != nil {
			err = refusal
		}
	}
	if err != nil {
		return Written{}, fmt.Errorf("write key %q: %w", w.Key, err)
	}
	return Written{OK: a.yes(), Fence: a.fence()}, nil
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
	if w.Fence != nil {
		setFence(q, w.Key, *w.Fence)
	}
	return q
}

// Delete removes a key, whoever holds it; one that is absent stays so.
func (k KV) Delete(ctx context.Context, key string) error {
	_, err := k.remove(ctx, key, nil)
	return err
}

// DeleteCAS removes a key if its ModifyIndex is index, and says whether it is absent now.
func (k KV) DeleteCAS(ctx context.Context, key string, index uint64) (bool, error) {
	return k.remove(ctx, key, url.Values{"cas": {strconv.FormatUint(index, 10)}})
}

// DeleteTree removes all keys that begin with prefix; "": all there are.
func (k KV) DeleteTree(ctx context.Context, prefix string) error {
	_, err := k.remove(ctx, prefix, url.Values{"recurse": {""}})
	return err
}

func (k KV) remove(ctx context.Context, key string, query url.Values) (bool, error) {
	a, err := k.client.do(ctx, call{method: http.MethodDelete, path: kvPath(key), query: query, write: true, consul: true, once: rand.Text()})
	if err == nil {
		if refusal := a.refusal(); refusal != nil {
			err = refusal
		}
	}
	if err != nil {
		return false, fmt.Errorf("delete key %q: %w", key, err)
	}
	return a.yes(), nil
}

// kvPath is the path of a key, which is one segment whatever it contains.
func kvPath(key string) []string { return []string{"v1", "kv", key} }

// entries are the entries that an answer lists; none with 404.
func (a answer) entries() ([]Entry, error) {
	if a.status == http.StatusNotFound {
		return nil, nil
	}
	if refusal := a.refusal(); refusal != nil {
		return nil, refusal
	}
	var entries []Entry
	if err := json.Unmarshal(a.body, &entries); err != nil {
		return nil, fmt.Errorf("answer of %s: %w", a.server, err)
	}
	return entries, nil
}

// yes says whether an answer of Consul's routes is true.
func (a answer) yes() bool { return strings.TrimSpace(string(a.body)) == "true" }

// fence is the token that comes with an answer; 0: none.
func (a answer) fence() uint64 {
	fence, _ := strconv.ParseUint(a.header.Get("X-Rollcall-Fence"), 10, 64)
	return fence
}

// blockFor is how long a server is asked to wait for a change; it adds up to a sixteenth of that.
const blockFor = time.Minute

// Watch tells each of a key's entry (nil: there is none): first as it is, then after every change,
// until ctx ends or each returns an error. Changes in short order may be told as the last of them.
//
// It returns nil when ctx has ended, the error of each as it is, and an error if a server refuses the
// question. ErrClosed: the client was closed. While no server can be reached it tries on.
func (k KV) Watch(ctx context.Context, key string, each func(*Entry) error) error {
	w := kvWatch{kv: k, key: key, query: url.Values{}}
	return w.run(ctx, func(entries []Entry) error {
		if len(entries) == 0 {
			return each(nil)
		}
		return each(&entries[0])
	})
}

// WatchTree is Watch for all keys that begin with prefix, in byte order.
func (k KV) WatchTree(ctx context.Context, prefix string, each func([]Entry) error) error {
	w := kvWatch{kv: k, key: prefix, query: url.Values{"recurse": {""}}}
	return w.run(ctx, each)
}

// kvWatch is the state of one watch. It belongs to the goroutine that called it.
type kvWatch struct {
	kv      KV
	key     string
	query   url.Values
	index   uint64 // of what was told last; 0: nothing was
	failing bool
	// routed, if not nil, ends a question whose server is not worth waiting for.
	routed func(context.Context) (context.Context, context.CancelFunc)
}

func (w *kvWatch) run(ctx context.Context, each func([]Entry) error) error {
	for failures := 0; ; {
		entries, index, err := w.ask(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if refused(err) || offersNone(err) {
			return fmt.Errorf("watch key %q: %w", w.key, err)
		}
		w.report(err)
		if err != nil {
			if !wait(ctx, retryPause(failures)) {
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

// ask waits for a change after the index. An index that has gone back is a change: the cluster has lost
// its data.
func (w *kvWatch) ask(ctx context.Context) ([]Entry, uint64, error) {
	patience := w.kv.client.timeout
	if w.index > 0 {
		w.query.Set("index", strconv.FormatUint(w.index, 10))
		w.query.Set("wait", blockFor.String())
		patience += blockFor + blockFor/16
	}
	if w.routed != nil {
		routed, cancel := w.routed(ctx)
		defer cancel()
		ctx = routed
	}
	a, err := w.kv.read(ctx, w.key, w.query, patience)
	if err != nil {
		return nil, 0, err
	}
	entries, err := a.entries()
	if err != nil {
		return nil, 0, err
	}
	index, err := strconv.ParseUint(a.header.Get("X-Consul-Index"), 10, 64)
	if err != nil || index == 0 {
		return nil, 0, fmt.Errorf("answer of %s: X-Consul-Index %q is not an index", a.server, a.header.Get("X-Consul-Index"))
	}
	if len(entries) == 1 {
		entries[0].Fence = a.fence()
	}
	return entries, index, nil
}

// report logs changes between success and failure, not each failure.
func (w *kvWatch) report(err error) {
	switch failing := err != nil; {
	case failing && !w.failing:
		w.kv.client.log.Warn("watch of a key was cut, trying again", "key", w.key, "err", err)
	case !failing && w.failing:
		w.kv.client.log.Info("watch of a key goes on", "key", w.key)
	}
	w.failing = err != nil
}

// offersNone says that the cluster has no coordination at all.
func offersNone(err error) bool {
	var status *StatusError
	return errors.As(err, &status) && status.Status == http.StatusNotImplemented
}
