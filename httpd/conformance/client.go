package conformance

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// client calls the server under test. It follows no redirect and decompresses nothing, as the
// clients of the protocol do not.
type client struct {
	t         *testing.T
	base      string // scheme and host
	app       string // an application of its own, upper case
	consensus bool   // see Target
}

var transport = &http.Transport{DisableCompression: true}

// clock makes application names differ between runs against one server.
var clock atomic.Int64

func newClient(t *testing.T, target Target) *client {
	clock.CompareAndSwap(0, time.Now().UnixMilli())
	app := "CONFORM" + strings.ToUpper(strconv.FormatInt(clock.Add(1), 36))
	return &client{t: t, base: target.URL, app: app, consensus: target.Consensus}
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	length int64
	body   string
}

// do performs a call; headers are name, value, name, value.
func (c *client) do(method, path, body string, headers ...string) answer {
	c.t.Helper()
	req, err := http.NewRequest(method, c.base+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	read, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatalf("%s %s: read the answer: %v", method, path, err)
	}
	return answer{status: resp.StatusCode, header: resp.Header, length: resp.ContentLength, body: string(read)}
}

// want performs a call and fails unless the status is right.
func (c *client) want(status int, method, path, body string, headers ...string) answer {
	c.t.Helper()
	a := c.do(method, path, body, headers...)
	if a.status != status {
		c.t.Fatalf("%s %s: got %d %q, want %d", method, path, a.status, a.body, status)
	}
	return a
}

// wantEmpty is want, for an answer that must have no body.
func (c *client) wantEmpty(status int, method, path, body string, headers ...string) answer {
	c.t.Helper()
	a := c.want(status, method, path, body, headers...)
	if a.length != 0 || a.body != "" {
		c.t.Fatalf("%s %s: got a body of length %d %q, want Content-Length: 0", method, path, a.length, a.body)
	}
	return a
}

// getJSON performs a GET that must succeed and returns the document.
func (c *client) getJSON(path string, headers ...string) map[string]any {
	c.t.Helper()
	a := c.want(http.StatusOK, http.MethodGet, path, "", append(headers, "Accept", "application/json")...)
	if kind := a.header.Get("Content-Type"); !strings.HasPrefix(kind, "application/json") {
		c.t.Fatalf("GET %s: Content-Type is %q, want application/json", path, kind)
	}
	return decode(c.t, a.body)
}

func decode(t *testing.T, body string) map[string]any {
	t.Helper()
	var doc map[string]any
	decoder := json.NewDecoder(strings.NewReader(body))
	decoder.UseNumber()
	if err := decoder.Decode(&doc); err != nil {
		t.Fatalf("not JSON: %v in %.300q", err, body)
	}
	return doc
}

// at walks into nested objects.
func at(t *testing.T, doc any, keys ...string) any {
	t.Helper()
	for _, key := range keys {
		object, ok := doc.(map[string]any)
		if !ok {
			t.Fatalf("no object around %q in %v", key, doc)
		}
		if doc, ok = object[key]; !ok {
			t.Fatalf("no %q in %v", key, object)
		}
	}
	return doc
}

// text is at, for a string.
func text(t *testing.T, doc any, keys ...string) string {
	t.Helper()
	s, ok := at(t, doc, keys...).(string)
	if !ok {
		t.Fatalf("%v is %v, want a string", keys, at(t, doc, keys...))
	}
	return s
}

// registration is the body of a registration. The zero value of a field leaves it out.
type registration struct {
	app, id    string
	status     string
	overridden string
	dirty      int64
	vip        string
	duration   int
	metadata   map[string]string
	amazon     bool
}

func (r registration) json() string {
	instance := map[string]any{
		"instanceId": r.id, "hostName": "host." + r.id, "app": r.app, "ipAddr": "10.0.0.1",
		"port":           map[string]any{"$": 8080, "@enabled": "true"},
		"securePort":     map[string]any{"$": 443, "@enabled": "false"},
		"dataCenterInfo": map[string]any{"@class": "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo", "name": "MyOwn"},
	}
	if r.amazon {
		instance["dataCenterInfo"] = map[string]any{"@class": "com.netflix.appinfo.AmazonInfo", "name": "Amazon", "metadata": map[string]any{"instance-id": r.id}}
	}
	set := func(key string, value any, given bool) {
		if given {
			instance[key] = value
		}
	}
	set("status", r.status, r.status != "")
	set("overriddenStatus", r.overridden, r.overridden != "")
	set("lastDirtyTimestamp", r.dirty, r.dirty != 0)
	set("vipAddress", r.vip, r.vip != "")
	set("secureVipAddress", r.vip, r.vip != "")
	set("leaseInfo", map[string]any{"renewalIntervalInSecs": 30, "durationInSecs": r.duration}, r.duration != 0)
	set("metadata", r.metadata, r.metadata != nil)
	body, err := json.Marshal(map[string]any{"instance": instance})
	if err != nil {
		panic(fmt.Sprintf("conformance: %v", err)) // maps of texts and numbers
	}
	return string(body)
}

// register registers an instance of the client's application, UP unless said otherwise.
func (c *client) register(r registration, headers ...string) {
	c.t.Helper()
	if r.app == "" {
		r.app = c.app
	}
	if r.status == "" {
		r.status = "UP"
	}
	c.wantEmpty(http.StatusNoContent, http.MethodPost, "/eureka/apps/"+url.PathEscape(r.app), r.json(), append(headers, "Content-Type", "application/json")...)
}

// path is the path of an instance of the client's application, with what follows it.
func (c *client) path(id, rest string) string {
	return "/eureka/apps/" + c.app + "/" + url.PathEscape(id) + rest
}

// status is the status of an instance of the client's application, as it is shown.
func (c *client) status(id string) string {
	c.t.Helper()
	return text(c.t, c.getJSON(c.path(id, "")), "instance", "status")
}

// wantStatus fails unless an instance is shown with a status.
func (c *client) wantStatus(id, want string) {
	c.t.Helper()
	if got := c.status(id); got != want {
		c.t.Fatalf("status of %s is %s, want %s", id, got, want)
	}
}

// replication marks a call as a peer's.
var replication = []string{"x-netflix-discovery-replication", "true"}
