package httpd

import (
	"errors"
	"net/http"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Consul's clients show the text of an error, and take some texts and statuses for signs: whoever holds a
// lock goes on after a 500, and after nothing else (hashicorp/consul, api/api.go, IsRetryableError).

// consulError is a request that was understood and cannot be done.
func consulError(text string) error {
	return &refusal{status: http.StatusInternalServerError, text: text}
}

// errNoCoordination is the answer of a node without consensus.
var errNoCoordination = &refusal{
	status: http.StatusNotImplemented,
	text: "sessions, keys, locks and Consul's API need a cluster with consensus (mode cp): each node of this one accepts writes by itself, " +
		"so no lock could be exclusive; ask a cluster in mode cp",
}

// consulFailure is failureOf for Consul's API.
func consulFailure(err error) refusal {
	f := failureOf(err)
	switch {
	case f.text != "":
		if f.status == http.StatusServiceUnavailable {
			f.status = http.StatusInternalServerError // a lock holder would give up
		}
	case f.unknown:
		f.text = unknownText
	case errors.Is(err, registry.ErrClosed):
		f = refusal{status: http.StatusInternalServerError, text: "this node is shutting down; ask another one"}
	case errors.Is(err, registry.ErrNoLeader):
		f = refusal{status: http.StatusInternalServerError, text: "No cluster leader"}
	case f.status != http.StatusInternalServerError: // of which nothing is said
		f.text = http.StatusText(f.status)
	}
	return f
}
