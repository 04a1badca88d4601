package sim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// Led waits until a linearizable read at a node succeeds, and returns when that was.
func (w *World) Led(node string) time.Time {
	w.Helper()
	w.Await(ReadyWithin, "a leader serves "+node, func() bool {
		return w.Call(node, "GET", "/v1/kv/nothing", "").Status == http.StatusNotFound
	})
	return time.Now()
}

// led repeats a call while Consul's API responds that no node leads, and so did nothing.
func (w *World) led(node, method, path, body string) Reply {
	w.Helper()
	var r Reply
	for until := time.Now().Add(ReadyWithin); time.Now().Before(until); {
		if r = w.Call(node, method, path, body); r.Status != http.StatusInternalServerError || !strings.HasPrefix(r.Body, "No cluster leader") {
			return r
		}
	}
	return r
}

// Put writes a key at a node; query has the parameters, or is empty. It reports whether the key was written.
func (w *World) Put(node, key, query, value string) bool {
	w.Helper()
	r := w.led(node, "PUT", "/v1/kv/"+key+"?"+query, value)
	need.That(w, r.Status == http.StatusOK && (r.Body == "true" || r.Body == "false"), "put %s?%s at %s: %v", key, query, node, r)
	return r.Body == "true"
}

// Get reads a key at a node. It returns nil if the key does not exist.
func (w *World) Get(node, key string) *Pair {
	w.Helper()
	r := w.led(node, "GET", "/v1/kv/"+key, "")
	var all []Pair
	need.That(w, r.Status == http.StatusNotFound || r.decode(&all) && len(all) == 1, "get %s at %s: %v", key, node, r)
	if len(all) == 0 {
		return nil
	}
	return &all[0]
}

// Acquire makes a session acquire a key by Consul's API, and reports whether the session holds it now.
func (w *World) Acquire(node, key, session string) bool {
	w.Helper()
	return w.Put(node, key, "acquire="+session, session)
}

// AcquiredAt makes a session acquire a key as soon as it can, and returns when it did.
func (w *World) AcquiredAt(node, key, session string) time.Time {
	w.Helper()
	w.Await(time.Minute, "key "+key+" is free", func() bool { return w.Acquire(node, key, session) })
	return time.Now()
}

// Session creates a session by Rollcall's own API, with which it lives exactly its TTL, and returns its id.
func (w *World) Session(node string, ttl, lockDelay time.Duration) string {
	w.Helper()
	r := w.Call(node, "POST", "/v1/rollcall/sessions", fmt.Sprintf(`{"ttl":%q,"lock_delay":%q}`, ttl, lockDelay))
	var s api.Session
	need.That(w, r.Status/100 == 2 && json.Unmarshal([]byte(r.Body), &s) == nil, "create a session at %s: %v", node, r)
	return s.ID
}

// DestroySession ends a session.
func (w *World) DestroySession(node, id string) {
	w.Helper()
	r := w.led(node, "PUT", "/v1/session/destroy/"+id, "")
	need.That(w, r.Status == http.StatusOK && r.Body == "true", "destroy session %s at %s: %v", id, node, r)
}

// KeepSession renews a session three times in its TTL, at one node after the other until one renews it. lost reports
// whether a node has said meanwhile that the session does not exist.
func (w *World) KeepSession(id string, ttl time.Duration) (lost func() bool) {
	w.Helper()
	var gone atomic.Bool
	w.beside(ttl/3, func() {
		for _, n := range w.nodes[:w.cluster.Nodes] {
			switch w.Call(n.Name, "PUT", "/v1/rollcall/sessions/"+id+"/renew", "").Status {
			case http.StatusOK:
				return
			case http.StatusNotFound:
				gone.Store(true)
			}
		}
	})
	return gone.Load
}

// Lock asks for a lock for a session, which waits in the queue for at most wait. It returns the token, or 0 if the
// session did not get it.
func (w *World) Lock(node, name, session string, wait time.Duration) (fence uint64) {
	w.Helper()
	var a api.Acquired
	path := fmt.Sprintf("/v1/rollcall/locks/%s?session=%s&wait=%v", name, session, wait)
	// When repeated, it keeps its permit or its place.
	for until := time.Now().Add(wait + ReadyWithin); !a.Acquired && time.Now().Before(until); {
		r := w.Hold(node, "PUT", path, "")
		switch {
		case r.decode(&a) && !a.Acquired:
			return 0
		case r.Status == http.StatusOK, r.Status == 0, r.Status >= 500:
		default:
			w.Fatalf("lock %s at %s: %v", name, node, r)
		}
	}
	return a.Fence
}
