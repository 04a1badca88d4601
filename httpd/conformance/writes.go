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
