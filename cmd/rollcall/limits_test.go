package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// limited starts a node with some limits and returns its URL.
func limited(t *testing.T, change func(*Quota)) (url string) {
	t.Helper()
	c := oneNode(t)
	change(&c.Quota)
	n := need.Got(openNode(c, quiet))(t)
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
	url := limited(t, func(l *Quota) { l.Sessions = 3 })
	var made struct{ ID string }
	for range 3 {
		text := expect(t, "PUT", url+"/v1/session/create", "{}", http.StatusOK, "")
		need.OK(t, json.Unmarshal([]byte(text), &made))
	}
	expect(t, "PUT", url+"/v1/session/create", "{}", http.StatusInsufficientStorage, "limits.sessions is 3")
	expect(t, "POST", url+"/v1/rollcall/sessions", "{}", http.StatusInsufficientStorage, "limits.sessions is 3")
	expect(t, "PUT", url+"/v1/session/renew/"+made.ID, "", http.StatusOK, made.ID)
	expect(t, "PUT", url+"/v1/kv/k", "v", http.StatusOK, "true")
	expect(t, "PUT", url+"/v1/session/destroy/"+made.ID, "", http.StatusOK, "true")
	expect(t, "PUT", url+"/v1/session/create", "{}", http.StatusOK, "")
}

func TestKeysBeyondTheBytesOfTheStateAreRefusedAndCanBeDeleted(t *testing.T) {
	url := limited(t, func(l *Quota) { l.StateBytes = 100 << 10 })
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
	url := limited(t, func(l *Quota) { l.Nodes = 2 })
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

func TestLocksAndNodesBeyondTheBytesOfTheStateAreRefusedAndWhatIsThereGoesOn(t *testing.T) {
	url := limited(t, func(l *Quota) { l.StateBytes = 200 << 10 })
	var made [2]struct{ ID string }
	for i := range made {
		need.OK(t, json.Unmarshal([]byte(expect(t, "PUT", url+"/v1/session/create", "{}", http.StatusOK, "ID")), &made[i]))
	}
	holder, other := made[0].ID, made[1].ID
	lock := func(name, session string) string {
		return fmt.Sprintf("%s/v1/rollcall/locks/%s?session=%s", url, name, session)
	}
	node := func(name string, bytes int) string {
		return fmt.Sprintf(`{"Node":%q,"Address":"10.0.0.1","NodeMeta":{"k":%q}}`, name, strings.Repeat("x", bytes))
	}
	register, deregister := url+"/v1/catalog/register", url+"/v1/catalog/deregister"
	value := strings.Repeat("v", 4096)
	expect(t, "PUT", register, node("first", 100), http.StatusOK, "true")
	expect(t, "PUT", lock("first", holder), "", http.StatusOK, `"acquired":true`)
	for i := range 10 {
		expect(t, "PUT", lock(fmt.Sprint("l", i), holder), value, http.StatusOK, `"acquired":true`)
	}
	for i := range 40 {
		expect(t, "PUT", register, node(fmt.Sprint("n", i), 4000), http.StatusOK, "true")
		if status, text := call(t, "PUT", register, node("more", 4000)); status == http.StatusInsufficientStorage {
			if !strings.Contains(text, "limits.state-bytes is 204800") {
				t.Errorf("the refusal says %q, want limits.state-bytes in it", text)
			}
			break
		}
		expect(t, "PUT", deregister, `{"Node":"more"}`, http.StatusOK, "true")
	}
	full := func(method, target, body string) {
		t.Helper()
		expect(t, method, target, body, http.StatusInsufficientStorage, "limits.state-bytes is 204800")
	}
	full("PUT", register, node("first", 5000))
	full("PUT", register, `{"Node":"first","Address":"10.0.0.1","Check":{"Name":"c","Status":"passing"}}`)
	full("PUT", lock("another", holder), "")
	full("PUT", lock("first", other)+"&wait=10s", "")
	full("PUT", url+"/v1/kv/k", "v")
	expect(t, "PUT", register, node("first", 100), http.StatusOK, "true")
	expect(t, "PUT", lock("first", holder), "", http.StatusOK, `"acquired":true`)
	expect(t, "PUT", lock("first", other), "", http.StatusInsufficientStorage, "")
	expect(t, "POST", url+"/eureka/apps/A", `{"instance":{"instanceId":"i","app":"A","hostName":"h","ipAddr":"10.0.0.1","status":"UP","dataCenterInfo":{"name":"MyOwn"}}}`, http.StatusNoContent, "")
	expect(t, "PUT", url+"/eureka/apps/A/i", "", http.StatusOK, "")
	expect(t, "DELETE", lock("l0", holder), "", http.StatusOK, "")
	for i := range 3 {
		expect(t, "PUT", deregister, fmt.Sprintf(`{"Node":"n%d"}`, i), http.StatusOK, "true")
	}
	expect(t, "PUT", lock("another", holder), "", http.StatusOK, `"acquired":true`)
	expect(t, "PUT", register, node("first", 5000), http.StatusOK, "true")
}
