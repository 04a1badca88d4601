package node

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/seed-20419f34/rollcall/cmd/internal/capacity"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func limited(t *testing.T, change func(*capacity.Quota)) (url string) {
	t.Helper()
	c := oneNode(t)
	change(&c.Quota)
	return serving(t, c)
}

func responds(t *testing.T, method, url, body string, want int, says string) (text string) {
	t.Helper()
	status, text := request(t, method, url, body)
	need.That(t, status == want && strings.Contains(text, says), "%s %s: %d %.200q, want %d with %q", method, url, status, text, want, says)
	return text
}

func TestLimitsRefuseSessionsUntilOneIsDestroyed(t *testing.T) {
	url := limited(t, func(l *capacity.Quota) { l.Sessions = 3 })
	var made struct{ ID string }
	for range 3 {
		text := responds(t, "PUT", url+"/v1/session/create", "{}", http.StatusOK, "")
		need.OK(t, json.Unmarshal([]byte(text), &made))
	}
	responds(t, "PUT", url+"/v1/session/create", "{}", http.StatusInsufficientStorage, "limits.sessions is 3")
	responds(t, "POST", url+"/v1/rollcall/sessions", "{}", http.StatusInsufficientStorage, "limits.sessions is 3")
	responds(t, "PUT", url+"/v1/session/renew/"+made.ID, "", http.StatusOK, made.ID)
	responds(t, "PUT", url+"/v1/kv/k", "v", http.StatusOK, "true")
	responds(t, "PUT", url+"/v1/session/destroy/"+made.ID, "", http.StatusOK, "true")
	responds(t, "PUT", url+"/v1/session/create", "{}", http.StatusOK, "")
}

func TestLimitsRefuseKeysBeyondTheBytesOfTheStateUntilOneIsDeleted(t *testing.T) {
	url := limited(t, func(l *capacity.Quota) { l.StateBytes = 100 << 10 })
	value := strings.Repeat("x", 20<<10)
	for i := range 5 {
		responds(t, "PUT", fmt.Sprintf("%s/v1/kv/k%d", url, i), value, http.StatusOK, "true")
	}
	session := url + "/v1/session/create"
	responds(t, "PUT", url+"/v1/kv/more", value, http.StatusInsufficientStorage, "limits.state-bytes is 102400")
	responds(t, "PUT", url+"/v1/txn", `[{"KV":{"Verb":"set","Key":"more","Value":"eA=="}}]`, http.StatusInsufficientStorage, "limits.state-bytes")
	responds(t, "PUT", session, "{}", http.StatusInsufficientStorage, "limits.state-bytes")
	responds(t, "GET", url+"/v1/kv/k0?raw", "", http.StatusOK, value)
	responds(t, "DELETE", url+"/v1/kv/k0", "", http.StatusOK, "true")
	responds(t, "PUT", url+"/v1/kv/more", "v", http.StatusOK, "true")
	responds(t, "PUT", session, "{}", http.StatusOK, "ID")
}

func TestLimitsRefuseNewNodesOfTheCatalogAndAcceptThoseThere(t *testing.T) {
	url := limited(t, func(l *capacity.Quota) { l.Nodes = 2 })
	register := url + "/v1/catalog/register"
	node := func(name string) string { return fmt.Sprintf(`{"Node":%q,"Address":"10.0.0.1"}`, name) }
	for _, name := range []string{"a", "b"} {
		responds(t, "PUT", register, node(name), http.StatusOK, "true")
	}
	responds(t, "PUT", register, node("c"), http.StatusInsufficientStorage, "limits.nodes is 2")
	responds(t, "PUT", register, node("b"), http.StatusOK, "true")
	responds(t, "PUT", url+"/v1/catalog/deregister", `{"Node":"a"}`, http.StatusOK, "true")
	responds(t, "PUT", register, node("c"), http.StatusOK, "true")
}

