package client

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// keysAnswer is a status, a text and the values of headers.
type keysAnswer struct {
	status       int
	text         string
	index, fence uint64
}

func (k *coordinator) respondKeys(r *http.Request, body []byte) (*http.Response, error) {
	key := strings.TrimPrefix(r.URL.Path, "/v1/kv/")
	q := r.URL.Query()
	var a keysAnswer
	switch r.Method {
	case "GET":
		k.parameters(q, "recurse", "index", "wait", "consistent")
		a = k.read(r, key, q)
	default:
		k.parameters(q, "flags", "cas", "acquire", "release")
		a = k.writeOnce(r, key, q, body)
	}
	return answered(a.status, a.text, "X-Consul-Index", fmt.Sprint(max(a.index, 1)), "X-Rollcall-Fence", fmt.Sprint(a.fence))
}

// read waits behind an index as the server does.
func (k *coordinator) read(r *http.Request, key string, q url.Values) keysAnswer {
	if !q.Has("consistent") {
		k.t.Errorf("read of %q: not linearizable", key)
	}
	behind, _ := strconv.ParseUint(q.Get("index"), 10, 64)
	patience, _ := time.ParseDuration(q.Get("wait"))
	over := time.After(patience)
	for {
		a, changed := k.look(key, q.Has("recurse"))
		if a.index != behind {
			return a
		}
		select {
		case <-changed:
		case <-time.After(time.Second): // sessions end without a request
		case <-over:
			return a
		case <-r.Context().Done():
			return a
		}
	}
}

// look is a read that does not wait.
func (k *coordinator) look(key string, recurse bool) (keysAnswer, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
	var found []Entry
	for _, name := range slices.Sorted(maps.Keys(k.entries)) {
		if name == key || recurse && strings.HasPrefix(name, key) {
			found = append(found, *k.entries[name])
		}
	}
	a := keysAnswer{status: 404, index: uint64(k.index)}
	if len(found) > 0 {
		text, _ := json.Marshal(found)
		a.status, a.text = 200, string(text)
	}
	if len(found) == 1 && !recurse {
		a.index, a.fence = found[0].ModifyIndex, found[0].Fence
	}
	return a, k.changed
}

// writeOnce answers a repeated write as it answered the first.
func (k *coordinator) writeOnce(r *http.Request, key string, q url.Values, body []byte) keysAnswer {
	k.mu.Lock()
	defer k.mu.Unlock()
	once := cmp.Or(r.Header.Get("Idempotency-Key"), fmt.Sprint(len(k.answers)))
	if was := k.answers[once]; was != nil {
		return was()
	}
	k.expire()
	a := k.write(r.Method, key, q, body)
	k.answers[once] = func() keysAnswer { return a }
	return a
}

func (k *coordinator) write(method, key string, q url.Values, body []byte) keysAnswer {
	yes, no := keysAnswer{status: 200, text: "true"}, keysAnswer{status: 200, text: "false"}
	e := k.entries[key]
	if method == "DELETE" {
		delete(k.entries, key)
		k.change()
		return yes
	}
	was := Entry{Key: key}
	if e != nil {
		was = *e
	}
	is := was
	is.Value = body
	is.Flags, _ = strconv.ParseUint(q.Get("flags"), 10, 64)
	switch {
	case q.Has("acquire") && k.sessions[q.Get("acquire")] == nil:
		return keysAnswer{status: 500, text: fmt.Sprintf("raft apply failed: invalid session %q", q.Get("acquire"))}
	case q.Has("acquire") && was.Session != "" && was.Session != q.Get("acquire"),
		q.Has("acquire") && time.Now().Before(k.delays[key]),
		q.Has("release") && (was.Session == "" || was.Session != q.Get("release")),
		q.Has("cas") && q.Get("cas") != fmt.Sprint(was.ModifyIndex):
		return no
	case q.Has("acquire"):
		is.Session = q.Get("acquire")
	case q.Has("release"):
		is.Session = ""
	}
	k.change()
	is.ModifyIndex = uint64(k.index)
	if was.Session != is.Session {
		is.Fence = is.ModifyIndex
	}
	k.entries[key] = &is
	yes.fence = is.Fence
	return yes
}

func (k *coordinator) change() {
	k.index++
	close(k.changed)
	k.changed = make(chan struct{})
}

// locked says whether a session has a lock, which its end would put a lock-delay on.
func (k *coordinator) locked(session string) bool {
	for _, e := range k.entries {
		if e.Session == session && k.sessions[session].request.Behavior != "delete" {
			return true
		}
	}
	return false
}

// bereave ends what a session holds.
func (k *coordinator) bereave(session string) {
	request := k.sessions[session].request
	delay, _ := time.ParseDuration(request.LockDelay)
	for name, e := range k.entries {
		if e.Session != session {
			continue
		}
		k.change()
		k.delays[name] = time.Now().Add(delay)
		e.Session, e.Fence, e.ModifyIndex = "", 0, uint64(k.index)
		if request.Behavior == "delete" {
			delete(k.entries, name)
		}
	}
}

// put writes a key as anybody may.
func (k *coordinator) put(key, value string, flags uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.write("PUT", key, url.Values{"flags": {fmt.Sprint(flags)}}, []byte(value))
}

// entry is a key's entry, with no key if there is none.
func (k *coordinator) entry(key string) Entry {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
	if e := k.entries[key]; e != nil {
		return *e
	}
	return Entry{}
}

// kill ends a session as its TTL does.
func (k *coordinator) kill(session string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.end(session)
}

// names are the keys there are.
func (k *coordinator) names() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Sorted(maps.Keys(k.entries))
}

// remove deletes a key as anybody may.
func (k *coordinator) remove(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.write("DELETE", key, nil, nil)
}

// free releases a key in the holder's name.
func (k *coordinator) free(key, session string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.write("PUT", key, url.Values{"release": {session}}, nil)
}
