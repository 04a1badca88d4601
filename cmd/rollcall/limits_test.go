package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// limited starts a node with some limits and returns its URL.
func limited(t *testing.T, change func(*LimitsConfig)) (url string) {
	t.Helper()
	c := oneNode(t)
	change(&c.Limits)
	n, err := openNode(c, quiet)
	if err != nil {
		t.Fatal(err)
	}
	stop := started(t, n)
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	url = "http://" + n.listeners[0].Addr().String()
	awaitReady(t, url)
	return url
}

// expect makes a request and checks the status, and what the answer says.
func expect(t *testing.T, method, url, body string, want int, says string) (text string) {
	t.Helper()
	status, text := call(t, method, url, body)
	if status != want || !strings.Contains(text, says) {
		t.Fatalf("%s %s: %d %.200q, want %d with %q", method, url, status, text, want, says)
	}
	return text
}

func TestSessionsBeyondTheirLimitAreRefusedUntilOneIsDestroyed(t *testing.T) {
	url := limited(t, func(l *LimitsConfig) { l.Sessions = 3 })
	var made struct{ ID string }
	for range 3 {
		text := expect(t, "PUT", url+"/v1/session/create", "{}", http.StatusOK, "")
		if err := json.Unmarshal([]byte(text), &made); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, "PUT", url+"/v1/session/create", "{}", http.StatusInsufficientStorage, "limits.sessions is 3")
	expect(t, "POST", url+"/v1/rollcall/sessions", "{}", http.StatusInsufficientStorage, "limits.sessions is 3")
	expect(t, "PUT", url+"/v1/session/renew/"+made.ID, "", http.StatusOK, made.ID)
	expect(t, "PUT", url+"/v1/kv/k", "v", http.StatusOK, "true")
	expect(t, "PUT", url+"/v1/session/destroy/"+made.ID, "", http.StatusOK, "true")
	expect(t, "PUT", url+"/v1/session/create", "{}", http.StatusOK, "")
}

func TestKeysBeyondTheBytesOfTheStateAreRefusedAndCanBeDeleted(t *testing.T) {
	url := limited(t, func(l *LimitsConfig) { l.StateBytes = 100 << 10 })
	value := strings.Repeat("x", 20<<10)
	for i := range 5 {
		expect(t, "PUT", fmt.Sprintf("%s/v1/kv/k%d", url, i), value, http.StatusOK, "true")
	}
	session := url + "/v1/session/create"
	expect(t, "PUT", url+"/v1/kv/more", value, http.StatusInsufficientStorage, "limits.state-bytes is 102400")
	expect(t, "PUT", url+"/v1/txn", `[{"KV":{"Verb":"set","Key":"more","Value":"eA=="}}]`, http.StatusInsufficientStorage, "limits.state-bytes")
	expect(t, "PUT", session, "{}", http.StatusInsufficientStorage, "limits.state-bytes")
	expect(t, "GET", url+"/v1/kv/k0?raw", "", http.StatusOK, value)
	expect(t, "DELETE", url+"/v1/kv/k0", "", http.StatusOK, "true")
	expect(t, "PUT", url+"/v1/kv/more", "v", http.StatusOK, "true")
	expect(t, "PUT", session, "{}", http.StatusOK, "ID")
}

func TestNodesBeyondTheirLimitAreRefusedAndThoseThereAreNot(t *testing.T) {
	url := limited(t, func(l *LimitsConfig) { l.Nodes = 2 })
	register := url + "/v1/catalog/register"
	node := func(name string) string { return fmt.Sprintf(`{"Node":%q,"Address":"10.0.0.1"}`, name) }
	for _, name := range []string{"a", "b"} {
		expect(t, "PUT", register, node(name), http.StatusOK, "true")
	}
	expect(t, "PUT", register, node("c"), http.StatusInsufficientStorage, "limits.nodes is 2")
	expect(t, "PUT", register, node("b"), http.StatusOK, "true")
	expect(t, "PUT", url+"/v1/catalog/deregister", `{"Node":"a"}`, http.StatusOK, "true")
	expect(t, "PUT", register, node("c"), http.StatusOK, "true")
}
