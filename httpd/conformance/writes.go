package conformance

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// writes are registration, cancel and metadata.
var writes = []check{
	{"ANewRegistrationIsShownAtOnce", func(t *testing.T, c *client) {
		c.register(registration{id: "i1"})
		c.wantStatus("i1", "UP")
		if _, listed := statuses(t, c.getJSON("/eureka/apps"))[c.app+"/i1"]; !listed {
			t.Error("the full list lacks the instance")
		}
	}},
	{"ALowerCaseApplicationIsTheSameAsItsUpperCase", func(t *testing.T, c *client) {
		lower := strings.ToLower(c.app)
		c.wantEmpty(http.StatusNoContent, http.MethodPost, "/eureka/apps/"+lower, registration{app: lower, id: "i1"}.json(), "Content-Type", "application/json")
		c.wantEmpty(http.StatusOK, http.MethodPut, "/eureka/apps/"+lower+"/i1", "")
		c.wantStatus("i1", "UP")
	}},
	{"IdsMayHoldWhateverCanBeEscaped", func(t *testing.T, c *client) {
		for _, id := range []string{"host:app:8080", "test#1.[3.?]!", "with space", "a/b", "häuser", "per%cent", "plus+plus", "semi;colon"} {
			c.register(registration{id: id})
			c.wantEmpty(http.StatusOK, http.MethodPut, c.path(id, "?status=UP"), "")
			if got := text(t, c.getJSON(c.path(id, "")), "instance", "instanceId"); got != id {
				t.Errorf("GET of %q shows %q", id, got)
			}
			if got := text(t, c.getJSON("/eureka/instances/"+url.PathEscape(id)), "instance", "instanceId"); got != id {
				t.Errorf("GET instances of %q shows %q", id, got)
			}
			c.wantEmpty(http.StatusOK, http.MethodDelete, c.path(id, ""), "")
		}
	}},
	{"PostToDeltaRegistersAnApplicationOfThatName", func(t *testing.T, c *client) {
		c.wantEmpty(http.StatusNoContent, http.MethodPost, "/eureka/apps/delta", registration{app: "DELTA", id: c.app}.json(), "Content-Type", "application/json")
		c.want(http.StatusOK, http.MethodGet, "/eureka/apps/DELTA", "")
		c.wantEmpty(http.StatusOK, http.MethodDelete, "/eureka/apps/delta/"+c.app, "")
	}},
	{"CancelOfAnInstanceIs200AndOfAnUnknownOne404", func(t *testing.T, c *client) {
		c.register(registration{id: "i1"})
		c.wantEmpty(http.StatusOK, http.MethodDelete, c.path("i1", ""), "")
		c.wantEmpty(http.StatusNotFound, http.MethodGet, c.path("i1", ""), "")
		c.wantEmpty(http.StatusNotFound, http.MethodDelete, c.path("i1", ""), "")
		c.wantEmpty(http.StatusNotFound, http.MethodGet, "/eureka/apps/"+c.app, "")
	}},
	{"CancelIsInTheDeltaAndInNoOtherAnswer", func(t *testing.T, c *client) {
		c.register(registration{id: "i1", vip: c.app})
		c.getJSON("/eureka/vips/" + c.app)
		c.wantEmpty(http.StatusOK, http.MethodDelete, c.path("i1", ""), "")
		for _, path := range []string{"/eureka/apps", "/eureka/vips/" + c.app, "/eureka/svips/" + c.app} {
			if _, listed := statuses(t, c.getJSON(path))[c.app+"/i1"]; listed {
				t.Errorf("GET %s still lists the instance", path)
			}
		}
		action := ""
		eachInstance(t, c.getJSON("/eureka/apps/delta"), func(key string, instance any) {
			if key == c.app+"/i1" {
				action = text(t, instance, "actionType")
			}
		})
		if action != "DELETED" {
			t.Errorf("the delta's action is %q, want DELETED", action)
		}
	}},
	{"MetadataIsMergedAndFirstValuesCount", func(t *testing.T, c *client) {
		c.register(registration{id: "i1", metadata: map[string]string{"kept": "old", "changed": "old"}})
		c.wantEmpty(http.StatusOK, http.MethodPut, c.path("i1", "/metadata?changed=new&added=a+b%26c&added=second"), "")
		got := fmt.Sprint(at(t, c.getJSON(c.path("i1", "")), "instance", "metadata"))
		if want := "map[added:a b&c changed:new kept:old]"; got != want {
			t.Errorf("metadata is %s, want %s", got, want)
		}
		c.wantEmpty(http.StatusNotFound, http.MethodPut, c.path("unknown", "/metadata?a=b"), "")
	}},
	{"LeaseTimesOutOfBoundsAreClampedAndSaid", func(t *testing.T, c *client) {
		body := registration{app: c.app, id: "i1", status: "UP", duration: 1}.json()
		var shown answer
		c.eventually("it is looked at before its lease ends", func() bool {
			a := c.wantEmpty(http.StatusNoContent, http.MethodPost, "/eureka/apps/"+c.app, body, "Content-Type", "application/json")
			if got, want := a.header.Get("X-Rollcall-Lease-Clamped"), "durationInSecs=3"; got != want {
				t.Errorf("X-Rollcall-Lease-Clamped is %q, want %q", got, want)
			}
			shown = c.do(http.MethodGet, c.path("i1", ""), "", "Accept", "application/json")
			return shown.status == http.StatusOK
		})
		if got := fmt.Sprint(at(t, decode(t, shown.body), "instance", "leaseInfo", "durationInSecs")); got != "3" {
			t.Errorf("durationInSecs is %s, want 3", got)
		}
		c.do(http.MethodDelete, c.path("i1", ""), "") // or its end changes lists while others are compared
	}},
}

