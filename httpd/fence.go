package httpd

import (
	"net/http"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/kv"
)

// shownFence says whether an acquisition lasts.
type shownFence struct {
	Kind  string   `json:"kind"`
	Name  string   `json:"name"`
	Holds bool     `json:"holds"`
	Fence kv.Index `json:"fence"` // token of who holds it now; 0: nobody
}

// fence is GET /v1/rollcall/fence/{key}: whether the acquisition with the token index lasts, by session or,
// if none is given, by whomever. It is linearizable: what it says was so after it was asked.
func (h *Handler) fence(w http.ResponseWriter, r *http.Request) error {
	name := restOfPath(r)
	if name == "" {
		return badRequest("name what was acquired: /v1/rollcall/fence/NAME")
	}
	token, ok, err := numberParam(r.URL.RawQuery, "index")
	if err == nil && !ok {
		err = badRequest("index must be given: the token of the acquisition, as in " + fenceHeader)
	}
	if err != nil {
		return err
	}
	kind, err := kindParam(r.URL.RawQuery)
	if err != nil {
		return err
	}
	session, _, err := param(r.URL.RawQuery, "session")
	if err != nil {
		return err
	}
	v, err := h.newestKeys(r.Context())
	if err != nil {
		return err
	}
	holds, now := v.Holds(kv.Fence{Kind: kind, Name: name, Index: kv.Index(token)}, strings.ToLower(session))
	labelFence(w.Header(), now)
	return respondJSON(w, r, shownFence{Kind: kindWords[kind], Name: name, Holds: holds, Fence: now})
}

// kindParam reads kind; a key if it is not given.
func kindParam(query string) (kv.Kind, error) {
	word, ok, err := param(query, "kind")
	if err != nil || !ok {
		return kv.Key, err
	}
	at := slices.Index(kindWords[:], word)
	if at < 0 {
		return 0, badRequest("kind must be one of key, lock, semaphore")
	}
	return kv.Kind(at), nil
}
