package httpd

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// respondConsul sends a document as JSON, indented if the call asks for it with pretty. True and false it sends as they
// are: clients look for the word.
func (c *call) respondConsul(document any) error {
	body, err := json.Marshal(document)
	if err != nil {
		return err
	}
	if _, word := document.(bool); !word && c.given("pretty") {
		var indented bytes.Buffer
		_ = json.Indent(&indented, body, "", "    ") // it was just encoded
		body = append(indented.Bytes(), '\n')
	}
	respond(c.w, c.r, cmp.Or(c.status, http.StatusOK), "application/json", body)
	return nil
}

// maxValue bounds the value of a key and the body of a transaction, in bytes.
const maxValue = 512 << 10

// readValue reads a body of at most maxValue bytes as it is.
func (c *call) readValue() ([]byte, error) {
	if c.r.ContentLength > maxValue {
		return nil, valueTooLarge(fmt.Sprintf("%d", c.r.ContentLength))
	}
	value, err := io.ReadAll(chargedReader{io.LimitReader(c.r.Body, maxValue+1), c.w})
	if err != nil {
		return nil, bodyError(err)
	}
	if len(value) > maxValue {
		return nil, valueTooLarge(fmt.Sprintf("more than %d", maxValue))
	}
	return value, nil
}

func valueTooLarge(size string) error {
	text := fmt.Sprintf("Request body(%s bytes) too large, max size: %d bytes. See docs/protocol/coordination.md.", size, maxValue)
	return &refusal{status: http.StatusRequestEntityTooLarge, text: text}
}
