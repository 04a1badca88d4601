package conformance

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// reads are the queries and their negotiation.
var reads = []check{
	{"WithoutJSONInAcceptAnswersAreXML", func(t *testing.T, c *client) {
		c.register(registration{id: "i1", vip: c.app})
		for _, path := range []string{"/eureka/apps", "/eureka/apps/delta", "/eureka/apps/" + c.app, c.path("i1", ""), "/eureka/instances/i1", "/eureka/vips/" + c.app, "/eureka/svips/" + c.app, "/eureka/status"} {
			for accept, want := range map[string]string{
				"": "application/xml", "*/*": "application/xml", "text/html": "application/xml", "application/xml": "application/xml",
				"application/json": "application/json", "application/*+json": "application/json", "text/html, application/json;q=0.1": "application/json",
			} {
				a := c.want(http.StatusOK, http.MethodGet, path, "", "Accept", accept)
				if got := a.header.Get("Content-Type"); got != want {
					t.Errorf("GET %s with Accept %q: Content-Type is %q, want %q", path, accept, got, want)
				}
				if begin := map[bool]string{true: "<", false: "{"}[want == "application/xml"]; !strings.HasPrefix(a.body, begin) {
					t.Errorf("GET %s with Accept %q: the body begins %.20q, want %q", path, accept, a.body, begin)
				}
				if strings.HasPrefix(a.body, "<?xml") {
					t.Errorf("GET %s: the answer has an XML declaration", path)
				}
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
		if body := c.want(http.StatusOK, http.MethodGet, "/eureka/v1"+rest, "").body; !strings.Contains(body, "<status>DOWN</status>") {
			t.Errorf("version 1 in XML: %s", body)
		}
		if body := c.want(http.StatusOK, http.MethodGet, "/eureka/v2"+rest, "").body; !strings.Contains(body, "<status>OUT_OF_SERVICE</status>") {
			t.Errorf("version 2 in XML: %s", body)
		}
		if got := text(t, c.getJSON("/eureka/v1"+rest), "instance", "status"); got != "OUT_OF_SERVICE" {
			t.Errorf("version 1 in JSON: %s", got)
		}
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
				a := c.want(http.StatusOK, http.MethodGet, path, "", "Accept-Encoding", refusal)
				if a.header.Get("Content-Encoding") != "" {
					t.Errorf("GET %s with Accept-Encoding %q is compressed", path, refusal)
				}
			}
			for _, wish := range []string{"gzip", "deflate, gzip;q=1.0, *;q=0.5", "GZIP"} {
				var a answer
				plain := c.unchanged(path, func() {
					a = c.want(http.StatusOK, http.MethodGet, path, "", "Accept-Encoding", wish)
				})
				if a.header.Get("Content-Encoding") != "gzip" {
					t.Fatalf("GET %s with Accept-Encoding %q is not compressed", path, wish)
				}
				if got := gunzip(t, a.body); got != plain {
					t.Errorf("GET %s: the compressed answer differs", path)
				}
				if a.length != int64(len(a.body)) {
					t.Errorf("GET %s: Content-Length is %d for %d bytes", path, a.length, len(a.body))
				}
			}
		}
		if a := c.want(http.StatusOK, http.MethodGet, "/eureka/vips/nobody", "", "Accept-Encoding", "gzip"); a.header.Get("Content-Encoding") != "" {
			t.Error("a short answer is compressed")
		}
	}},
	{"RegionsAreIgnored", func(t *testing.T, c *client) {
		c.register(registration{id: "i1", vip: c.app})
		for _, path := range []string{"/eureka/apps", "/eureka/apps/delta", "/eureka/apps/" + c.app, "/eureka/vips/" + c.app} {
			var got string
			want := c.unchanged(path, func() {
				got = c.want(http.StatusOK, http.MethodGet, path+"?regions=us-east-1,eu-west-1", "").body
			})
			if got != want {
				t.Errorf("GET %s with regions differs", path)
			}
		}
	}},
	{"VIPsMatchPartsExactlyAndUnknownOnesAreEmpty", func(t *testing.T, c *client) {
		c.register(registration{id: "i1", vip: "first-" + c.app + ",second-" + c.app})
		for vip, want := range map[string]int{"first-" + c.app: 1, "second-" + c.app: 1, "FIRST-" + c.app: 0, "first-" + c.app + ",second-" + c.app: 0, "none": 0} {
			for _, kind := range []string{"vips", "svips"} {
				doc := c.getJSON("/eureka/" + kind + "/" + vip)
				if got := len(statuses(t, doc)); got != want {
					t.Errorf("%s/%s lists %d instances, want %d", kind, vip, got, want)
				}
				if got := text(t, doc, "applications", "versions__delta"); got != "-1" {
					t.Errorf("%s/%s: versions__delta is %q, want -1", kind, vip, got)
				}
				if got, want := text(t, doc, "applications", "apps__hashcode"), hashOf(statuses(t, doc)); got != want {
					t.Errorf("%s/%s: the hash is %q, want %q of what is listed", kind, vip, got, want)
				}
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
		for _, status := range statusWords {
			c.register(registration{id: status, status: status})
		}
		found := statuses(t, c.getJSON("/eureka/apps"))
		for _, status := range statusWords {
			if got := found[c.app+"/"+status]; got != status {
				t.Errorf("%s is listed as %q", status, got)
			}
		}
	}},
	{"HeadIsGetWithoutABody", func(t *testing.T, c *client) {
		c.register(registration{id: "i1"})
		full := c.want(http.StatusOK, http.MethodGet, "/eureka/apps/"+c.app, "", "Accept", "application/json")
		head := c.want(http.StatusOK, http.MethodHead, "/eureka/apps/"+c.app, "", "Accept", "application/json")
		if head.length != full.length || head.body != "" {
			t.Errorf("HEAD has length %d and body %q, want %d and none", head.length, head.body, full.length)
		}
	}},
}

// unchanged is the plain answer to a GET, before and after something else is read: when leases end, or what a delta tells is
// too old, it changes by itself.
func (c *client) unchanged(path string, read func()) (body string) {
	c.t.Helper()
	c.eventually("GET "+path+" is answered alike twice", func() bool {
		body = c.want(http.StatusOK, http.MethodGet, path, "").body
		read()
		return c.want(http.StatusOK, http.MethodGet, path, "").body == body
	})
	return body
}

func gunzip(t *testing.T, body string) string {
	t.Helper()
	r, err := gzip.NewReader(strings.NewReader(body))
	if err != nil {
		t.Fatalf("gzip: %v", err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("gzip: %v", err)
	}
	return string(text)
}
