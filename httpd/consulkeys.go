package httpd

import (
	"net/http"
	"strconv"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/httpd/consul"
)

var errMissingKey = badRequest("Missing key name")

// keyRoutes adds Consul's API of keys.
func (h *Handler) keyRoutes() {
	const path = "/v1/kv/{key}"
	h.consulRoute(path, h.getKey, http.MethodGet)
	h.consulRoute(path, h.putKey, http.MethodPut)
	h.consulRoute(path, h.deleteKey, http.MethodDelete)
}

// given says whether a parameter is there, with whatever value.
func given(r *http.Request, name string) bool {
	_, ok, _ := param(r.URL.RawQuery, name) // where the query cannot be read, another reading says so
	return ok
}

// getKey is GET kv/{key}: one entry, all whose keys begin with it (recurse), or the names alone (keys).
func (h *Handler) getKey(w http.ResponseWriter, r *http.Request) error {
	key := restOfPath(r)
	switch {
	case given(r, "keys"):
		return h.listKeys(w, r, key)
	case given(r, "recurse"):
		return h.getTree(w, r, key)
	case key == "":
		return errMissingKey
	}
	return h.consulRead(w, r, h.keySource(kv.Topic{Kind: kv.KeyTopic, Name: key}, func(v *kv.View) found {
		e, index := v.Get(key)
		return found{index: uint64(index), absent: e == nil, answer: func(w http.ResponseWriter, r *http.Request) error {
			return respondEntry(w, r, e)
		}}
	}))
}

func respondEntry(w http.ResponseWriter, r *http.Request, e *kv.Entry) error {
	if e == nil {
		w.WriteHeader(http.StatusNotFound)
		return nil
	}
	if e.Session != "" {
		labelFence(w.Header(), e.Fence)
	}
	if !given(r, "raw") {
		return respondConsul(w, r, []consul.Entry{consul.ShowEntry(e)})
	}
	w.Header().Set("Content-Security-Policy", "sandbox")
	respond(w, r, http.StatusOK, "text/plain", e.Value)
	return nil
}

func (h *Handler) getTree(w http.ResponseWriter, r *http.Request, prefix string) error {
	return h.consulRead(w, r, h.keySource(kv.Topic{Kind: kv.PrefixTopic, Name: prefix}, func(v *kv.View) found {
		entries, index, ok := v.List(prefix)
		if !ok {
			return found{index: uint64(index), answer: tooLargeToRead}
		}
		return found{index: uint64(index), absent: len(entries) == 0, answer: func(w http.ResponseWriter, r *http.Request) error {
			if len(entries) == 0 {
				w.WriteHeader(http.StatusNotFound)
				return nil
			}
			return respondEntries(w, r, entries)
		}}
	}))
}

func tooLargeToRead(http.ResponseWriter, *http.Request) error { return errReadTooLarge }

func respondEntries(w http.ResponseWriter, r *http.Request, entries []*kv.Entry) error {
	if (kv.Result{Entries: entries}).Weight() < maxWhole {
		return respondConsul(w, r, consul.ShowEntries(entries))
	}
	return respondLarge(w, r, plainList(len(entries), func(i int) any { return consul.ShowEntry(entries[i]) }))
}

// listKeys answers with names. No names at all is 404, but not where all were asked for.
func (h *Handler) listKeys(w http.ResponseWriter, r *http.Request, prefix string) error {
	separator, err := separatorParam(r.URL.RawQuery)
	if err != nil {
		return err
	}
	return h.consulRead(w, r, h.keySource(kv.Topic{Kind: kv.PrefixTopic, Name: prefix}, func(v *kv.View) found {
		keys, index, ok := v.Keys(prefix, separator)
		if !ok {
			return found{index: uint64(index), answer: tooLargeToRead}
		}
		return found{index: uint64(index), absent: len(keys) == 0, answer: func(w http.ResponseWriter, r *http.Request) error {
			if len(keys) == 0 && prefix != "" {
				w.WriteHeader(http.StatusNotFound)
				return nil
			}
			if len(keys) > maxWhole/100 {
				return respondLarge(w, r, plainList(len(keys), func(i int) any { return keys[i] }))
			}
			return respondConsul(w, r, append([]string{}, keys...)) // an empty list, not null
		}}
	}))
}

