package conformance

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

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
