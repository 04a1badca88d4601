package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// led asks again as long as Consul's API responds that there is no leader, and so did nothing.
func led(ask func() Response) (response Response) {
	_ = Poll(ReadyLimit, func() error { // the response says it
		if response = ask(); response.Status == http.StatusInternalServerError && bytes.HasPrefix(response.Body, []byte("No cluster leader")) {
			return errRefused
		}
		return nil
	})
	return response
}

// putOK sends a PUT of Consul's API and returns the body of its response, which must be a 200.
func (n *Node) putOK(path, body string) (string, error) {
	response := led(func() Response { return n.Do(Request{Method: http.MethodPut, Path: path, Body: []byte(body)}) })
	if response.Status != http.StatusOK {
		return "", fmt.Errorf("PUT %s: %v", path, response)
	}
	return string(response.Body), nil
}

// putTrue sends a PUT whose response is true or false.
func (n *Node) putTrue(t *testing.T, path, body string) bool {
	t.Helper()
	answer := need.Got(n.putOK(path, body))(t)
	need.That(t, answer == "true" || answer == "false", "PUT %s: %q, want true or false", path, answer)
	return answer == "true"
}

// key is a key with its value and session as Consul's JSON has it.
type key struct {
	Key         string
	Value       []byte
	Session     string
	ModifyIndex uint64
	LockIndex   uint64
}

// keys reads keys; path is what follows /v1/kv/. None: nil.
func (n *Node) keys(path string) ([]key, Response, error) {
	response := led(func() Response { return n.Get("/v1/kv/" + path) })
	switch response.Status {
	case http.StatusNotFound:
		return nil, response, nil
	case http.StatusOK:
		var all []key
		return all, response, json.Unmarshal(response.Body, &all)
	}
	return nil, response, fmt.Errorf("GET /v1/kv/%s: %v", path, response)
}
