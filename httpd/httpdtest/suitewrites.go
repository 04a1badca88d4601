package httpdtest

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// writes covers registration, cancel and metadata.
var writes = []check{
	{"ANewRegistrationIsShownAtOnce", func(t *testing.T, c *client) {
		c.register(registration{id: "i1"})
		c.wantStatus("i1", "UP")
		_, listed := statuses(t, c.getJSON("/eureka/apps"))[c.app+"/i1"]
		expect.That(t, listed, "the full list lacks the instance")
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
			expect.Equal(t, text(t, c.getJSON(c.path(id, "")), "instance", "instanceId"), id, "GET shows")
			expect.Equal(t, text(t, c.getJSON("/eureka/instances/"+url.PathEscape(id)), "instance", "instanceId"), id, "GET instances shows")
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
			_, listed := statuses(t, c.getJSON(path))[c.app+"/i1"]
			expect.That(t, !listed, "GET %s still lists the instance", path)
		}
		expect.Equal(t, c.inDelta("i1"), "DELETED", "the delta's action is")
	}},
	{"MetadataIsMergedAndFirstValuesCount", func(t *testing.T, c *client) {
		c.register(registration{id: "i1", metadata: map[string]string{"kept": "old", "changed": "old"}})
		c.wantEmpty(http.StatusOK, http.MethodPut, c.path("i1", "/metadata?changed=new&added=a+b%26c&added=second"), "")
		expect.Equal(t, fmt.Sprint(at(t, c.getJSON(c.path("i1", "")), "instance", "metadata")), "map[added:a b&c changed:new kept:old]", "metadata is")
		c.wantEmpty(http.StatusNotFound, http.MethodPut, c.path("unknown", "/metadata?a=b"), "")
	}},
	{"LeaseTimesOutOfBoundsAreClampedAndSaid", func(t *testing.T, c *client) {
		body := registration{app: c.app, id: "i1", status: "UP", duration: 1}.json()
		var shown response
		c.eventually("it is looked at before its lease ends", func() bool {
			resp := c.wantEmpty(http.StatusNoContent, http.MethodPost, "/eureka/apps/"+c.app, body, "Content-Type", "application/json")
			expect.Equal(t, resp.header.Get("X-Rollcall-Lease-Clamped"), "durationInSecs=3", "X-Rollcall-Lease-Clamped is")
			shown = c.do(http.MethodGet, c.path("i1", ""), "", "Accept", "application/json")
			return shown.status == http.StatusOK
		})
		expect.Equal(t, fmt.Sprint(at(t, decode(t, shown.body), "instance", "leaseInfo", "durationInSecs")), "3", "durationInSecs is")
		// otherwise its end would change lists while others are compared
		c.do(http.MethodDelete, c.path("i1", ""), "")
	}},
}

