package conformance

import (
	"net/http"
	"strings"
	"testing"
)

// freshness is how reads say how new they are, and what may be asked for.
var freshness = []check{
	{"ReadsSayHowFreshTheyAre", func(t *testing.T, c *client) {
		c.register(registration{id: "i1", vip: c.app})
		for _, path := range c.reads() {
			for query, want := range map[string]string{"": c.usual(), "?consistency=stale": "stale"} {
				a := c.want(http.StatusOK, http.MethodGet, path+query, "")
				if got := a.header.Get("X-Rollcall-Consistency"); got != want {
					t.Errorf("GET %s%s: X-Rollcall-Consistency is %q, want %q", path, query, got, want)
				}
				if a.header.Get("X-Rollcall-Index") == "" {
					t.Errorf("GET %s%s: no X-Rollcall-Index", path, query)
				}
				if aged := a.header.Get("X-Rollcall-Age") != ""; aged != (want == "stale") {
					t.Errorf("GET %s%s: X-Rollcall-Age is there: %t", path, query, aged)
				}
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

// reads are reads of an application of the client that has an instance i1.
func (c *client) reads() []string {
	return []string{
		"/eureka/apps", "/eureka/apps/delta", "/eureka/apps/" + c.app, c.path("i1", ""), "/eureka/vips/" + c.app,
		"/serverinfo/statusoverrides", "/v1/rollcall/apps", "/v1/rollcall/events", "/v1/rollcall/settings", c.own("i1", "/explain"),
	}
}

// usual is the consistency of reads that ask for none.
func (c *client) usual() string {
	if c.consensus {
		return "linearizable"
	}
	return "stale"
}

// wantConsistency asks for a consistency that needs consensus.
func (c *client) wantConsistency(t *testing.T, path, word string) {
	t.Helper()
	if c.consensus {
		if path != "/v1/rollcall/watch" { // it has no end
			c.want(http.StatusOK, http.MethodGet, path+"?consistency="+word, "")
		}
		return
	}
	a := c.want(http.StatusNotImplemented, http.MethodGet, path+"?consistency="+word, "")
	if !strings.Contains(a.body, "consistency=stale") {
		t.Errorf("GET %s as %s: the answer %q does not say what to ask for", path, word, a.body)
	}
}
