package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// The recipe that every language has for Consul, on plain HTTP: a mutex by a session that acquires a key. That of the
// semaphore is contended for by Consul's own client.

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

// session creates a session; document is the body of the request.
func (n *Node) session(t *testing.T, document string) string {
	t.Helper()
	body := need.Got(n.putOK("/v1/session/create", document))(t)
	var created struct{ ID string }
	need.OK(t, json.Unmarshal([]byte(body), &created))
	return created.ID
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

func TestLockByConsulsRecipeOfTheMutex(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{})
	a, b, d := c.Nodes[0], c.Nodes[1], c.Nodes[2]
	// As Java's clients create sessions: a lock delay of the number 0 is none.
	first := a.session(t, `{"LockDelay":0,"Name":"first"}`)
	other := b.session(t, `{"LockDelay":0,"Name":"other"}`)
	need.That(t, a.putTrue(t, "/v1/kv/lock/job?acquire="+first, "lock:1"), "a free key was not acquired")
	need.That(t, !b.putTrue(t, "/v1/kv/lock/job?acquire="+other, "lock:2"), "two hold the lock")
	expect.That(t, !b.putTrue(t, "/v1/kv/lock/job?release="+other, "unlock:2"), "a session that does not hold the lock released it")
	held, response, err := d.keys("lock/job")
	need.OK(t, err)
	need.That(t, len(held) == 1 && held[0].Session == first && string(held[0].Value) == "lock:1" && held[0].LockIndex == 1,
		"the third node shows %+v, want it held by the first with its value", held)
	token := response.Header.Get("X-Rollcall-Fence")
	expect.That(t, token != "" && token != "0", "X-Rollcall-Fence is %q, want the token of the acquisition", token)

	// Blocking: wait for a change of the key, then try again.
	acquired := make(chan error, 1)
	go func() {
		acquired <- func() error {
			for index := held[0].ModifyIndex; ; {
				_, response, err := b.keys(fmt.Sprintf("lock/job?index=%d&wait=5s", index))
				if err != nil {
					return err
				}
				if _, err := fmt.Sscan(response.Header.Get("X-Consul-Index"), &index); err != nil {
					return err
				}
				if done, err := b.putOK("/v1/kv/lock/job?acquire="+other, "lock:2"); err != nil || done == "true" {
					return err
				}
			}
		}()
	}()
	expect.That(t, a.putTrue(t, "/v1/kv/lock/job?release="+first, "unlock:1"), "the holder could not release its lock")
	select {
	case err := <-acquired:
		need.OK(t, err)
	case <-time.After(ReadyLimit):
		t.Fatal("the session that waits for the lock does not get it")
	}
	for _, when := range []string{"", ", once more,"} {
		expect.That(t, d.putTrue(t, "/v1/session/destroy/"+other, ""), "destroying a session%s must answer true", when)
	}
	if held, _, err = a.keys("lock/job"); err != nil || held[0].Session != "" || string(held[0].Value) != "lock:2" {
		t.Errorf("%+v, %v; want the value kept and no holder", held, err)
	}
	expect.That(t, a.putTrue(t, "/v1/kv/lock/job?acquire="+first, "again"), "a lock whose session was destroyed without lock-delay is not free at once")
	for _, dead := range []string{other, "no-uuid"} {
		response := led(func() Response { return a.Do(Request{Method: http.MethodPut, Path: "/v1/kv/lock/x?acquire=" + dead}) })
		want := fmt.Sprintf("raft apply failed: invalid session %q", dead)
		expect.That(t, response.Status == 500 && string(response.Body) == want, "acquire by a session that is gone: %v, want 500 %q", response, want)
	}
}