func TestLimitsRefuseLocksAndNodesBeyondTheBytesOfTheStateAndAcceptThoseThere(t *testing.T) {
	url := limited(t, func(l *capacity.Quota) { l.StateBytes = 200 << 10 })
	var made [2]struct{ ID string }
	for i := range made {
		need.OK(t, json.Unmarshal([]byte(responds(t, "PUT", url+"/v1/session/create", "{}", http.StatusOK, "ID")), &made[i]))
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
	responds(t, "PUT", register, node("first", 100), http.StatusOK, "true")
	responds(t, "PUT", lock("first", holder), "", http.StatusOK, `"acquired":true`)
	for i := range 10 {
		responds(t, "PUT", lock(fmt.Sprint("l", i), holder), value, http.StatusOK, `"acquired":true`)
	}
	for i := range 40 {
		responds(t, "PUT", register, node(fmt.Sprint("n", i), 4000), http.StatusOK, "true")
		if status, text := request(t, "PUT", register, node("more", 4000)); status == http.StatusInsufficientStorage {
			expect.That(t, strings.Contains(text, "limits.state-bytes is 204800"), "the refusal says %q, want limits.state-bytes in it", text)
			break
		}
		responds(t, "PUT", deregister, `{"Node":"more"}`, http.StatusOK, "true")
	}
	full := func(method, target, body string) {
		t.Helper()
		responds(t, method, target, body, http.StatusInsufficientStorage, "limits.state-bytes is 204800")
	}
	full("PUT", register, node("first", 5000))
	full("PUT", register, `{"Node":"first","Address":"10.0.0.1","Check":{"Name":"c","Status":"passing"}}`)
	full("PUT", lock("another", holder), "")
	full("PUT", lock("first", other)+"&wait=10s", "")
	full("PUT", url+"/v1/kv/k", "v")
	responds(t, "PUT", register, node("first", 100), http.StatusOK, "true")
	responds(t, "PUT", lock("first", holder), "", http.StatusOK, `"acquired":true`)
	responds(t, "PUT", lock("first", other), "", http.StatusInsufficientStorage, "")
	responds(t, "POST", url+"/eureka/apps/A", `{"instance":{"instanceId":"i","app":"A","hostName":"h","ipAddr":"10.0.0.1","status":"UP","dataCenterInfo":{"name":"MyOwn"}}}`, http.StatusNoContent, "")
	responds(t, "PUT", url+"/eureka/apps/A/i", "", http.StatusOK, "")
	responds(t, "DELETE", lock("l0", holder), "", http.StatusOK, "")
	for i := range 3 {
		responds(t, "PUT", deregister, fmt.Sprintf(`{"Node":"n%d"}`, i), http.StatusOK, "true")
	}
	responds(t, "PUT", lock("another", holder), "", http.StatusOK, `"acquired":true`)
	responds(t, "PUT", register, node("first", 5000), http.StatusOK, "true")
}

func request(t *testing.T, method, url, body string) (status int, text string) {
	t.Helper()
	r := need.Got(http.NewRequest(method, url, strings.NewReader(body)))(t)
	r.Header.Set("Content-Type", "application/json")
	resp := need.Got(http.DefaultClient.Do(r))(t)
	defer resp.Body.Close()
	b := need.Got(io.ReadAll(resp.Body))(t)
	return resp.StatusCode, string(b)
}

func TestFullDiskRefusesWhatAddsAndNothingElse(t *testing.T) {
	c := oneNode(t)
	n := opened(t, c)
	var free atomic.Int64
	free.Store(int64(c.MinFree))
	n.disk.Free = func(string) (int64, error) { return free.Load(), nil }
	defer started(t, n)()
	url := readyURL(t, n)
	const instance = `{"instance":{"instanceId":"i","app":"A","hostName":"h","ipAddr":"10.0.0.1","status":"UP","dataCenterInfo":{"name":"MyOwn"}}}`
	if status, text := request(t, "POST", url+"/eureka/apps/A", instance); status != http.StatusNoContent {
		t.Fatalf("register: %d %s", status, text)
	}
	if status, text := request(t, "PUT", url+"/v1/kv/k", "v"); status != http.StatusOK {
		t.Fatalf("put: %d %s", status, text)
	}
	free.Store(int64(c.MinFree) - 1)
	n.disk.Measure()
	for _, tt := range []struct {
		method, path, body string
		want               int
	}{
		{"POST", "/eureka/apps/A", instance, http.StatusInsufficientStorage},
		{"PUT", "/v1/kv/other", "v", http.StatusInsufficientStorage},
		{"PUT", "/v1/session/create", "{}", http.StatusInsufficientStorage},
		{"PUT", "/eureka/apps/A/i", "", http.StatusOK},
		{"GET", "/eureka/apps/A/i", "", http.StatusOK},
		{"GET", "/v1/kv/k", "", http.StatusOK},
		{"GET", "/readyz", "", http.StatusOK},
		{"DELETE", "/v1/kv/k", "", http.StatusOK},
		{"DELETE", "/eureka/apps/A/i", "", http.StatusOK},
	} {
		status, text := request(t, tt.method, url+tt.path, tt.body)
		if status != tt.want || tt.want == http.StatusInsufficientStorage && strings.HasPrefix(tt.path, "/v1") && !strings.Contains(text, "data.min-free") {
			t.Errorf("%s %s: %d %q, want %d", tt.method, tt.path, status, text, tt.want)
		}
	}
	free.Store(int64(c.MinFree))
	n.disk.Measure()
	if status, text := request(t, "POST", url+"/eureka/apps/A", instance); status != http.StatusNoContent {
		t.Errorf("register, when there is room again: %d %s", status, text)
	}
}