// registrations are the answers to bodies that are no registration.
var registrations = []check{
	{"RegistrationsAreValidatedInOrder", func(t *testing.T, c *client) {
		center := `"dataCenterInfo":{"@class":"com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo","name":"MyOwn"}`
		for _, row := range []struct{ name, instance, want string }{
			{"nothing", ``, "Missing instanceId"},
			{"no host name", `"instanceId":"i"`, "Missing hostname"},
			{"no address", `"instanceId":"i","hostName":"h"`, "Missing ip address"},
			{"no application", `"instanceId":"i","hostName":"h","ipAddr":"1.2.3.4"`, ""},
			{"another application", `"instanceId":"i","hostName":"h","ipAddr":"1.2.3.4","app":"pay"`, "Mismatched appName, expecting " + c.app + " but was PAY"},
			{"no data center", `"instanceId":"i","hostName":"h","ipAddr":"1.2.3.4","app":"` + c.app + `"`, "Missing dataCenterInfo"},
			{"no data center name", `"instanceId":"i","hostName":"h","ipAddr":"1.2.3.4","app":"` + c.app + `","dataCenterInfo":{"@class":"com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo"}`, "Missing dataCenterInfo Name"},
			{"empty host name", `"instanceId":"i","hostName":"","ipAddr":"1.2.3.4","app":"` + c.app + `",` + center, "Missing hostname"},
		} {
			a := c.want(http.StatusBadRequest, http.MethodPost, "/eureka/apps/"+c.app, `{"instance":{`+row.instance+`}}`, "Content-Type", "application/json")
			if row.want != "" && a.body != row.want {
				t.Errorf("%s: got %q, want %q", row.name, a.body, row.want)
			}
		}
		c.wantEmpty(http.StatusNotFound, http.MethodGet, "/eureka/apps/"+c.app, "")
	}},
	{"AnInstanceWithoutIdIsNamedByItsHost", func(t *testing.T, c *client) {
		body := `{"instance":{"hostName":"h.example","ipAddr":"1.2.3.4","app":"` + c.app + `","dataCenterInfo":{"@class":"com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo","name":"MyOwn"}}}`
		c.wantEmpty(http.StatusNoContent, http.MethodPost, "/eureka/apps/"+c.app, body, "Content-Type", "application/json")
		c.wantEmpty(http.StatusOK, http.MethodPut, c.path("h.example", ""), "")
	}},
	{"UnreadableBodiesAreRefusedInTheirOwnForm", func(t *testing.T, c *client) {
		for _, row := range []struct{ contentType, body, want string }{
			{"application/json", `{"instance":`, `{"error": "cannot parse request body"}`},
			{"application/json", ``, `{"error": "cannot parse request body"}`},
			{"application/json; charset=UTF-8", `{"application":{}}`, `{"error": "cannot parse request body"}`},
			{"application/xml", `<instance>`, `<error><message>cannot parse request body</message></error>`},
			{"application/xml", ``, `<error><message>cannot parse request body</message></error>`},
			{"text/xml;charset=utf-8", `<application/>`, `<error><message>cannot parse request body</message></error>`},
		} {
			a := c.want(http.StatusBadRequest, http.MethodPost, "/eureka/apps/"+c.app, row.body, "Content-Type", row.contentType)
			if a.body != row.want {
				t.Errorf("%s %q: got %q, want %q", row.contentType, row.body, a.body, row.want)
			}
		}
	}},
	{"ABodyOfNoOrAnEmptyTypeIsRecognizedByItsBeginning", func(t *testing.T, c *client) {
		asXML := `<instance><instanceId>x</instanceId><hostName>h</hostName><app>` + c.app + `</app><ipAddr>1.2.3.4</ipAddr><dataCenterInfo class="x"><name>MyOwn</name></dataCenterInfo></instance>`
		for _, contentType := range []string{"", "application/x-www-form-urlencoded", "text/plain"} {
			headers := []string{"Content-Type", contentType}
			if contentType == "" {
				headers = nil
			}
			c.wantEmpty(http.StatusNoContent, http.MethodPost, "/eureka/apps/"+c.app, registration{app: c.app, id: "j"}.json(), headers...)
			c.wantEmpty(http.StatusNoContent, http.MethodPost, "/eureka/apps/"+c.app, "\n "+asXML, headers...)
		}
		c.want(http.StatusUnsupportedMediaType, http.MethodPost, "/eureka/apps/"+c.app, asXML, "Content-Type", "image/png")
	}},
	{"AnUnknownStatusWordIsAcceptedAndCannotBeRenewed", func(t *testing.T, c *client) {
		c.register(registration{id: "i1", status: "SLEEPING"})
		c.wantStatus("i1", "UNKNOWN")
		c.wantEmpty(http.StatusNotFound, http.MethodPut, c.path("i1", ""), "")
	}},
}

