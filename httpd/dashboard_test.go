package httpd_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestTheDashboardShowsSelfPreservationAndWhoIsInQuarantine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newBubbled(t, httpd.Config{})
		if page := n.get(t, "/").body; !strings.Contains(page, `preserving-off">off<`) || strings.Contains(page, "In quarantine") {
			t.Errorf("of an empty registry the page says %s", page)
		}
		n.fleet(t, 20, 8, 2*time.Minute)
		odd := newInstance("ODD", "a/b c")
		n.Perform(t, registry.Register{Instance: odd}, registry.Quarantine{Key: odd.Key(), For: 60_000, By: registry.Act{Author: "<script>ops", Reason: "it's <b>odd</b>"}})
		page := n.get(t, "/").body
		for _, want := range []string{
			`preserving-on">on<`, "8 of 20 leases were renewed in time", "2000-01-01 00:01:10 UTC", "2000-01-01 01:01:10 UTC",
			"In quarantine", `href="/v1/rollcall/apps/ODD/a%2Fb%20c/explain?consistency=stale"`, "2000-01-01 00:03:00 UTC", "&lt;script&gt;ops (it&#39;s &lt;b&gt;odd&lt;/b&gt;)",
			`href="/v1/rollcall/apps/FLEET/0/explain?consistency=stale"`,
		} {
			expect.That(t, strings.Contains(page, want), "the page lacks %q", want)
		}
		expect.That(t, !strings.Contains(page, "<script") && !strings.Contains(page, "<b>odd"), "the page shows what an operator wrote as it is")
		for _, path := range []string{"/v1/rollcall/apps/ODD/a%2Fb%20c/explain?consistency=stale", "/v1/rollcall/self-preservation?consistency=stale"} {
			expect.Equal(t, n.get(t, path).status, 200, "the link %s leads to", path)
		}
		n.preservation(t, "POST", "/hold?for=1m&author=%3Cscript%3E")
		if page := n.get(t, "/").body; strings.Contains(page, "<script") || !strings.Contains(page, "Held by &lt;script&gt;") {
			t.Error("the page does not escape who holds it")
		}
	})
}

func TestTheDashboardShowsWhoHoldsLocks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCoordinated(t, httpd.Config{})
		if page := c.get("/").body; !strings.Contains(page, "0 sessions, 0 keys") || !strings.Contains(page, "No session holds anything.") {
			t.Errorf("without a session the page says %s", page)
		}
		a, b := c.ownSession(t, `{"name":"<script>worker","ttl":"20s"}`), c.session(t, "")
		for i := range 6 {
			c.put(t, fmt.Sprintf("/v1/kv/%d?acquire=%s", i, a), "")
		}
		c.acquire(t, "/v1/rollcall/semaphores/%3Cb%3Es?limit=3&session="+a, "")
		c.acquire(t, "/v1/rollcall/locks/l?session="+b, "")
		page := c.get("/").body
		for _, want := range []string{
			"2 sessions, 6 keys", "&lt;script&gt;worker", "<td>20s</td><td>key 0, key 1, key 2, key 3, key 4 and 2 more</td>", "<td>never by itself</td><td>lock l</td>",
			`<td>semaphore</td><td class="name">&lt;b&gt;s</td><td class="number">3</td><td class="mono">` + a, `<td>lock</td><td class="name">l</td>`,
		} {
			expect.That(t, strings.Contains(page, want), "the page lacks %q: %s", want, page)
		}
		for i := range 60 {
			c.put(t, fmt.Sprintf("/v1/kv/x%d?acquire=%s", i, c.session(t, "")), "")
		}
		if page := c.get("/").body; !strings.Contains(page, "and 12 more") {
			t.Errorf("of 62 sessions that hold something it does not leave out 12: %s", page)
		}
		for _, path := range []string{"/v1/rollcall/sessions?consistency=stale", "/v1/rollcall/locks?consistency=stale", "/v1/rollcall/semaphores?consistency=stale"} {
			if got := c.get(path); got.status != 200 || got.header.Get("X-Rollcall-Consistency") != "stale" {
				t.Errorf("the link %s leads to %d, %s", path, got.status, got.header.Get("X-Rollcall-Consistency"))
			}
		}
	})
}
