package conformance

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// traps are details that break an unmodified client or peer when they are missed.
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
		if _, ok := applications.([]any); !ok {
			t.Errorf("application is %v, want an array", applications)
		}
	}},
	{"Trap04RegistrationIsAnswered204", func(t *testing.T, c *client) {
		body := registration{app: c.app, id: "i1", dirty: 2000}.json()
		c.wantEmpty(http.StatusNoContent, http.MethodPost, "/eureka/apps/"+c.app, body, "Content-Type", "application/json")
		older := registration{app: c.app, id: "i1", dirty: 1000}.json()
		c.wantEmpty(http.StatusNoContent, http.MethodPost, "/eureka/apps/"+c.app, older, "Content-Type", "application/json")
	}},
	{"Trap05ABatchOf250ItemsIsAnsweredInTime", func(t *testing.T, c *client) {
		const inTime = 200 * time.Millisecond // which a peer waits
		const rounds = 100                    // one of which is enough: the suite shares its machine with others
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
		// A disk so slow that nothing is in time does not make a batch slow: it is written once, whatever is in it.
		if more := fastest[250] - fastest[1]; more > inTime {
			t.Errorf("the fastest of %d batches of 250 items took %v, and that of 1 item %v, want at most %v more", rounds, fastest[250], fastest[1], inTime)
		}
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
			if fmt.Sprint(port) != want {
				t.Errorf("%s is %v, want %s", name, port, want)
			}
			_ = text(t, port, "@enabled")
			if _, isText := at(t, port, "$").(string); isText {
				t.Errorf("the number of %s is a text", name)
			}
		}
	}},
	{"Trap09DataCentersBeginWithTheirClass", func(t *testing.T, c *client) {
		c.register(registration{id: "own"})
		c.register(registration{id: "amazon", amazon: true})
		for id, begin := range map[string]string{
			"own":    `"dataCenterInfo":{"@class":"com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo","name":"MyOwn"}`,
			"amazon": `"dataCenterInfo":{"@class":"com.netflix.appinfo.AmazonInfo","name":"Amazon","metadata":{`,
		} {
			a := c.want(http.StatusOK, http.MethodGet, c.path(id, ""), "", "Accept", "application/json")
			if !strings.Contains(a.body, begin) {
				t.Errorf("%s lacks %s in %s", id, begin, a.body)
			}
		}
	}},
	{"Trap10TheVersionOfAFullFetchIsTheTextOne", func(t *testing.T, c *client) {
		if got := text(t, c.getJSON("/eureka/apps"), "applications", "versions__delta"); got != "1" {
			t.Errorf("versions__delta is %q, want \"1\"", got)
		}
		if got := text(t, c.getJSON("/eureka/apps/delta"), "applications", "versions__delta"); got == "-1" {
			t.Error("a delta's versions__delta is -1")
		}
	}},
	{"Trap11ListsAreArrays", func(t *testing.T, c *client) {
		c.register(registration{id: "i1", vip: c.app})
		if _, ok := at(t, c.getJSON("/eureka/vips/nobody-has-this"), "applications", "application").([]any); !ok {
			t.Error("an empty list of applications is no array")
		}
		list, ok := at(t, c.getJSON("/eureka/apps/"+c.app), "application", "instance").([]any)
		if !ok || len(list) != 1 {
			t.Errorf("a list of one instance is %v, want an array of one", list)
		}
		list, ok = at(t, c.getJSON("/eureka/vips/"+c.app), "applications", "application").([]any)
		if !ok || len(list) != 1 {
			t.Errorf("a list of one application is %v, want an array of one", list)
		}
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
		applyDelta(t, before, delta)
		if got, want := hashOf(before), text(t, delta, "applications", "apps__hashcode"); got != want {
			t.Errorf("the old list with the delta has the hash %s, the delta says %s", got, want)
		}
		after := c.getJSON("/eureka/apps")
		if got, want := statuses(t, after), before; !maps.Equal(got, want) {
			t.Errorf("the full list is %v, the old one with the delta %v", got, want)
		}
		if got, want := text(t, after, "applications", "apps__hashcode"), hashOf(before); got != want {
			t.Errorf("the full list's hash is %s, want %s", got, want)
		}
	}},
	{"Trap14ClientsWithoutIdentityAreNotStarved", func(t *testing.T, c *client) {
		for range 50 {
			c.want(http.StatusOK, http.MethodGet, "/eureka/apps/delta", "", "User-Agent", "")
		}
	}},
}

// mixedBatch is a batch of n items of all actions on instances of one application.
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

// statuses is the status of every instance of a document, by application and id.
func statuses(t *testing.T, doc map[string]any) map[string]string {
	found := map[string]string{}
	eachInstance(t, doc, func(key string, instance any) { found[key] = text(t, instance, "status") })
	return found
}

func eachInstance(t *testing.T, doc map[string]any, visit func(key string, instance any)) {
	for _, app := range at(t, doc, "applications", "application").([]any) {
		for _, instance := range at(t, app, "instance").([]any) {
			visit(text(t, app, "name")+"/"+idOf(t, instance), instance)
		}
	}
}

// idOf is the id of an instance, which may have none of its own.
func idOf(t *testing.T, instance any) string {
	if id, ok := instance.(map[string]any)["instanceId"].(string); ok {
		return id
	}
	return text(t, instance, "hostName")
}

// applyDelta does to a list what a client does with a delta.
func applyDelta(t *testing.T, list map[string]string, delta map[string]any) {
	eachInstance(t, delta, func(key string, instance any) {
		if text(t, instance, "actionType") == "DELETED" {
			delete(list, key)
			return
		}
		list[key] = text(t, instance, "status")
	})
}

// hashOf is apps__hashcode of a list.
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