// registerFixtures registers what real clients send and reads it back in both forms.
func registerFixtures(t *testing.T, target Target) {
	names, err := fs.Glob(target.Fixtures, "register-*")
	if err != nil || len(names) == 0 {
		t.Fatalf("no register-* fixtures: %v", err)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) { registerFixture(t, newClient(t, target), target.Fixtures, name) })
	}
}

func registerFixture(t *testing.T, c *client, fixtures fs.FS, name string) {
	body, err := fs.ReadFile(fixtures, name)
	if err != nil {
		t.Fatal(err)
	}
	f := eureka.Format{XML: strings.HasSuffix(name, ".xml")}
	kind := map[bool]string{true: "application/xml", false: "application/json"}[f.XML]
	sent, err := eureka.DecodeInstance(body, f)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	key := sent.Instance.Key()
	path := "/eureka/apps/" + key.App + "/" + url.PathEscape(key.ID)
	c.do(http.MethodDelete, path, "")
	c.wantEmpty(http.StatusNoContent, http.MethodPost, "/eureka/apps/"+key.App, string(body), "Content-Type", kind)
	for _, f := range []eureka.Format{{}, {XML: true}} {
		accept := map[bool]string{true: "application/xml", false: "application/json"}[f.XML]
		shown, err := eureka.DecodeInstance([]byte(c.want(http.StatusOK, http.MethodGet, path, "", "Accept", accept).body), f)
		if err != nil {
			t.Fatalf("the answer in %s: %v", accept, err)
		}
		if got, want := shown.Instance.Key(), key; got != want {
			t.Errorf("%s shows %v, want %v", accept, got, want)
		}
		if got, want := shown.Instance.Status, sent.Instance.Status; got != want {
			t.Errorf("%s shows status %v, want %v", accept, got, want)
		}
		if got, want := shown.Instance.IPAddr, sent.Instance.IPAddr; got != want {
			t.Errorf("%s shows address %v, want %v", accept, got, want)
		}
		if list := c.want(http.StatusOK, http.MethodGet, "/eureka/apps", "", "Accept", accept).body; !strings.Contains(list, key.ID) {
			t.Errorf("the list in %s lacks %s", accept, key.ID)
		}
	}
	c.do(http.MethodDelete, path, "")
}

