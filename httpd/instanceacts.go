package httpd

import (
	"fmt"
	"net/http"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// acted is the answer to an operator's act on an instance.
type acted struct {
	App   string `json:"app"`
	ID    string `json:"id"`
	Index string `json:"index"` // every node that has applied it shows the act's effect
}

// override is PUT /v1/rollcall/apps/{app}/{id}/override: setStatus with an author, a reason and,
// if asked for, an end.
func (h *Handler) override(w http.ResponseWriter, r *http.Request) error {
	status, err := statusParam(r.URL.RawQuery, true)
	if err != nil {
		return err
	}
	length, err := forParam(r.URL.RawQuery, false)
	if err != nil {
		return err
	}
	by, err := actOf(r)
	if err != nil {
		return err
	}
	return h.act(w, r, pathKey(r), registry.SetOverride{Key: pathKey(r), Status: status, For: length, By: by})
}

// endOverride is DELETE /v1/rollcall/apps/{app}/{id}/override.
func (h *Handler) endOverride(w http.ResponseWriter, r *http.Request) error {
	fallback, err := statusParam(r.URL.RawQuery, false)
	if err != nil {
		return err
	}
	by, err := actOf(r)
	if err != nil {
		return err
	}
	return h.act(w, r, pathKey(r), registry.DeleteOverride{Key: pathKey(r), Fallback: fallback, By: by})
}

// quarantine is PUT /v1/rollcall/apps/{app}/{id}/quarantine: out of every list for a time.
func (h *Handler) quarantine(w http.ResponseWriter, r *http.Request) error {
	length, err := forParam(r.URL.RawQuery, true)
	if err != nil {
		return err
	}
	by, err := actOf(r)
	if err != nil {
		return err
	}
	return h.act(w, r, pathKey(r), registry.Quarantine{Key: pathKey(r), For: length, By: by})
}

// endQuarantine is DELETE /v1/rollcall/apps/{app}/{id}/quarantine.
func (h *Handler) endQuarantine(w http.ResponseWriter, r *http.Request) error {
	by, err := actOf(r)
	if err != nil {
		return err
	}
	return h.act(w, r, pathKey(r), registry.Quarantine{Key: pathKey(r), By: by})
}

// act performs an operator's act on an instance. One that changes nothing is answered with the
// version that holds what it asks for.
func (h *Handler) act(w http.ResponseWriter, r *http.Request, key registry.Key, op registry.Op) error {
	if err := ignoreBody(w, r, h.config.Limits.IgnoredBytes); err != nil {
		return err
	}
	result, err := h.applyFrom(r, registry.FromClient, op)
	if err != nil {
		return err
	}
	if result.Outcome == registry.NotFound {
		return &refusal{status: http.StatusNotFound, text: fmt.Sprintf("%s is not registered", key)}
	}
	v, err := h.viewAfterWrite(r.Context())
	if err != nil {
		return err
	}
	done := position{epoch: v.Epoch(), index: result.Index}
	if done.index == 0 {
		done.index = v.Index()
	}
	w.Header().Set("X-Rollcall-Index", done.String())
	return respondJSON(w, r, acted{App: key.App, ID: key.ID, Index: done.String()})
}
