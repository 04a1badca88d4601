package httpd_test

import (
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
)

func TestTheDashboardShowsSelfPreservationAndWhoIsInQuarantine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newBubbled(t, httpd.Config{})
		if page := n.get(t, "/").body; !strings.Contains(page, `preserving-off">off<`) || strings.Contains(page, "In quarantine") {
			t.Errorf("of an empty registry the page says %s", page)
		}
		n.fleet(t, 20, 8, 2*time.Minute)
		odd := newInstance("ODD", "a/b c")
		n.apply(t, registry.Register{Instance: odd}, registry.Quarantine{Key: odd.Key(), For: 60_000, By: registry.Act{Author: "<script>ops", Reason: "it's <b>odd</b>"}})
		page := n.get(t, "/").body
		for _, want := range []string{
			`preserving-on">on<`, "8 of 20 leases were renewed in time", "2000-01-01 00:01:10 UTC", "2000-01-01 01:01:10 UTC",
			"In quarantine", `href="/v1/rollcall/apps/ODD/a%2Fb%20c/explain?consistency=stale"`, "2000-01-01 00:03:00 UTC", "&lt;script&gt;ops (it&#39;s &lt;b&gt;odd&lt;/b&gt;)",
			`href="/v1/rollcall/apps/FLEET/0/explain?consistency=stale"`,
		} {
			if !strings.Contains(page, want) {
				t.Errorf("the page lacks %q", want)
			}
		}
		if strings.Contains(page, "<script") || strings.Contains(page, "<b>odd") {
			t.Error("the page shows what an operator wrote as it is")
		}
		for _, path := range []string{"/v1/rollcall/apps/ODD/a%2Fb%20c/explain?consistency=stale", "/v1/rollcall/self-preservation?consistency=stale"} {
			if got := n.get(t, path); got.status != 200 {
				t.Errorf("the link %s leads to %d", path, got.status)
			}
		}
		n.preservation(t, "POST", "/hold?for=1m&author=%3Cscript%3E")
		if page := n.get(t, "/").body; strings.Contains(page, "<script") || !strings.Contains(page, "Held by &lt;script&gt;") {
			t.Error("the page does not escape who holds it")
		}
	})
}
