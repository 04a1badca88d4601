package httpdtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// Target is a server that the suite tests. No other client changes it meanwhile; instances that were registered there
// before do not matter.
type Target struct {
	// URL is its scheme and host; Eureka's resources are under /eureka, /eureka/v1, /eureka/v2 and /v2.
	URL string
	// Consensus means that reads are linearizable unless they ask for less. A server without consensus serves reads
	// from its own state, and refuses to promise more.
	Consensus bool
}

// RunSuite tests Eureka's protocol as its clients and peers see it, and what Rollcall adds for watchers and operators.
// It does not test durability, freshness across nodes or faults.
func RunSuite(t *testing.T, target Target) {
	t.Cleanup(transport.CloseIdleConnections)
	for _, group := range [][]check{traps, writes, reads, renewals, overrides, registrations, batches, others, freshness, watches, acts} {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) { c.run(t, newClient(t, target)) })
		}
	}
}

// check is one behaviour.
type check struct {
	name string
	run  func(t *testing.T, c *client)
}

// client calls the server under test. Like the protocol's clients it follows no redirect and decompresses nothing.
type client struct {
	t         *testing.T
	base      string // scheme and host
	app       string // the client's own application, upper case
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

// response is the server's response to a call.
type response struct {
	status int
	header http.Header
	length int64
	body   string
}

// do performs a call; headers are name, value, name, value.
func (c *client) do(method, path, body string, headers ...string) response {
	c.t.Helper()
	req, err := http.NewRequest(method, c.base+path, strings.NewReader(body))
	need.That(c.t, err == nil, "%s %s: %v", method, path, err)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := transport.RoundTrip(req)
	need.That(c.t, err == nil, "%s %s: %v", method, path, err)
	defer resp.Body.Close()
	read, err := io.ReadAll(resp.Body)
	need.That(c.t, err == nil, "%s %s: read the response: %v", method, path, err)
	return response{status: resp.StatusCode, header: resp.Header, length: resp.ContentLength, body: string(read)}
}

// want performs a call and fails unless the status is right.
func (c *client) want(status int, method, path, body string, headers ...string) response {
	c.t.Helper()
	resp := c.do(method, path, body, headers...)
	need.That(c.t, resp.status == status, "%s %s: got %d %q, want %d", method, path, resp.status, resp.body, status)
	return resp
}

// wantEmpty is want, for a response that must have no body.
func (c *client) wantEmpty(status int, method, path, body string, headers ...string) response {
	c.t.Helper()
	resp := c.want(status, method, path, body, headers...)
	need.That(c.t, resp.length == 0 && resp.body == "", "%s %s: got a body of length %d %q, want Content-Length: 0", method, path, resp.length, resp.body)
	return resp
}

// getJSON performs a GET that must succeed and returns the document.
func (c *client) getJSON(path string, headers ...string) map[string]any {
	c.t.Helper()
	resp := c.want(http.StatusOK, http.MethodGet, path, "", append(headers, "Accept", "application/json")...)
	kind := resp.header.Get("Content-Type")
	need.That(c.t, strings.HasPrefix(kind, "application/json"), "GET %s: Content-Type is %q, want application/json", path, kind)
	return decode(c.t, resp.body)
}

func decode(t *testing.T, body string) map[string]any {
	t.Helper()
	var doc map[string]any
	decoder := json.NewDecoder(strings.NewReader(body))
	decoder.UseNumber()
	err := decoder.Decode(&doc)
	need.That(t, err == nil, "not JSON: %v in %.300q", err, body)
	return doc
}

// at walks into nested objects.
func at(t *testing.T, doc any, keys ...string) any {
	t.Helper()
	for _, key := range keys {
		object, ok := doc.(map[string]any)
		need.That(t, ok, "no object around %q in %v", key, doc)
		doc, ok = object[key]
		need.That(t, ok, "no %q in %v", key, object)
	}
	return doc
}

// text is at, for a string.
func text(t *testing.T, doc any, keys ...string) string {
	t.Helper()
	s, ok := at(t, doc, keys...).(string)
	need.That(t, ok, "%v is %v, want a string", keys, at(t, doc, keys...))
	return s
}

// registration is the body of a registration. Zero fields are left out.
type registration struct {
	app, id    string
	status     string
	overridden string
	dirty      int64
	vip        string
	interval   int // seconds; 0 with a duration means 30
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
	set("leaseInfo", map[string]any{"renewalIntervalInSecs": cmp.Or(r.interval, 30), "durationInSecs": r.duration}, r.duration != 0)
	set("metadata", r.metadata, r.metadata != nil)
	body, err := json.Marshal(map[string]any{"instance": instance})
	if err != nil {
		panic(fmt.Sprintf("httpdtest: %v", err)) // maps of texts and numbers
	}
	return string(body)
}

// register registers an instance of the client's application, UP unless said otherwise.
func (c *client) register(r registration, headers ...string) {
	c.t.Helper()
	r.app, r.status = cmp.Or(r.app, c.app), cmp.Or(r.status, "UP")
	c.wantEmpty(http.StatusNoContent, http.MethodPost, "/eureka/apps/"+url.PathEscape(r.app), r.json(), append(headers, "Content-Type", "application/json")...)
}

// path returns the path of an instance of the client's application, with a suffix.
func (c *client) path(id, rest string) string {
	return "/eureka/apps/" + c.app + "/" + url.PathEscape(id) + rest
}

// status returns the shown status of an instance of the client's application.
func (c *client) status(id string) string {
	c.t.Helper()
	return text(c.t, c.getJSON(c.path(id, "")), "instance", "status")
}

// wantStatus fails unless an instance is shown with a status.
func (c *client) wantStatus(id, want string) {
	c.t.Helper()
	need.Equal(c.t, c.status(id), want, "status of %s is", id)
}

// replication marks a call as a peer's.
var replication = []string{"x-netflix-discovery-replication", "true"}

// The required and the optional keys of an instance. Strict clients refuse a document with one key more, others fail
// with one less.
var (
	fullRequired = []string{"hostName", "app", "ipAddr", "status", "overriddenStatus", "port", "securePort", "countryId",
		"dataCenterInfo", "leaseInfo", "metadata", "isCoordinatingDiscoveryServer", "lastUpdatedTimestamp", "lastDirtyTimestamp"}
	fullOptional = []string{"instanceId", "sid", "appGroupName", "homePageUrl", "statusPageUrl", "healthCheckUrl",
		"secureHealthCheckUrl", "vipAddress", "secureVipAddress", "actionType", "asgName"}
	compactRequired = []string{"app", "ipAddr", "dataCenterInfo", "hostName", "status", "lastUpdatedTimestamp", "port", "securePort"}
	compactOptional = []string{"instanceId", "vipAddress", "secureVipAddress", "actionType", "asgName"}
)

// wantKeys fails unless an object has exactly these keys.
func wantKeys(t *testing.T, object map[string]any, want ...string) {
	t.Helper()
	slices.Sort(want)
	expect.Slice(t, slices.Sorted(maps.Keys(object)), want, "keys are")
}

// checkKeys fails unless an object has all of required and nothing beyond optional.
func checkKeys(t *testing.T, object map[string]any, required, optional []string) {
	t.Helper()
	for _, key := range required {
		_, ok := object[key]
		expect.That(t, ok, "key %q is missing in %v", key, object)
	}
	for key := range object {
		expect.That(t, slices.Contains(required, key) || slices.Contains(optional, key), "key %q is not of the protocol", key)
	}
}

func checkApplications(t *testing.T, doc map[string]any, compact bool) {
	t.Helper()
	wantKeys(t, doc, "applications")
	applications := doc["applications"].(map[string]any)
	wantKeys(t, applications, "versions__delta", "apps__hashcode", "application")
	text(t, applications, "versions__delta")
	text(t, applications, "apps__hashcode")
	list, ok := applications["application"].([]any)
	need.That(t, ok, "application is %v, want an array", applications["application"])
	for _, app := range list {
		checkApplication(t, app, compact)
	}
}

func checkApplication(t *testing.T, app any, compact bool) {
	t.Helper()
	object := app.(map[string]any)
	wantKeys(t, object, "name", "instance")
	instances, ok := object["instance"].([]any)
	need.That(t, ok, "instance is %v, want an array", object["instance"])
	for _, instance := range instances {
		checkInstance(t, instance, compact)
		expect.That(t, text(t, instance, "app") == object["name"], "instance of %s in application %s", text(t, instance, "app"), object["name"])
	}
}

func checkInstance(t *testing.T, instance any, compact bool) {
	t.Helper()
	object := instance.(map[string]any)
	if compact {
		checkKeys(t, object, compactRequired, compactOptional)
	} else {
		checkKeys(t, object, fullRequired, fullOptional)
		wantKeys(t, object["leaseInfo"].(map[string]any), "renewalIntervalInSecs", "durationInSecs", "registrationTimestamp",
			"lastRenewalTimestamp", "evictionTimestamp", "serviceUpTimestamp")
		for _, key := range []string{"overriddenStatus", "isCoordinatingDiscoveryServer", "lastUpdatedTimestamp", "lastDirtyTimestamp"} {
			text(t, object, key)
		}
	}
	expect.That(t, slices.Contains(registry.StatusWords(), text(t, object, "status")), "status is %v", object["status"])
	for _, port := range []string{"port", "securePort"} {
		wantKeys(t, object[port].(map[string]any), "$", "@enabled")
	}
	center := object["dataCenterInfo"].(map[string]any)
	if center["name"] == "Amazon" {
		wantKeys(t, center, "@class", "name", "metadata")
	} else {
		wantKeys(t, center, "@class", "name")
	}
}