// registerSpellings registers in all spellings that clients and attackers were seen to use.
func registerSpellings(t *testing.T, target Target) {
	file, err := fs.ReadFile(target.Fixtures, "decoder-matrix.json")
	if err != nil {
		t.Fatal(err)
	}
	var matrix struct {
		Variants []struct{ Name, Body, Server string }
	}
	if err := json.Unmarshal(file, &matrix); err != nil || len(matrix.Variants) == 0 {
		t.Fatalf("decoder-matrix.json: %v, %d variants", err, len(matrix.Variants))
	}
	for _, row := range matrix.Variants {
		t.Run(row.Name, func(t *testing.T) {
			c := newClient(t, target)
			c.do(http.MethodDelete, "/eureka/apps/ORDERS/i1", "")
			a := c.do(http.MethodPost, "/eureka/apps/ORDERS", row.Body, "Content-Type", "application/json")
			if got := fmt.Sprint(a.status); !strings.HasPrefix(row.Server, got) {
				t.Errorf("got %s %q, want %s", got, a.body, row.Server)
			}
			c.want(http.StatusOK, http.MethodGet, "/eureka/apps", "") // whatever was accepted can be shown
			c.do(http.MethodDelete, "/eureka/apps/ORDERS/i1", "")
		})
	}
}

// renewals are heartbeats and the comparison of lastDirtyTimestamp.
var renewals = []check{
	{"TimestampsOfRenewalsAreCompared", func(t *testing.T, c *client) {
		for _, row := range []struct {
			query          string
			client, peer   int
			peerOverridden string
		}{
			{"", 200, 200, ""},
			{"?lastDirtyTimestamp=2000", 200, 200, ""},
			{"?lastDirtyTimestamp=3000", 404, 404, ""},
			{"?lastDirtyTimestamp=1000", 200, 409, ""},
			{"?status=UP&lastDirtyTimestamp=2000&lastDirtyTimestamp=9000", 200, 200, ""},
		} {
			c.register(registration{id: "i1", dirty: 2000})
			c.wantEmpty(row.client, http.MethodPut, c.path("i1", row.query), "")
			a := c.want(row.peer, http.MethodPut, c.path("i1", row.query), "", append(replication, "Accept", "application/json")...)
			if row.peer != http.StatusConflict {
				continue
			}
			if got := text(t, decode(t, a.body), "instance", "lastDirtyTimestamp"); got != "2000" {
				t.Errorf("the conflict shows lastDirtyTimestamp %s, want 2000", got)
			}
		}
	}},
	{"OnlyTheExactWordMarksReplication", func(t *testing.T, c *client) {
		c.register(registration{id: "i1", dirty: 2000})
		for _, word := range []string{"True", "1", "yes", "false"} {
			c.wantEmpty(http.StatusOK, http.MethodPut, c.path("i1", "?lastDirtyTimestamp=1000"), "", replication[0], word)
		}
	}},
	{"AReplicatedRenewalThatIsNewerBringsItsOverride", func(t *testing.T, c *client) {
		c.register(registration{id: "i1", dirty: 2000})
		c.wantEmpty(http.StatusNotFound, http.MethodPut, c.path("i1", "?lastDirtyTimestamp=3000&overriddenstatus=OUT_OF_SERVICE"), "", replication...)
		if got := text(t, c.getJSON(c.path("i1", "")), "instance", "overriddenStatus"); got != "OUT_OF_SERVICE" {
			t.Errorf("overriddenStatus is %s, want OUT_OF_SERVICE", got)
		}
	}},
	{"AClientsOverriddenstatusIsIgnored", func(t *testing.T, c *client) {
		c.register(registration{id: "i1", dirty: 2000})
		c.wantEmpty(http.StatusNotFound, http.MethodPut, c.path("i1", "?lastDirtyTimestamp=3000&overriddenstatus=OUT_OF_SERVICE"), "")
		if got := text(t, c.getJSON(c.path("i1", "")), "instance", "overriddenStatus"); got != "UNKNOWN" {
			t.Errorf("overriddenStatus is %s, want UNKNOWN", got)
		}
	}},
	{"BodiesAreIgnoredWhereThereShouldBeNone", func(t *testing.T, c *client) {
		c.register(registration{id: "i1"})
		for _, rest := range []string{"", "/status?value=OUT_OF_SERVICE", "/metadata?a=b"} {
			c.wantEmpty(http.StatusOK, http.MethodPut, c.path("i1", rest), "{}", "Content-Type", "application/json")
			c.wantEmpty(http.StatusOK, http.MethodPut, c.path("i1", rest), "not a document", "Content-Type", "image/png")
		}
		c.wantEmpty(http.StatusOK, http.MethodDelete, c.path("i1", "/status"), "{}", "Content-Type", "application/json")
		c.wantEmpty(http.StatusOK, http.MethodDelete, c.path("i1", ""), "", "Content-Type", "application/json")
	}},
}