// registrations checks the responses to good and bad bodies of registrations.
var registrations = []check{
	{"TheLaterOfTwoRegistrationsByAClientCounts", func(t *testing.T, c *client) {
		c.register(registration{id: "i1", dirty: 2000})
		c.register(registration{id: "i1", dirty: 1000, status: "DOWN"})
		c.wantStatus("i1", "DOWN")
		c.register(registration{id: "i1", dirty: 2000}) // sent once more
		c.wantStatus("i1", "DOWN")
		c.wantEmpty(http.StatusOK, http.MethodPut, c.path("i1", "?status=DOWN&lastDirtyTimestamp=1000"), "")
		// which shows that it is alive
		c.wantEmpty(http.StatusNotFound, http.MethodPut, c.path("i1", "?status=UP&lastDirtyTimestamp=2000"), "")
		c.register(registration{id: "i1", dirty: 2000})
		c.wantStatus("i1", "UP")
		c.register(registration{id: "i2", dirty: 2000}, replication...)
		c.register(registration{id: "i2", dirty: 1000, status: "DOWN"}, replication...)
		c.wantStatus("i2", "UP")
	}},
	{"APortOfMinusOneIsShownAsItCame", func(t *testing.T, c *client) {
		for _, enabled := range []string{"true", "false"} {
			body := strings.Replace(registration{app: c.app, id: enabled, status: "UP"}.json(), `{"$":8080,"@enabled":"true"}`, `{"$":-1,"@enabled":"`+enabled+`"}`, 1)
			c.wantEmpty(http.StatusNoContent, http.MethodPost, "/eureka/apps/"+c.app, body, "Content-Type", "application/json")
			port := at(t, c.getJSON(c.path(enabled, "")), "instance", "port")
			expect.Equal(t, fmt.Sprint(port), "map[$:-1 @enabled:"+enabled+"]", "the port is")
			xml := c.want(http.StatusOK, http.MethodGet, c.path(enabled, ""), "", "Accept", "application/xml")
			expect.That(t, strings.Contains(xml.body, `<port enabled="`+enabled+`">-1</port>`), "in XML: %s", xml.body)
		}
	}},
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
			resp := c.want(http.StatusBadRequest, http.MethodPost, "/eureka/apps/"+c.app, `{"instance":{`+row.instance+`}}`, "Content-Type", "application/json")
			expect.That(t, row.want == "" || resp.body == row.want, "%s: got %q, want %q", row.name, resp.body, row.want)
		}
		c.wantEmpty(http.StatusNotFound, http.MethodGet, "/eureka/apps/"+c.app, "")
	}},
	{"AnIdWithASlashIsRegisteredWithAWarning", func(t *testing.T, c *client) {
		for id, warned := range map[string]bool{"plain": false, "a/b": true} {
			resp := c.wantEmpty(http.StatusNoContent, http.MethodPost, "/eureka/apps/"+c.app, registration{app: c.app, id: id, status: "UP"}.json(), "Content-Type", "application/json")
			expect.Equal(t, strings.Contains(resp.header.Get("X-Rollcall-Warning"), "%2F"), warned, "%s is warned of", id)
		}
		c.want(http.StatusNotFound, http.MethodPut, "/eureka/apps/"+c.app+"/a/b", "")
		c.wantEmpty(http.StatusOK, http.MethodPut, "/eureka/apps/"+c.app+"/a%2Fb", "")
		c.wantEmpty(http.StatusOK, http.MethodDelete, "/eureka/apps/"+c.app+"/a%2Fb", "")
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
			resp := c.want(http.StatusBadRequest, http.MethodPost, "/eureka/apps/"+c.app, row.body, "Content-Type", row.contentType)
			expect.Equal(t, resp.body, row.want, "%s %q: got", row.contentType, row.body)
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

// renewals covers heartbeats and the comparison of lastDirtyTimestamp.
var renewals = []check{
	{"TimestampsOfRenewalsAreCompared", func(t *testing.T, c *client) {
		for _, row := range []struct {
			query        string
			client, peer int
		}{
			{"", 200, 200},
			{"?lastDirtyTimestamp=2000", 200, 200},
			{"?lastDirtyTimestamp=3000", 404, 404},
			{"?lastDirtyTimestamp=1000", 200, 409},
			{"?status=UP&lastDirtyTimestamp=2000&lastDirtyTimestamp=9000", 200, 200},
		} {
			c.register(registration{id: "i1", dirty: 2000})
			c.wantEmpty(row.client, http.MethodPut, c.path("i1", row.query), "")
			resp := c.want(row.peer, http.MethodPut, c.path("i1", row.query), "", append(replication, "Accept", "application/json")...)
			if row.peer == http.StatusConflict {
				expect.Equal(t, text(t, decode(t, resp.body), "instance", "lastDirtyTimestamp"), "2000", "the conflict shows lastDirtyTimestamp")
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
		expect.Equal(t, text(t, c.getJSON(c.path("i1", "")), "instance", "overriddenStatus"), "OUT_OF_SERVICE", "overriddenStatus is")
	}},
	{"AClientsOverriddenstatusIsIgnored", func(t *testing.T, c *client) {
		c.register(registration{id: "i1", dirty: 2000})
		c.wantEmpty(http.StatusNotFound, http.MethodPut, c.path("i1", "?lastDirtyTimestamp=3000&overriddenstatus=OUT_OF_SERVICE"), "")
		expect.Equal(t, text(t, c.getJSON(c.path("i1", "")), "instance", "overriddenStatus"), "UNKNOWN", "overriddenStatus is")
	}},
	{"AStatusInHeartbeatsOfTheSameTimestampCounts", func(t *testing.T, c *client) {
		beat := func(code int, id, query string, headers ...string) {
			t.Helper()
			c.wantEmpty(code, http.MethodPut, c.path(id, query), "", headers...)
		}
		c.register(registration{id: "i1", status: "STARTING", dirty: 2000})
		for _, query := range []string{"?status=UP", "?status=UP&lastDirtyTimestamp=1000", "?status=AWAY&lastDirtyTimestamp=2000", "?status=UNKNOWN&lastDirtyTimestamp=2000", "?status=%zz&lastDirtyTimestamp=2000"} {
			beat(http.StatusOK, "i1", query)
		}
		beat(http.StatusOK, "i1", "?status=UP&lastDirtyTimestamp=2000", replication...)
		beat(http.StatusNotFound, "i1", "?status=UP&lastDirtyTimestamp=2000")
		c.wantStatus("i1", "STARTING")
		c.register(registration{id: "i1", status: "STARTING", dirty: 2000})
		for range 2 {
			beat(http.StatusOK, "i1", "?status=UP&lastDirtyTimestamp=2000")
			c.wantStatus("i1", "UP")
		}
		c.register(registration{id: "i2", status: "STARTING", dirty: 2000})
		c.wantEmpty(http.StatusOK, http.MethodPut, c.path("i2", "/status?value=OUT_OF_SERVICE"), "")
		beat(http.StatusOK, "i2", "?status=UP&lastDirtyTimestamp=2000")
		c.wantStatus("i2", "OUT_OF_SERVICE")
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

// overrides covers the life of a status override.
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
			resp := c.want(http.StatusOK, http.MethodGet, path, "")
			expect.Equal(t, resp.header.Get("Content-Type"), "application/json", "GET %s: Content-Type is", path)
			expect.Equal(t, text(t, decode(t, resp.body), "id-of-"+c.app), "OUT_OF_SERVICE", "GET %s shows", path)
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
				expect.Equal(t, c.status(id), want, "%s: %s after %s becomes", origin, row.reported, row.before)
			}
		}
	}},
}

// batch posts items as a peer does and returns the response.
func (c *client) batch(items ...string) map[string]any {
	c.t.Helper()
	body := `{"replicationList":[` + strings.Join(items, ",") + `]}`
	resp := c.want(http.StatusOK, http.MethodPost, "/eureka/peerreplication/batch/", body, "Content-Type", "application/json", "Accept", "application/json")
	return decode(c.t, resp.body)
}

// codes returns the statuses of the items of a batch's response.
func codes(t *testing.T, doc map[string]any) string {
	var found []string
	for _, response := range at(t, doc, "responseList").([]any) {
		found = append(found, fmt.Sprint(at(t, response, "statusCode")))
	}
	return strings.Join(found, " ")
}

// item returns an item of a batch; more holds additional members.
func (c *client) item(action, id, more string) string {
	return `{"appName":"` + c.app + `","id":"` + id + `","action":"` + action + `"` + more + `}`
}

func (c *client) registerItem(id string, dirty int64) string {
	return c.registrationItem(registration{id: id, dirty: dirty})
}

// registrationItem returns an item that registers an instance of the client's application, with status UP.
func (c *client) registrationItem(r registration) string {
	r.app, r.status = c.app, "UP"
	instance := strings.TrimSuffix(strings.TrimPrefix(r.json(), `{"instance":`), "}")
	return c.item("Register", r.id, fmt.Sprintf(`,"lastDirtyTimestamp":%d,"status":"UP","instanceInfo":%s`, r.dirty, instance))
}

// batches covers what peers send.
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
		expect.Equal(t, codes(t, doc), "200 200 409 404 404 200 200 200 404", "got")
	}},
	{"AConflictBringsTheStoredInstance", func(t *testing.T, c *client) {
		c.register(registration{id: "i1", dirty: 2000})
		doc := c.batch(c.item("Heartbeat", "i1", `,"lastDirtyTimestamp":1000,"status":"UP"`))
		entity := at(t, at(t, doc, "responseList").([]any)[0], "responseEntity")
		expect.Equal(t, text(t, entity, "lastDirtyTimestamp"), "2000", "lastDirtyTimestamp is")
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
		expect.Equal(t, codes(t, doc), "200 500 400 500 500 500 200", "got")
		c.wantStatus("before", "UP")
		c.wantStatus("after", "UP")
	}},
	{"ItemsAreAppliedInOrder", func(t *testing.T, c *client) {
		doc := c.batch(c.registerItem("i1", 1000), c.item("Cancel", "i1", ``), c.item("Heartbeat", "i1", ``), c.registerItem("i1", 2000))
		expect.Equal(t, codes(t, doc), "200 200 404 200", "got")
		c.wantStatus("i1", "UP")
	}},
	{"WhatWasUnderWayDoesNotUndoACancel", func(t *testing.T, c *client) {
		beat := c.item("Heartbeat", "i1", `,"lastDirtyTimestamp":1000,"status":"UP"`)
		doc := c.batch(c.registerItem("i1", 1000), c.item("Cancel", "i1", ``), beat, c.registerItem("i1", 1000))
		expect.Equal(t, codes(t, doc), "200 200 404 404", "got")
		c.want(http.StatusNotFound, http.MethodGet, c.path("i1", ""), "")
	}},
	{"AnInstanceThatLivesAtItsHomeComesBackAfterACancel", func(t *testing.T, c *client) {
		for id, cancel := range map[string]func(id string){
			"by-a-client": func(id string) { c.wantEmpty(http.StatusOK, http.MethodDelete, c.path(id, ""), "") },
			"by-its-home": func(id string) { c.batch(c.item("Cancel", id, ``)) },
		} {
			r := registration{id: id, dirty: 2000, interval: 1, duration: 3600}
			c.batch(c.registrationItem(r))
			cancel(id)
			r.dirty = 1000 // its client's clock went back
			c.eventually(id+" is back", func() bool {
				got := codes(t, c.batch(c.item("Heartbeat", id, `,"lastDirtyTimestamp":1000,"status":"UP"`), c.registrationItem(r)))
				need.That(t, got == "404 404" || got == "404 200", "%s: a heartbeat and a registration are answered %s", id, got)
				return got == "404 200"
			})
			r.metadata = map[string]string{"color": "blue"}
			expect.Equal(t, codes(t, c.batch(c.registrationItem(r))), "200", "%s: a change of its metadata is answered", id)
			expect.Equal(t, text(t, c.getJSON(c.path(id, "")), "instance", "metadata", "color"), "blue", "%s: its metadata is", id)
		}
	}},
	{"ItemsNameApplicationsInAnyCase", func(t *testing.T, c *client) {
		c.register(registration{id: "i1"})
		doc := c.batch(`{"appName":"` + strings.ToLower(c.app) + `","id":"i1","action":"Heartbeat"}`)
		expect.Equal(t, codes(t, doc), "200", "got")
	}},
	{"AnUnreadableBatchIs400", func(t *testing.T, c *client) {
		for _, body := range []string{``, `{`, `[]`, `{"replicationList":null}`, `{"replicationList":[{"appName":"A","id":"i","action":"Explode"}]}`, `<batch/>`} {
			resp := c.do(http.MethodPost, "/eureka/peerreplication/batch/", body, "Content-Type", "application/json")
			expect.That(t, resp.status == http.StatusBadRequest || body == `{"replicationList":null}`, "%q: got %d, want 400", body, resp.status)
		}
	}},
}

// others covers the endpoints that no client needs to work.
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
		expect.Equal(t, text(t, doc, "instanceInfo", "isCoordinatingDiscoveryServer"), "true", "isCoordinatingDiscoveryServer is")
		body := c.want(http.StatusOK, http.MethodGet, "/eureka/status", "").body
		expect.That(t, strings.HasPrefix(body, "<com.netflix.eureka.util.StatusInfo>"), "the XML form begins %.60q", body)
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
			resp := c.wantEmpty(http.StatusMethodNotAllowed, row.method, row.path, "")
			expect.Equal(t, resp.header.Get("Allow"), row.allow, "%s %s: Allow is", row.method, row.path)
		}
	}},
}
