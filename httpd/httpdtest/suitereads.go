package httpdtest

import (
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// traps are details that break an unmodified client or peer if a server gets them wrong.
var traps = []check{
	{"Trap01SlashesNeverRedirect", func(t *testing.T, c *client) {
		for _, path := range []string{"/eureka/apps", "/eureka/apps/", "//eureka//apps", "/eureka/v2/apps//", "/eureka/apps/delta/", "/eureka//apps//delta"} {
			c.want(http.StatusOK, http.MethodGet, path, "")
		}
		for _, path := range []string{"/eureka/peerreplication/batch", "/eureka/peerreplication/batch/", "/eureka/v2/peerreplication//batch/"} {
			c.want(http.StatusOK, http.MethodPost, path, `{"replicationList":[]}`, "Content-Type", "application/json")
		}
		c.want(http.StatusNoContent, http.MethodPost, "/eureka//apps/"+c.app+"/", registration{app: c.app, id: "i1"}.json(), "Content-Type", "application/json")
		c.wantEmpty(http.StatusOK, http.MethodPut, "//eureka/apps//"+c.app+"/i1/", "")
	}},
	{"Trap02HeartbeatAnswersHaveNoBody", func(t *testing.T, c *client) {
		c.register(registration{id: "i1"})
		for _, body := range []string{"", "{}"} {
			kind := []string{"Content-Type", "application/json", "Accept", "application/json"}
			c.wantEmpty(http.StatusOK, http.MethodPut, c.path("i1", "?status=UP&lastDirtyTimestamp=1"), body, kind...)
			c.wantEmpty(http.StatusNotFound, http.MethodPut, c.path("unknown", "?status=UP&lastDirtyTimestamp=1"), body, kind...)
			c.wantEmpty(http.StatusBadRequest, http.MethodPut, c.path("i1", "?lastDirtyTimestamp=soon"), body, kind...)
		}
	}},
	{"Trap03DeltaIsAlwaysServed", func(t *testing.T, c *client) {
		applications := at(t, c.getJSON("/eureka/apps/delta"), "applications", "application")
		_, ok := applications.([]any)
		expect.That(t, ok, "application is %v, want an array", applications)
	}},
	{"Trap04RegistrationIsAnswered204", func(t *testing.T, c *client) {
		body := registration{app: c.app, id: "i1", dirty: 2000}.json()
		c.wantEmpty(http.StatusNoContent, http.MethodPost, "/eureka/apps/"+c.app, body, "Content-Type", "application/json")
		older := registration{app: c.app, id: "i1", dirty: 1000}.json()
		c.wantEmpty(http.StatusNoContent, http.MethodPost, "/eureka/apps/"+c.app, older, "Content-Type", "application/json")
	}},
	{"Trap05ABatchOf250ItemsIsAnsweredInTime", func(t *testing.T, c *client) {
		const inTime = 200 * time.Millisecond // how long a peer waits
		const rounds = 100                    // at least one must be in time: the suite shares its machine with others
		fastest := map[int]time.Duration{1: math.MaxInt64, 250: math.MaxInt64}
		for range rounds {
			for items := range fastest {
				began := time.Now()
				c.want(http.StatusOK, http.MethodPost, "/eureka/peerreplication/batch/", mixedBatch(c.app, items), "Content-Type", "application/json")
				fastest[items] = min(fastest[items], time.Since(began))
			}
			if fastest[250] <= inTime {
				return
			}
		}
		// If a disk is too slow for any to be in time, a batch is still not slower than one item: both are written
		// once.
		expect.That(t, fastest[250]-fastest[1] <= inTime, "the fastest of %d batches of 250 items took %v, and that of 1 item %v, want at most %v more", rounds, fastest[250], fastest[1], inTime)
	}},
	{"Trap06And07DocumentsHaveExactlyTheKeysOfTheProtocol", func(t *testing.T, c *client) {
		c.register(registration{id: "own", vip: c.app, dirty: 1, metadata: map[string]string{"zone": "a"}})
		c.register(registration{id: "amazon", vip: c.app, amazon: true})
		c.wantEmpty(http.StatusOK, http.MethodPut, c.path("own", "/status?value=OUT_OF_SERVICE"), "")
		for _, path := range []string{"/eureka/apps", "/eureka/apps/delta", "/eureka/vips/" + c.app, "/eureka/svips/" + c.app} {
			checkApplications(t, c.getJSON(path), false)
			checkApplications(t, c.getJSON(path, "X-Eureka-Accept", "compact"), true)
		}
		checkApplication(t, at(t, c.getJSON("/eureka/apps/"+c.app), "application"), false)
		checkInstance(t, at(t, c.getJSON(c.path("own", "")), "instance"), false)
		checkInstance(t, at(t, c.getJSON("/eureka/instances/own"), "instance"), false)
	}},
	{"Trap08PortsAreNumbersAndTheirFlagsTexts", func(t *testing.T, c *client) {
		c.register(registration{id: "i1"})
		instance := at(t, c.getJSON(c.path("i1", "")), "instance")
		for name, want := range map[string]string{"port": "map[$:8080 @enabled:true]", "securePort": "map[$:443 @enabled:false]"} {
			port := at(t, instance, name)
			expect.That(t, fmt.Sprint(port) == want, "%s is %v, want %s", name, port, want)
			_ = text(t, port, "@enabled")
			_, isText := at(t, port, "$").(string)
			expect.That(t, !isText, "the number of %s is a text", name)
		}
	}},
	{"Trap09DataCentersBeginWithTheirClass", func(t *testing.T, c *client) {
		c.register(registration{id: "own"})
		c.register(registration{id: "amazon", amazon: true})
		for id, begin := range map[string]string{
			"own":    `"dataCenterInfo":{"@class":"com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo","name":"MyOwn"}`,
			"amazon": `"dataCenterInfo":{"@class":"com.netflix.appinfo.AmazonInfo","name":"Amazon","metadata":{`,
		} {
			resp := c.want(http.StatusOK, http.MethodGet, c.path(id, ""), "", "Accept", "application/json")
			expect.That(t, strings.Contains(resp.body, begin), "%s lacks %s in %s", id, begin, resp.body)
		}
	}},
	{"Trap10TheVersionOfAFullFetchIsTheTextOne", func(t *testing.T, c *client) {
		expect.Equal(t, text(t, c.getJSON("/eureka/apps"), "applications", "versions__delta"), "1", "versions__delta is")
		expect.That(t, text(t, c.getJSON("/eureka/apps/delta"), "applications", "versions__delta") != "-1", "a delta's versions__delta is -1")
	}},
	{"Trap11ListsAreArrays", func(t *testing.T, c *client) {
		c.register(registration{id: "i1", vip: c.app})
		_, ok := at(t, c.getJSON("/eureka/vips/nobody-has-this"), "applications", "application").([]any)
		expect.That(t, ok, "an empty list of applications is no array")
		list, ok := at(t, c.getJSON("/eureka/apps/"+c.app), "application", "instance").([]any)
		expect.That(t, ok && len(list) == 1, "a list of one instance is %v, want an array of one", list)
		list, ok = at(t, c.getJSON("/eureka/vips/"+c.app), "applications", "application").([]any)
		expect.That(t, ok && len(list) == 1, "a list of one application is %v, want an array of one", list)
	}},
	{"Trap12BatchAnswersHaveExactlyTheKeysOfTheProtocol", func(t *testing.T, c *client) {
		c.register(registration{id: "i1", dirty: 2000})
		doc := c.batch(`{"appName":"` + c.app + `","id":"i1","lastDirtyTimestamp":1000,"status":"UP","action":"Heartbeat"}`)
		wantKeys(t, doc, "responseList")
		response := doc["responseList"].([]any)[0].(map[string]any)
		wantKeys(t, response, "statusCode", "responseEntity")
		checkInstance(t, response["responseEntity"], false)
		c.want(http.StatusBadRequest, http.MethodPost, "/eureka/peerreplication/batch/", `{"replicationList":[],"more":1}`, "Content-Type", "application/json")
	}},
	{"Trap13ADeltaLeadsToItsHash", func(t *testing.T, c *client) {
		c.register(registration{id: "stays"})
		c.register(registration{id: "changes"})
		c.register(registration{id: "goes"})
		before := statuses(t, c.getJSON("/eureka/apps"))
		c.register(registration{id: "comes", status: "STARTING"})
		c.wantEmpty(http.StatusOK, http.MethodPut, c.path("changes", "/status?value=OUT_OF_SERVICE"), "")
		c.wantEmpty(http.StatusOK, http.MethodDelete, c.path("goes", ""), "")
		delta := c.getJSON("/eureka/apps/delta")
		eachInstance(t, delta, func(key string, instance any) { // as a client applies it
			if before[key] = text(t, instance, "status"); text(t, instance, "actionType") == "DELETED" {
				delete(before, key)
			}
		})
		expect.Equal(t, hashOf(before), text(t, delta, "applications", "apps__hashcode"), "the hash of the old list with the delta is")
		after := c.getJSON("/eureka/apps")
		expect.Deep(t, statuses(t, after), before, "the full list is")
		expect.Equal(t, text(t, after, "applications", "apps__hashcode"), hashOf(before), "the full list's hash is")
	}},
	{"Trap14ClientsWithoutIdentityAreNotStarved", func(t *testing.T, c *client) {
		for range 50 {
			c.want(http.StatusOK, http.MethodGet, "/eureka/apps/delta", "", "User-Agent", "")
		}
	}},
}

// mixedBatch returns a batch of n items with all actions on instances of one application.
func mixedBatch(app string, n int) string {
	var items []string
	for i := range n {
		id := fmt.Sprintf("i%d", i/5)
		common := fmt.Sprintf(`"appName":"%s","id":"%s","lastDirtyTimestamp":%d,"status":"UP"`, app, id, 1000+i)
		switch i % 5 {
		case 0:
			instance := strings.TrimSuffix(strings.TrimPrefix(registration{app: app, id: id, dirty: 1000}.json(), `{"instance":`), "}")
			items = append(items, `{`+common+`,"instanceInfo":`+instance+`,"action":"Register"}`)
		case 1, 2:
			items = append(items, `{`+common+`,"action":"Heartbeat"}`)
		case 3:
			items = append(items, `{`+common+`,"action":"StatusUpdate"}`)
		case 4:
			items = append(items, `{"appName":"`+app+`","id":"`+id+`","action":"Cancel"}`)
		}
	}
	return `{"replicationList":[` + strings.Join(items, ",") + `]}`
}

// statuses returns the status of every instance of a document, by application and id.
func statuses(t *testing.T, doc map[string]any) map[string]string {
	found := map[string]string{}
	eachInstance(t, doc, func(key string, instance any) { found[key] = text(t, instance, "status") })
	return found
}

func eachInstance(t *testing.T, doc map[string]any, visit func(key string, instance any)) {
	for _, app := range at(t, doc, "applications", "application").([]any) {
		for _, instance := range at(t, app, "instance").([]any) {
			id, ok := instance.(map[string]any)["instanceId"].(string)
			if !ok { // it need not give one of its own
				id = text(t, instance, "hostName")
			}
			visit(text(t, app, "name")+"/"+id, instance)
		}
	}
}

// hashOf returns the apps__hashcode of a list.
func hashOf(list map[string]string) string {
	counts := map[string]int{}
	for _, status := range list {
		counts[status]++
	}
	hash := ""
	for _, status := range slices.Sorted(maps.Keys(counts)) {
		hash += fmt.Sprintf("%s_%d_", status, counts[status])
	}
	return hash
}

// reads covers queries, with the negotiation of their format.
var reads = []check{
	{"WithoutJSONInAcceptAnswersAreXML", func(t *testing.T, c *client) {
		c.register(registration{id: "i1", vip: c.app})
		for _, path := range []string{"/eureka/apps", "/eureka/apps/delta", "/eureka/apps/" + c.app, c.path("i1", ""), "/eureka/instances/i1", "/eureka/vips/" + c.app, "/eureka/svips/" + c.app, "/eureka/status"} {
			for accept, want := range map[string]string{
				"": "application/xml", "*/*": "application/xml", "text/html": "application/xml", "application/xml": "application/xml",
				"application/json": "application/json", "application/*+json": "application/json", "text/html, application/json;q=0.1": "application/json",
			} {
				resp := c.want(http.StatusOK, http.MethodGet, path, "", "Accept", accept)
				expect.Equal(t, resp.header.Get("Content-Type"), want, "GET %s with Accept %q: Content-Type is", path, accept)
				begin := map[bool]string{true: "<", false: "{"}[want == "application/xml"]
				expect.That(t, strings.HasPrefix(resp.body, begin), "GET %s with Accept %q: the body begins %.20q, want %q", path, accept, resp.body, begin)
				expect.That(t, !strings.HasPrefix(resp.body, "<?xml"), "GET %s: the answer has an XML declaration", path)
			}
		}
	}},
	{"AllBasePathsAreTheSame", func(t *testing.T, c *client) {
		c.register(registration{id: "i1"})
		for _, base := range []string{"/eureka", "/eureka/v2", "/eureka/v1", "/v2"} {
			c.want(http.StatusOK, http.MethodGet, base+"/apps", "")
			c.want(http.StatusOK, http.MethodGet, base+"/apps/"+c.app+"/i1", "")
			c.wantEmpty(http.StatusOK, http.MethodPut, base+"/apps/"+c.app+"/i1", "")
			c.want(http.StatusOK, http.MethodPost, base+"/peerreplication/batch/", `{"replicationList":[]}`, "Content-Type", "application/json")
		}
	}},
	{"Version1WritesOtherStatusesAsDownInXMLOnly", func(t *testing.T, c *client) {
		c.register(registration{id: "i1"})
		c.wantEmpty(http.StatusOK, http.MethodPut, c.path("i1", "/status?value=OUT_OF_SERVICE"), "")
		rest := "/apps/" + c.app + "/i1"
		body := c.want(http.StatusOK, http.MethodGet, "/eureka/v1"+rest, "").body
		expect.That(t, strings.Contains(body, "<status>DOWN</status>"), "version 1 in XML: %s", body)
		body = c.want(http.StatusOK, http.MethodGet, "/eureka/v2"+rest, "").body
		expect.That(t, strings.Contains(body, "<status>OUT_OF_SERVICE</status>"), "version 2 in XML: %s", body)
		expect.Equal(t, text(t, c.getJSON("/eureka/v1"+rest), "instance", "status"), "OUT_OF_SERVICE", "version 1 in JSON:")
	}},
	{"CompactIsHonouredByListsAndNotByInstances", func(t *testing.T, c *client) {
		c.register(registration{id: "i1"})
		for _, word := range []string{"compact", "COMPACT"} {
			checkApplication(t, at(t, c.getJSON("/eureka/apps/"+c.app, "X-Eureka-Accept", word), "application"), true)
			checkInstance(t, at(t, c.getJSON(c.path("i1", ""), "X-Eureka-Accept", word), "instance"), false)
		}
		checkApplication(t, at(t, c.getJSON("/eureka/apps/"+c.app, "X-Eureka-Accept", "small"), "application"), false)
	}},
	{"AnswersAreCompressedOnlyWhenAskedFor", func(t *testing.T, c *client) {
		for i := range 10 {
			c.register(registration{id: fmt.Sprintf("i%d", i)})
		}
		for _, path := range []string{"/eureka/apps", "/eureka/apps/delta", "/eureka/apps/" + c.app} {
			for _, refusal := range []string{"identity", "deflate", "gzip;q=0"} {
				resp := c.want(http.StatusOK, http.MethodGet, path, "", "Accept-Encoding", refusal)
				expect.That(t, resp.header.Get("Content-Encoding") == "", "GET %s with Accept-Encoding %q is compressed", path, refusal)
			}
			for _, wish := range []string{"gzip", "deflate, gzip;q=1.0, *;q=0.5", "GZIP"} {
				var resp response
				plain := c.unchanged(path, func() {
					resp = c.want(http.StatusOK, http.MethodGet, path, "", "Accept-Encoding", wish)
				})
				need.That(t, resp.header.Get("Content-Encoding") == "gzip", "GET %s with Accept-Encoding %q is not compressed", path, wish)
				r, err := gzip.NewReader(strings.NewReader(resp.body))
				need.OKf(t, err, "gzip")
				unpacked, err := io.ReadAll(r)
				need.OKf(t, err, "gzip")
				expect.That(t, string(unpacked) == plain, "GET %s: the compressed answer differs", path)
				expect.That(t, resp.length == int64(len(resp.body)), "GET %s: Content-Length is %d for %d bytes", path, resp.length, len(resp.body))
			}
		}
		resp := c.want(http.StatusOK, http.MethodGet, "/eureka/vips/nobody", "", "Accept-Encoding", "gzip")
		expect.Equal(t, resp.header.Get("Content-Encoding"), "", "a short answer's Content-Encoding is")
	}},
	{"RegionsAreIgnored", func(t *testing.T, c *client) {
		c.register(registration{id: "i1", vip: c.app})
		for _, path := range []string{"/eureka/apps", "/eureka/apps/delta", "/eureka/apps/" + c.app, "/eureka/vips/" + c.app} {
			var got string
			want := c.unchanged(path, func() {
				got = c.want(http.StatusOK, http.MethodGet, path+"?regions=us-east-1,eu-west-1", "").body
			})
			expect.That(t, got == want, "GET %s with regions differs", path)
		}
	}},
	{"VIPsMatchPartsExactlyAndUnknownOnesAreEmpty", func(t *testing.T, c *client) {
		c.register(registration{id: "i1", vip: "first-" + c.app + ",second-" + c.app})
		for vip, want := range map[string]int{"first-" + c.app: 1, "second-" + c.app: 1, "FIRST-" + c.app: 0, "first-" + c.app + ",second-" + c.app: 0, "none": 0} {
			for _, kind := range []string{"vips", "svips"} {
				doc := c.getJSON("/eureka/" + kind + "/" + vip)
				expect.Equal(t, len(statuses(t, doc)), want, "%s/%s: the number of instances is", kind, vip)
				expect.Equal(t, text(t, doc, "applications", "versions__delta"), "-1", "%s/%s: versions__delta is", kind, vip)
				expect.Equal(t, text(t, doc, "applications", "apps__hashcode"), hashOf(statuses(t, doc)), "%s/%s: the hash of what is listed is", kind, vip)
			}
		}
	}},
	{"UnknownApplicationsAndInstancesAre404AndEmpty", func(t *testing.T, c *client) {
		c.wantEmpty(http.StatusNotFound, http.MethodGet, "/eureka/apps/"+c.app, "")
		c.wantEmpty(http.StatusNotFound, http.MethodGet, c.path("i1", ""), "")
		c.wantEmpty(http.StatusNotFound, http.MethodGet, "/eureka/instances/"+c.app, "")
		c.wantEmpty(http.StatusNotFound, http.MethodGet, "/eureka/nothing", "")
	}},
	{"AllStatusesAreListed", func(t *testing.T, c *client) {
		for _, status := range registry.StatusWords() {
			c.register(registration{id: status, status: status})
		}
		found := statuses(t, c.getJSON("/eureka/apps"))
		for _, status := range registry.StatusWords() {
			expect.Equal(t, found[c.app+"/"+status], status, "it is listed as")
		}
	}},
	{"HeadIsGetWithoutABody", func(t *testing.T, c *client) {
		c.register(registration{id: "i1"})
		full := c.want(http.StatusOK, http.MethodGet, "/eureka/apps/"+c.app, "", "Accept", "application/json")
		head := c.want(http.StatusOK, http.MethodHead, "/eureka/apps/"+c.app, "", "Accept", "application/json")
		expect.That(t, head.length == full.length && head.body == "", "HEAD has length %d and body %q, want %d and none", head.length, head.body, full.length)
	}},
}

// unchanged returns the body of the uncompressed response to a GET, the same before and after another read. It
// repeats the read if the body changed: leases end, and changes leave the delta, at any time.
func (c *client) unchanged(path string, read func()) (body string) {
	c.t.Helper()
	c.eventually("GET "+path+" is answered alike twice", func() bool {
		body = c.want(http.StatusOK, http.MethodGet, path, "").body
		read()
		return c.want(http.StatusOK, http.MethodGet, path, "").body == body
	})
	return body
}

// freshness checks how reads say how fresh they are, and which freshness clients may ask for.
var freshness = []check{
	{"ReadsSayHowFreshTheyAre", func(t *testing.T, c *client) {
		c.register(registration{id: "i1", vip: c.app})
		usual := map[bool]string{true: "linearizable", false: "stale"}[c.consensus]
		for _, path := range c.reads() {
			for query, want := range map[string]string{"": usual, "?consistency=stale": "stale"} {
				resp := c.want(http.StatusOK, http.MethodGet, path+query, "")
				expect.Equal(t, resp.header.Get("X-Rollcall-Consistency"), want, "GET %s%s: X-Rollcall-Consistency is", path, query)
				expect.That(t, resp.header.Get("X-Rollcall-Index") != "", "GET %s%s: no X-Rollcall-Index", path, query)
				expect.Equal(t, resp.header.Get("X-Rollcall-Age") != "", want == "stale", "GET %s%s: X-Rollcall-Age is there:", path, query)
			}
		}
	}},
	{"MoreThanTheServerCanKnowIsRefusedWithASentence", func(t *testing.T, c *client) {
		c.register(registration{id: "i1", vip: c.app})
		for _, path := range append(c.reads(), "/v1/rollcall/watch") {
			for _, word := range []string{"linearizable", "leader"} {
				c.wantConsistency(t, path, word)
			}
		}
	}},
	{"AnUnknownConsistencyIs400", func(_ *testing.T, c *client) {
		for _, path := range append(c.reads(), "/v1/rollcall/watch") {
			c.want(http.StatusBadRequest, http.MethodGet, path+"?consistency=fresh", "")
		}
	}},
}

// reads returns reads of an application of the client that has an instance i1.
func (c *client) reads() []string {
	return []string{
		"/eureka/apps", "/eureka/apps/delta", "/eureka/apps/" + c.app, c.path("i1", ""), "/eureka/vips/" + c.app,
		"/serverinfo/statusoverrides", "/v1/rollcall/apps", "/v1/rollcall/events", "/v1/rollcall/settings", c.ownPath("i1", "/explain"),
	}
}

// wantConsistency asks for a consistency that needs consensus.
func (c *client) wantConsistency(t *testing.T, path, word string) {
	t.Helper()
	if c.consensus {
		if path != "/v1/rollcall/watch" { // this one never ends
			c.want(http.StatusOK, http.MethodGet, path+"?consistency="+word, "")
		}
		return
	}
	resp := c.want(http.StatusNotImplemented, http.MethodGet, path+"?consistency="+word, "")
	expect.That(t, strings.Contains(resp.body, "consistency=stale"), "GET %s as %s: the answer %q does not say what to ask for", path, word, resp.body)
}