// overrides are the life of a status override.
var overrides = []check{
	{"AnOverrideHoldsUntilItIsDeleted", func(t *testing.T, c *client) {
		c.register(registration{id: "i1", dirty: 1000})
		c.wantEmpty(http.StatusOK, http.MethodPut, c.path("i1", "/status?value=OUT_OF_SERVICE&lastDirtyTimestamp=1000"), "")
		c.wantStatus("i1", "OUT_OF_SERVICE")
		c.register(registration{id: "i1", dirty: 2000})
		c.wantStatus("i1", "OUT_OF_SERVICE")
		c.wantEmpty(http.StatusOK, http.MethodPut, c.path("i1", ""), "")
		c.wantEmpty(http.StatusOK, http.MethodDelete, c.path("i1", "/status?value=DOWN"), "")
		c.wantStatus("i1", "DOWN")
		c.register(registration{id: "i1", dirty: 3000})
		c.wantStatus("i1", "UP")
	}},
	{"WithoutAFallbackTheInstanceMustRegisterAgain", func(t *testing.T, c *client) {
		c.register(registration{id: "i1", dirty: 1000})
		c.wantEmpty(http.StatusOK, http.MethodPut, c.path("i1", "/status?value=OUT_OF_SERVICE"), "")
		c.wantEmpty(http.StatusOK, http.MethodDelete, c.path("i1", "/status"), "")
		c.wantStatus("i1", "UNKNOWN")
		c.wantEmpty(http.StatusNotFound, http.MethodPut, c.path("i1", ""), "")
		c.register(registration{id: "i1", dirty: 2000})
		c.wantStatus("i1", "UP")
		c.wantEmpty(http.StatusOK, http.MethodPut, c.path("i1", ""), "")
	}},
	{"OverridesOfUnknownInstancesAre404", func(t *testing.T, c *client) {
		c.wantEmpty(http.StatusNotFound, http.MethodPut, c.path("i1", "/status?value=UP"), "")
		c.wantEmpty(http.StatusNotFound, http.MethodDelete, c.path("i1", "/status"), "")
	}},
	{"AWrongStatusWordIs400AndChangesNothing", func(t *testing.T, c *client) {
		c.register(registration{id: "i1"})
		for _, query := range []string{"", "?value=", "?value=up", "?value=AWAY", "?value=DOWN&lastDirtyTimestamp=x"} {
			c.want(http.StatusBadRequest, http.MethodPut, c.path("i1", "/status"+query), "")
		}
		c.want(http.StatusBadRequest, http.MethodDelete, c.path("i1", "/status?value=AWAY"), "")
		c.wantStatus("i1", "UP")
	}},
	{"RepeatingAnOverrideIs200", func(t *testing.T, c *client) {
		c.register(registration{id: "i1"})
		for range 2 {
			c.wantEmpty(http.StatusOK, http.MethodPut, c.path("i1", "/status?value=OUT_OF_SERVICE"), "")
		}
		for range 2 {
			c.wantEmpty(http.StatusOK, http.MethodDelete, c.path("i1", "/status"), "")
		}
	}},
	{"OverridesAreListed", func(t *testing.T, c *client) {
		c.register(registration{id: "id-of-" + c.app})
		c.wantEmpty(http.StatusOK, http.MethodPut, c.path("id-of-"+c.app, "/status?value=OUT_OF_SERVICE"), "")
		for _, path := range []string{"/serverinfo/statusoverrides", "/eureka/serverinfo/statusoverrides", "/eureka/v2/serverinfo/statusoverrides"} {
			a := c.want(http.StatusOK, http.MethodGet, path, "")
			if got := a.header.Get("Content-Type"); got != "application/json" {
				t.Errorf("GET %s: Content-Type is %q, want application/json", path, got)
			}
			if got := text(t, decode(t, a.body), "id-of-"+c.app); got != "OUT_OF_SERVICE" {
				t.Errorf("GET %s shows %s, want OUT_OF_SERVICE", path, got)
			}
		}
	}},
	{"AClientsStatusChangesAreJudgedByTheRules", func(t *testing.T, c *client) {
		for i, row := range []struct{ before, reported, client, peer string }{
			{"UP", "OUT_OF_SERVICE", "UP", "OUT_OF_SERVICE"},
			{"OUT_OF_SERVICE", "UP", "OUT_OF_SERVICE", "UP"},
			{"DOWN", "UP", "UP", "UP"},
			{"STARTING", "UP", "UP", "UP"},
			{"UP", "DOWN", "DOWN", "DOWN"},
			{"UP", "STARTING", "STARTING", "STARTING"},
		} {
			for origin, want := range map[string]string{"client": row.client, "peer": row.peer} {
				id := fmt.Sprintf("%s%d", origin, i)
				headers := map[string][]string{"client": nil, "peer": replication}[origin]
				c.register(registration{id: id, status: row.before, dirty: 1000}, headers...)
				c.register(registration{id: id, status: row.reported, dirty: 2000}, headers...)
				if got := c.status(id); got != want {
					t.Errorf("%s: %s after %s becomes %s, want %s", origin, row.reported, row.before, got, want)
				}
			}
		}
	}},
}