// separatorParam reads separator, which some clients misspell.
func separatorParam(query string) (string, error) {
	separator, ok, err := param(query, "separator")
	if ok || err != nil {
		return separator, err
	}
	separator, _, err = param(query, "seperator")
	return separator, err
}

// putKey is PUT kv/{key}, with at most one of cas, acquire and release.
func (h *Handler) putKey(w http.ResponseWriter, r *http.Request) error {
	op, err := keyWrite(r)
	if err != nil {
		return err
	}
	if op.Value, err = readValue(w, r); err != nil {
		return err
	}
	return h.writeKey(w, r, op)
}

// keyWrite reads what a PUT asks for, without its body.
func keyWrite(r *http.Request) (op kv.KeyOp, err error) {
	if op.Key = restOfPath(r); op.Key == "" {
		return op, errMissingKey
	}
	if op.Flags, _, err = numberParam(r.URL.RawQuery, "flags"); err != nil {
		return op, err
	}
	cas, acquire, release := given(r, "cas"), given(r, "acquire"), given(r, "release")
	switch {
	case cas && acquire, cas && release, acquire && release:
		return op, conflictingFlags(r)
	case cas:
		op.Verb = kv.CAS
		op.Index, err = casParam(r.URL.RawQuery)
	case acquire:
		op.Verb = kv.Acquire
		op.Session, _, err = param(r.URL.RawQuery, "acquire")
	case release:
		op.Verb = kv.Release
		op.Session, _, err = param(r.URL.RawQuery, "release")
	}
	return op, err
}

// deleteKey is DELETE kv/{key}, with at most one of cas and recurse.
func (h *Handler) deleteKey(w http.ResponseWriter, r *http.Request) (err error) {
	op := kv.KeyOp{Verb: kv.Delete, Key: restOfPath(r)}
	cas, recurse := given(r, "cas"), given(r, "recurse")
	switch {
	case cas && recurse:
		return conflictingFlags(r)
	case recurse:
		op.Verb = kv.DeleteTree
	case op.Key == "":
		return errMissingKey
	case cas:
		op.Verb = kv.DeleteCAS
		if op.Index, err = casParam(r.URL.RawQuery); err != nil {
			return err
		}
	}
	if err := ignoreBody(w, r, h.config.Limits.IgnoredBytes); err != nil {
		return err
	}
	return h.writeKey(w, r, op)
}

// writeKey performs a write, if the fence that it may carry holds, and says who holds the key.
func (h *Handler) writeKey(w http.ResponseWriter, r *http.Request, write kv.KeyOp) (err error) {
	if write.Fence, err = fenceParam(r.URL.RawQuery, write.Key); err != nil {
		return err
	}
	op, err := onceOf(r, write)
	if err != nil {
		return err
	}
	result, err := h.persist(r.Context(), op)
	if err != nil {
		return err
	}
	if result.Refusal != "" {
		return consulError("raft apply failed: " + result.Refusal)
	}
	if write.Fence != nil || (write.Verb == kv.Acquire && result.OK) {
		labelFence(w.Header(), result.Fence)
	}
	respondBool(w, r, result.OK)
	return nil
}

func conflictingFlags(r *http.Request) error {
	return badRequest("Conflicting flags: " + r.URL.Query().Encode())
}

func casParam(query string) (kv.Index, error) {
	index, _, err := numberParam(query, "cas")
	return kv.Index(index), err
}

// numberParam reads a number of 64 bits; ok is false if it is not given.
func numberParam(query, name string) (number uint64, ok bool, err error) {
	text, ok, err := param(query, name)
	if err != nil || !ok {
		return 0, false, err
	}
	number, err = strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, false, badRequest(name + ": " + err.Error())
	}
	return number, true, nil
}
