package conformance

import (
	"fmt"
	"net/http"
	"testing"
)

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