// batch posts items as a peer does and returns the answer.
func (c *client) batch(items ...string) map[string]any {
	c.t.Helper()
	body := `{"replicationList":[` + strings.Join(items, ",") + `]}`
	a := c.want(http.StatusOK, http.MethodPost, "/eureka/peerreplication/batch/", body, "Content-Type", "application/json", "Accept", "application/json")
	return decode(c.t, a.body)
}

// codes are the statuses of a batch's answer.
func codes(t *testing.T, doc map[string]any) string {
	var found []string
	for _, response := range at(t, doc, "responseList").([]any) {
		found = append(found, fmt.Sprint(at(t, response, "statusCode")))
	}
	return strings.Join(found, " ")
}

// item is an item of a batch; more are further members.
func (c *client) item(action, id, more string) string {
	return `{"appName":"` + c.app + `","id":"` + id + `","action":"` + action + `"` + more + `}`
}

func (c *client) registerItem(id string, dirty int64) string {
	instance := strings.TrimSuffix(strings.TrimPrefix(registration{app: c.app, id: id, status: "UP", dirty: dirty}.json(), `{"instance":`), "}")
	return c.item("Register", id, fmt.Sprintf(`,"lastDirtyTimestamp":%d,"status":"UP","instanceInfo":%s`, dirty, instance))
}

// batches are what peers send.
var batches = []check{
	{"EveryItemHasItsOwnStatus", func(t *testing.T, c *client) {
		c.register(registration{id: "here", dirty: 2000})
		doc := c.batch(
			c.registerItem("new", 1000),
			c.item("Heartbeat", "new", `,"lastDirtyTimestamp":1000,"status":"UP"`),
			c.item("Heartbeat", "here", `,"lastDirtyTimestamp":1000,"status":"UP"`),
			c.item("Heartbeat", "here", `,"lastDirtyTimestamp":3000,"status":"UP"`),
			c.item("Heartbeat", "unknown", `,"lastDirtyTimestamp":1000,"status":"UP"`),
			c.item("StatusUpdate", "new", `,"lastDirtyTimestamp":1000,"status":"OUT_OF_SERVICE"`),
			c.item("DeleteStatusOverride", "new", `,"lastDirtyTimestamp":1000,"status":"UNKNOWN"`),
			c.item("Cancel", "here", ``),
			c.item("Cancel", "here", ``),
		)
		if got, want := codes(t, doc), "200 200 409 404 404 200 200 200 404"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}},
	{"AConflictBringsTheStoredInstance", func(t *testing.T, c *client) {
		c.register(registration{id: "i1", dirty: 2000})
		doc := c.batch(c.item("Heartbeat", "i1", `,"lastDirtyTimestamp":1000,"status":"UP"`))
		entity := at(t, at(t, doc, "responseList").([]any)[0], "responseEntity")
		if got := text(t, entity, "lastDirtyTimestamp"); got != "2000" {
			t.Errorf("lastDirtyTimestamp is %s, want 2000", got)
		}
	}},
	{"OneBadItemSpoilsNoOther", func(t *testing.T, c *client) {
		doc := c.batch(
			c.registerItem("before", 1000),
			c.item("Register", "empty", ``),
			c.item("Register", "invalid", `,"instanceInfo":{"instanceId":"invalid","app":"`+c.app+`"}`),
			`{"appName":"`+c.app+`","id":"no-action"}`,
			c.item("StatusUpdate", "before", `,"lastDirtyTimestamp":1000,"status":"AWAY"`),
			c.item("DeleteStatusOverride", "before", `,"status":"UP"`),
			c.registerItem("after", 1000),
		)
		if got, want := codes(t, doc), "200 500 400 500 500 500 200"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		c.wantStatus("before", "UP")
		c.wantStatus("after", "UP")
	}},
	{"ItemsAreAppliedInOrder", func(t *testing.T, c *client) {
		doc := c.batch(c.registerItem("i1", 1000), c.item("Cancel", "i1", ``), c.item("Heartbeat", "i1", ``), c.registerItem("i1", 2000))
		if got, want := codes(t, doc), "200 200 404 200"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		c.wantStatus("i1", "UP")
	}},
	{"ItemsNameApplicationsInAnyCase", func(t *testing.T, c *client) {
		c.register(registration{id: "i1"})
		doc := c.batch(`{"appName":"` + strings.ToLower(c.app) + `","id":"i1","action":"Heartbeat"}`)
		if got := codes(t, doc); got != "200" {
			t.Errorf("got %s, want 200", got)
		}
	}},
	{"AnUnreadableBatchIs400", func(t *testing.T, c *client) {
		for _, body := range []string{``, `{`, `[]`, `{"replicationList":null}`, `{"replicationList":[{"appName":"A","id":"i","action":"Explode"}]}`, `<batch/>`} {
			a := c.do(http.MethodPost, "/eureka/peerreplication/batch/", body, "Content-Type", "application/json")
			if a.status != http.StatusBadRequest && body != `{"replicationList":null}` {
				t.Errorf("%q: got %d, want 400", body, a.status)
			}
		}
	}},
}

// others are the endpoints that no client needs to work.
var others = []check{
	{"AutoScalingGroupsDoNotExistOutsideAWS", func(_ *testing.T, c *client) {
		c.wantEmpty(http.StatusBadRequest, http.MethodPut, "/eureka/asg/group/status?value=ENABLED", "")
	}},
	{"TheServersStatusIsShownInBothForms", func(t *testing.T, c *client) {
		doc := c.getJSON("/eureka/status")
		wantKeys(t, doc, "generalStats", "applicationStats", "instanceInfo")
		wantKeys(t, at(t, doc, "generalStats").(map[string]any), "environment", "num-of-cpus", "total-avail-memory", "current-memory-usage", "server-uptime")
		wantKeys(t, at(t, doc, "applicationStats").(map[string]any), "registered-replicas", "available-replicas", "unavailable-replicas")
		checkInstance(t, at(t, doc, "instanceInfo"), false)
		if got := text(t, doc, "instanceInfo", "isCoordinatingDiscoveryServer"); got != "true" {
			t.Errorf("isCoordinatingDiscoveryServer is %s, want true", got)
		}
		body := c.want(http.StatusOK, http.MethodGet, "/eureka/status", "").body
		if !strings.HasPrefix(body, "<com.netflix.eureka.util.StatusInfo>") {
			t.Errorf("the XML form begins %.60q", body)
		}
	}},
	{"OtherMethodsAre405WithTheAllowedOnes", func(t *testing.T, c *client) {
		for _, row := range []struct{ method, path, allow string }{
			{http.MethodPost, "/eureka/apps", "GET, HEAD"},
			{http.MethodDelete, "/eureka/apps/delta", "GET, HEAD, POST"},
			{http.MethodPut, "/eureka/apps/" + c.app, "GET, HEAD, POST"},
			{http.MethodPost, "/eureka/apps/" + c.app + "/i1", "GET, HEAD, PUT, DELETE"},
			{http.MethodGet, "/eureka/apps/" + c.app + "/i1/status", "PUT, DELETE"},
			{http.MethodGet, "/eureka/peerreplication/batch/", "POST"},
		} {
			a := c.wantEmpty(http.StatusMethodNotAllowed, row.method, row.path, "")
			if got := a.header.Get("Allow"); got != row.allow {
				t.Errorf("%s %s: Allow is %q, want %q", row.method, row.path, got, row.allow)
			}
		}
	}},
}
