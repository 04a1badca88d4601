package httpd_test

import (
	"bufio"
	"context"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/dashboard"
	"github.com/seed-20419f34/rollcall/httpd/httpdtest"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// screens returns the paths of all screens, for an application and an instance of it.
func screens(app, id string) []string {
	a, i := url.PathEscape(app), url.PathEscape(id)
	about := "?app=" + url.QueryEscape(app) + "&id=" + url.QueryEscape(id)
	return []string{
		"/", "/lastn", "/ui", "/ui/apps", "/ui/apps?q=" + url.QueryEscape(id), "/ui/apps/" + a, "/ui/apps/" + a + "/" + i, "/ui/nodes", "/ui/peers", "/ui/events",
		"/ui/acts/drain" + about, "/ui/acts/override" + about, "/ui/acts/quarantine" + about, "/ui/acts/cancel" + about, "/ui/acts/release", "/ui/acts/hold", "/ui/login",
	}
}

// unshown matches the parts of a page that belong to no sentence: tags, and text meant for copying.
var unshown = regexp.MustCompile(`(?s)<pre[^>]*>.*?</pre>|<[^>]*>`)

func TestScreensEscapeWhatOthersSay(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{Cluster: httpdtest.ThreeNodes, Node: "n1"}, nil)
	for _, id := range []string{`<script>alert("x")</script>`, strings.Repeat("ä", 120), "\u202egnp.exe", `"><img src=x onerror=alert(1)>`, "javascript:alert(1)"} {
		i := httpdtest.NewInstance("A"+strings.ToUpper(id[:min(len(id), 100)]), id)
		i.StatusPageURL, i.HomePageURL, i.HealthCheckURL = "javascript:alert(1)", "HTTP://web.example/", "data:text/html,x"
		i.VIP, i.HostName = id, id
		i.Metadata = []registry.Pair{{Key: "zone", Value: id}, {Key: id, Value: "javascript:alert(2)"}}
		n.Perform(t, registry.Register{Instance: i}, registry.SetOverride{Key: i.Key(), Status: registry.Down, By: registry.Act{Author: id, Reason: id}})
		for _, path := range screens(i.Key().App, id) {
			got := n.Send(t, httpdtest.Request("GET", path, ""))
			expect.That(t, got.Status == http.StatusOK && strings.HasPrefix(got.Header.Get("Content-Type"), "text/html"), "GET %s: got %d %q", path, got.Status, got.Header.Get("Content-Type"))
			for _, bad := range []string{"<script>", "<img", `href="javascript:`, `href="data:`, "onerror=alert(1)>", "style="} {
				expect.That(t, !strings.Contains(got.Body, bad), "GET %s has %q in it", path, bad)
			}
			expect.That(t, !strings.Contains(unshown.ReplaceAllString(got.Body, ""), "\u202e"), "GET %s turns words round", path)
			policy := got.Header.Get("Content-Security-Policy")
			expect.That(t, strings.Contains(policy, "default-src 'none'") && !strings.Contains(policy, "unsafe"), "GET %s: Content-Security-Policy is %q", path, policy)
		}
		page := n.Send(t, httpdtest.Request("GET", "/ui/apps/"+url.PathEscape(i.Key().App)+"/"+url.PathEscape(id), "")).Body
		expect.That(t, utf8.ValidString(page), "a letter of %q was cut", id)
		expect.That(t, strings.Contains(page, `href="HTTP://web.example/"`), "the page of the instance lacks its home page")
	}
}

func TestScreensEscapeKeysSessionsNodesAndWatchers(t *testing.T) {
	m := fsmtest.New()
	const hostile = `"><img src=x onerror=alert(1)>`
	s := roles("well", hostile, "follower", "follower", "leader")
	s.Nodes[1].ID, s.Nodes[1].HTTP, s.Nodes[1].Version, s.Nodes[1].Zone = hostile, hostile, hostile, hostile
	quoted := strings.ReplaceAll(hostile, `"`, `\"`)
	n := httpdtest.NewNode(t, httpd.Config{Service: m, Node: "node1", Cluster: s, Coordination: fsmtest.NewCoordination(m),
		Peers: &httpdtest.FakePeers{StatusJSON: `{"peers":[{"name":"` + quoted + `","kind":"datacenter","state":"failing","reason":"` + quoted + `"}]}`}}, nil)
	m.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
	n.Send(t, httpdtest.Request("PUT", "/v1/kv/"+url.PathEscape(hostile), hostile))
	expect.Equal(t, n.Send(t, httpdtest.Request("PUT", "/v1/session/create", `{"Name":"`+quoted+`"}`)).Status, http.StatusOK, "a session of that name: got")
	watch := need.Got(http.NewRequest(http.MethodGet, "http://"+n.Addr+"/v1/rollcall/watch?app=ORDERS", nil))(t)
	watch.Header.Set("User-Agent", hostile)
	resp := need.Got(http.DefaultClient.Do(watch))(t)
	defer resp.Body.Close()
	for path, has := range map[string]string{
		"/": "fails", "/ui/nodes": "node3", "/ui/peers": "datacenter", "/ui/held": "Sessions", "/ui/keys?key=" + url.QueryEscape(hostile): "Value", "/ui/acts/set-key?key=" + url.QueryEscape(hostile): "in place of",
		"/ui/acts/pause?peer=" + url.QueryEscape(hostile): "Pause", "/ui/acts/remove-node?node=" + url.QueryEscape(hostile): "Remove", "/ui/apps/ORDERS": "1 program on node1",
	} {
		got := n.Send(t, httpdtest.Request("GET", path, ""))
		expect.That(t, got.Status == http.StatusOK && strings.Contains(got.Body, has) && strings.Contains(got.Body, "onerror") && !strings.Contains(got.Body, "<img"), "GET %s: got %d, want %q and the name, escaped: %s", path, got.Status, has, got.Body)
	}
}

// TestOverviewSaysWhatMustBeRenewed reads the metrics by the names that docs/reference/metrics.md gives them.
func TestOverviewSaysWhatMustBeRenewed(t *testing.T) {
	metrics, documented := prometheus.NewRegistry(), string(need.Got(os.ReadFile("../docs/reference/metrics.md"))(t))
	const ends, saved = "rollcall_certificate_expiry_timestamp_seconds", "rollcall_backup_last_success_timestamp_seconds"
	for use, in := range map[string]time.Duration{"http": 49 * time.Hour, "cluster": 1000 * time.Hour} {
		metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: ends, ConstLabels: prometheus.Labels{"use": use, "a": "b"}}, func() float64 { return float64(time.Now().Add(in).Unix()) }))
	}
	gathered := 0
	metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: saved}, func() float64 { gathered++; return 0 }))
	expect.That(t, strings.Contains(documented, "`"+ends+"`") && strings.Contains(documented, "`"+saved+"`"), "a metric has another name")
	httpdtest.Bubble(t, func(t *testing.T) {
		n := httpdtest.NewBubbled(t, httpd.Config{Node: "node1", Metrics: metrics})
		n.Set(func(m *fsmtest.Memory) { m.Reported.Leads = true })
		time.Sleep(2 * time.Hour)
		page := n.Get(t, "/").Body
		for _, want := range []string{"The certificate of node1 for http ends in 2 days", "No snapshot was ever written by the schedule of node1"} {
			expect.That(t, strings.Contains(page, want), "the overview lacks %q: %s", want, page)
		}
		expect.That(t, !strings.Contains(page, "for cluster"), "a certificate that holds for long is on the overview")
		n.Get(t, "/")
		expect.Equal(t, gathered, 1, "times that the metrics were gathered for two pages within a minute:")
		time.Sleep(time.Minute)
		n.Get(t, "/")
		expect.Equal(t, gathered, 2, "times that they were, after another one a minute later:")
	})
}

// TestWatchersOfAnApplicationAreThoseOfThisNode checks that the page says so and links to the same page of the other
// nodes.
func TestWatchersOfAnApplicationAreThoseOfThisNode(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{Node: "node1", Cluster: roles("well", "Healthy.", "follower", "follower", "leader")}, nil)
	n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
	page := n.Send(t, httpdtest.Request("GET", "/ui/apps/ORDERS", "")).Body
	for _, want := range []string{"0 programs on node1; each node knows its own only", "Those of other nodes: ", `href="http://127.0.0.1:8762/ui/apps/ORDERS"`, `href="http://127.0.0.1:8763/ui/apps/ORDERS"`} {
		expect.That(t, strings.Contains(page, want), "the page lacks %q: %s", want, page)
	}
}

// TestCellsHaveTheTitlesOfTheirColumns serves narrow windows, where a row spans several lines.
func TestCellsHaveTheTitlesOfTheirColumns(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{Node: "node1", Cluster: roles("well", "Healthy.", "follower", "follower", "leader")}, nil)
	n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
	cell := regexp.MustCompile(`<td([^>]*)>`)
	for path, want := range map[string][]string{
		"/ui/apps": {"Instances", "Last change"}, "/ui/apps/ORDERS": {"Status", "Address", "Zone", "Lease", "Belongs to"}, "/ui/nodes": {"Role", "Entries behind", "Acts"}, "/ui/events": {"When (UTC)", "What", "Of", "By"},
	} {
		page := n.Send(t, httpdtest.Request("GET", path, "")).Body
		for _, title := range want {
			expect.That(t, strings.Contains(page, `<td data-label="`+title+`"`), "GET %s: no cell has the title %q", path, title)
		}
		tables, _, _ := strings.Cut(page, `class="facts"`)
		for _, one := range cell.FindAllStringSubmatch(tables, -1) {
			expect.That(t, strings.Contains(one[1], "data-label="), "GET %s: a cell has no title: %s", path, one[0])
		}
	}
}

func TestScreensSayWhatIsWrong(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{Cluster: httpdtest.ThreeNodes, Node: "n1"}, nil)
	n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
	for _, row := range []struct {
		health registry.Health
		want   string
	}{
		{registry.Health{}, "This node is loading its state"},
		{registry.Health{Ready: true, Age: 12 * time.Second}, "You see what n1 knew 12s ago"},
	} {
		n.Set(func(m *fsmtest.Memory) { m.Reported = row.health })
		for _, path := range screens("ORDERS", "i1") {
			if path == "/ui/login" {
				continue
			}
			expect.That(t, strings.Contains(n.Send(t, httpdtest.Request("GET", path, "")).Body, row.want), "%s lacks %q", path, row.want)
		}
	}
}

func TestSearchFindsByEveryNameAndAddress(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	for k := range 120 {
		i := httpdtest.NewInstance(fmt.Sprintf("APP-%03d", k), fmt.Sprintf("host-%d:app", k))
		i.HostName, i.IPAddr, i.VIP = fmt.Sprintf("h%03d.example", k), fmt.Sprintf("10.7.0.%d", k), fmt.Sprintf("vip-%03d", k)
		i.Metadata = []registry.Pair{{Key: "zone", Value: []string{"a", "b", "c"}[k%3]}}
		if k == 77 {
			i.Status = registry.Down
		}
		n.Perform(t, registry.Register{Instance: i})
	}
	gone := httpdtest.NewInstance("GONE", "gone-1")
	n.Perform(t, registry.Register{Instance: gone}, registry.Cancel{Key: gone.Key()})
	rows := func(page string) int { return strings.Count(page, `<th scope="row">`) }
	for _, row := range []struct {
		query string
		rows  int
		has   string
	}{
		{"", 50, "1 to 50 of 120"}, {"page=3", 20, "101 to 120 of 120"}, {"page=99999999999", 20, "101 to 120 of 120"},
		{"q=app-11", 10, "APP-117"}, {"q=H012.EXAMPLE", 1, "APP-012"}, {"q=10.7.0.99", 1, "APP-099"}, {"q=vip-05", 10, "APP-055"}, {"q=host-33", 1, "host-33:app"},
		{"q=zone%3Db", 40, "(of 120 applications)"}, {"zone=b&status=UP", 40, "APP-001"}, {"status=DOWN", 1, "APP-077"}, {"q=app-077+zone%3Dc", 1, "APP-077"}, {"q=app-077+zone%3Da", 0, "Nothing that is registered"},
		{"q=gone", 0, "These were removed:"}, {"filter=changed", 50, "of 120"}, {"filter=overdue", 0, "None."},
	} {
		got := n.Send(t, httpdtest.Request("GET", "/ui/apps?"+row.query, ""))
		expect.That(t, got.Status == 200 && rows(got.Body) == row.rows && strings.Contains(got.Body, row.has), "%s: got %d with %d rows, want %d and %q", row.query, got.Status, rows(got.Body), row.rows, row.has)
	}
	first := n.Send(t, httpdtest.Request("GET", "/ui/apps", "")).Body
	expect.That(t, strings.Index(first, "APP-077") < strings.Index(first, "APP-000"), "the one in trouble is not first")
}

func TestBadInputOfAPageIsAnsweredByAPage(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	for path, want := range map[string]int{
		"/ui/apps?q=" + strings.Repeat("a", 1001): 400, "/ui/apps?q=" + strings.Repeat("a", 10<<10): 414, "/ui/apps?q=a+b+c+d+e+f+g+h": 200, "/ui/apps?q=a+b+c+d+e+f+g+h+i": 400, "/ui/apps?q=" + strings.Repeat("a+", 40): 200, "/ui/raw/nothing": 404, "/ui/raw/instance?app=A&id=b": 404, "/ui/apps?page=-1": 400, "/ui/apps?status=FINE": 400, "/ui/apps?filter=x": 400,
		"/ui/acts/nothing": 404, "/ui/nothing": 404, "/ui/assets/0/app.js": 404, "/ui/events?kind=x": 400, "/ui/apps/NONE/none": 200, "/ui/keys?key=a": 501, "/ui/held": 501,
	} {
		got := n.Send(t, httpdtest.Request("GET", path, ""))
		expect.That(t, got.Status == want && strings.HasPrefix(got.Header.Get("Content-Type"), "text/html") && strings.Contains(got.Body, "<main"), "GET %.60s: got %d %s, want a page with %d", path, got.Status, got.Header.Get("Content-Type"), want)
	}
}

func TestActsOfPagesAreThoseOfTheAPI(t *testing.T) {
	httpdtest.Bubble(t, func(t *testing.T) {
		n := httpdtest.NewBubbled(t, httpd.Config{Hosts: []string{"node"}})
		for _, id := range []string{"i1", "i2"} {
			n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", id)})
		}
		about := []string{"app", "ORDERS", "id", "i1"}
		form := n.Get(t, "/ui/acts/drain?app=ORDERS&id=i1").Body
		for _, want := range []string{"ORDERS keeps 1 of its 2 UP instances.", "rollcall drain ORDERS/i1 --reason WHY --addr http://"} {
			expect.That(t, strings.Contains(form, want), "the form lacks %q: %s", want, form)
		}
		n.Post(t, "/ui/acts/drain", about...).Says(t, 422, "reason is missing", "without a reason")
		got := n.Post(t, "/ui/acts/drain", append(about, "reason", "kernel", "author", "ann")...)
		need.That(t, got.Status == http.StatusSeeOther, "got %d %s", got.Status, got.Body)
		to := got.Header.Get("Location")
		page := n.Get(t, to).Body
		expect.That(t, strings.HasPrefix(to, "/ui/apps/ORDERS/i1?done=drain&index=") && strings.Contains(page, "Done: drain.") && strings.Contains(page, "by ann (kernel)") && strings.Contains(page, "<th scope=\"row\">It reports</th>"), "%s leads to %s", to, page)
		l, _ := n.Newest().Lease(registry.NewKey("ORDERS", "i1"))
		expect.That(t, l.Instance.Status == registry.OutOfService && l.Override.By.Author == "ann" && l.Override.By.Reason == "kernel", "the act was %+v", l.Override)

		byAnn := n.Get(t, "/ui/events?author=ANN").Body
		expect.That(t, strings.Contains(byAnn, "kernel") && !strings.Contains(byAnn, "kind-registered"), "what ann did is: %s", byAnn)

		last := []string{"app", "ORDERS", "id", "i2", "reason", "x"}
		n.Post(t, "/ui/acts/cancel", last...).Says(t, 422, "No other instance of ORDERS is UP", "the last UP one without its name")
		got = n.Post(t, "/ui/acts/cancel", append(last, "confirm", "orders")...)
		expect.Equal(t, got.Status, http.StatusSeeOther, "with the name of the application")
		n.Post(t, "/ui/acts/quarantine", append(last, "for", "30m")...).Says(t, 404, "is not registered", "of what is gone meanwhile")
		got = n.Post(t, "/ui/acts/hold", "for", "30m", "reason", "works")
		expect.That(t, got.Status == http.StatusSeeOther && n.Newest().Preservation().State == registry.PreservationHeld, "hold: got %d", got.Status)
	})
}

func TestActOfUnknownOutcomeSaysSo(t *testing.T) {
	httpdtest.Bubble(t, func(t *testing.T) {
		n := httpdtest.NewBubbled(t, httpd.Config{Hosts: []string{"node"}})
		n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")}, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i2")})
		n.Fail(registry.ErrUnknownOutcome)
		got := n.Post(t, "/ui/acts/drain", "app", "ORDERS", "id", "i1", "reason", `why "not"`)
		for _, want := range []string{"Nobody knows whether it took effect", "Look again", "Repeat", `value="why &#34;not&#34;"`} {
			expect.That(t, strings.Contains(got.Body, want), "got %d, which lacks %q: %s", got.Status, want, got.Body)
		}
	})
}

func TestActsOfPagesWhereNobodyIsAsked(t *testing.T) {
	for _, row := range []struct {
		acts  string
		hosts []string
		may   bool
	}{
		{"auto", []string{"node"}, true}, {"auto", nil, false}, {"on", nil, true}, {"off", []string{"node"}, false},
	} {
		httpdtest.Bubble(t, func(t *testing.T) {
			config := httpd.Config{Hosts: row.hosts}
			config.Acts = dashboard.Acts(row.acts)
			n := httpdtest.NewBubbled(t, config)
			n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")}, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i2")})
			page := n.Get(t, "/ui/apps/ORDERS/i1").Body
			got := n.Post(t, "/ui/acts/drain", "app", "ORDERS", "id", "i1", "reason", "x")
			expect.That(t, strings.Contains(page, `aria-disabled="true"`) != row.may && (got.Status == http.StatusSeeOther) == row.may, "%+v: got %d, and the page %s", row, got.Status, page)
		})
	}
}

func TestCrossSiteFormIsRefused(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
	for _, path := range []string{"/ui/acts/cancel", "/ui/login", "/ui/logout"} {
		got := n.Send(t, httpdtest.Request("POST", path, "app=ORDERS&id=i1&confirm=ORDERS", "Sec-Fetch-Site: cross-site", "Content-Type: application/x-www-form-urlencoded"))
		expect.Equal(t, got.Status, http.StatusForbidden, "POST %s: got", path)
	}
	_, there := n.Newest().Lease(registry.NewKey("ORDERS", "i1"))
	expect.That(t, there, "a page of another site removed an instance")
}

func TestLoginIsACookieForPagesOnly(t *testing.T) {
	g := newGuarded(t, access.On, true)
	login := func(token string) httpdtest.Reply {
		return g.send("POST", "/ui/login", url.Values{"token": {token}, "next": {"/ui/apps?q=a"}}.Encode(), "Content-Type: application/x-www-form-urlencoded")
	}
	anonymous := g.send("GET", "/ui/nodes", "")
	expect.That(t, anonymous.Status == 401 && strings.Contains(anonymous.Body, `name="token"`) && strings.Contains(anonymous.Body, `value="/ui/nodes"`) && anonymous.Header.Get("WWW-Authenticate") == "",
		"without a login: got %d %v", anonymous.Status, anonymous.Header)
	wrong := login("rct_wrong")
	expect.That(t, wrong.Status == 401 && wrong.Header.Get("Set-Cookie") == "" && strings.Contains(wrong.Body, `role="alert"`) && !strings.Contains(wrong.Body, "rct_wrong"), "a wrong token: got %d %s", wrong.Status, wrong.Body)
	good := login(g.texts["operator"])
	need.That(t, good.Status == http.StatusSeeOther && good.Header.Get("Location") == "/ui/apps?q=a", "got %d to %s", good.Status, good.Header.Get("Location"))
	cookie := good.Header.Get("Set-Cookie")
	expect.That(t, !strings.Contains(cookie, "Expires") && !strings.Contains(cookie, "Max-Age"), "the cookie outlives the browser")
	for _, want := range []string{"HttpOnly", "SameSite=Strict", "Path=/"} {
		expect.That(t, strings.Contains(cookie, want), "the cookie lacks %s: %s", want, strings.ReplaceAll(cookie, g.texts["operator"], "…"))
	}
	pair, _, _ := strings.Cut(cookie, ";")
	for path, kind := range map[string]string{"/ui/raw/metrics": "text/plain", "/ui/raw/settings": "application/json", "/ui/raw/app?app=A": "application/json"} {
		got := g.send("GET", path, "", "Cookie: "+pair)
		expect.That(t, got.Status == 200 && strings.HasPrefix(got.Header.Get("Content-Type"), kind), "GET %s with the cookie: got %d %v", path, got.Status, got.Header)
	}
	for path, want := range map[string]int{"/": 200, "/ui/nodes": 200, "/ui/apps": 200, "/v1/rollcall/status": 401, "/eureka/apps": 401, "/metrics": 401, "/v1/kv/a": 403} {
		expect.Equal(t, g.send("GET", path, "", "Cookie: "+pair).Status, want, "GET %s with the cookie: got", path)
	}
	page := g.send("GET", "/ui/nodes", "", "Cookie: "+pair).Body
	expect.That(t, strings.Contains(page, "Log out") && strings.Contains(page, ">operator<"), "the page does not say who is logged in")
	acted := g.send("POST", "/ui/acts/hold", "for=30m&reason=x", "Cookie: "+pair, "Content-Type: application/x-www-form-urlencoded")
	expect.Equal(t, acted.Status, http.StatusSeeOther, "an act with the cookie: got")
	out := g.send("POST", "/ui/logout", "", "Cookie: "+pair)
	expect.That(t, out.Status == http.StatusSeeOther && strings.Contains(out.Header.Get("Set-Cookie"), "Max-Age=0"), "a logout: got %d %s", out.Status, out.Header.Get("Set-Cookie"))
}

// TestWhoMayReadOneApplicationSeesNoOther asks for every page with the token of the service ORDERS. The node also
// holds 7 instances of PAY, 3 DOWN and all overdue, a node and a key of its own.
func TestWhoMayReadOneApplicationSeesNoOther(t *testing.T) {
	g := newGuarded(t, access.On, true, func(c *httpd.Config) {
		c.Node, c.Cluster = "node1", roles("degraded", "Degraded: node2 cannot be reached.", "follower", "unreachable", "leader")
	})
	g.memory.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "ORDERS-i")})
	for k := range 7 {
		i := httpdtest.NewInstance("PAY", fmt.Sprintf("PAY-i%d", k))
		if k < 3 {
			i.Status = registry.Down
		}
		g.memory.Perform(t, registry.Register{Instance: i})
	}
	g.memory.Perform(t, registry.Cancel{Key: registry.NewKey("PAY", "PAY-i6")},
		registry.SelfPreservation{To: registry.PreservationHeld, For: 3_600_000, By: registry.Act{Author: "ann", Reason: "works"}})
	for _, row := range []struct {
		path   string
		status int
		has    string
	}{
		{"/", 200, "You may read 1 application"}, {"/lastn", 200, "ORDERS"}, {"/ui", 200, "ORDERS"}, {"/ui/apps", 200, "1 to 1 of 1"},
		{"/ui/apps?q=i", 200, "1 to 1 of 1"}, {"/ui/apps?q=pay", 200, "Nothing that is registered"}, {"/ui/apps?q=pay-i6", 200, "nothing that was removed"}, {"/ui/apps?status=DOWN", 200, "(of 1 application)"},
		{"/ui/apps/ORDERS", 200, "Watched by"}, {"/ui/apps/ORDERS/ORDERS-i", 200, "needs permission"}, {"/ui/apps/PAY", 403, ""}, {"/ui/apps/PAY/PAY-i0", 403, ""}, {"/ui/apps/PAY/none", 403, ""}, {"/ui/apps/NONE", 403, ""},
		{"/ui/events", 200, "ORDERS"}, {"/ui/events?kind=registered", 200, "ORDERS"}, {"/ui/events?kind=self-preservation", 200, "self-preservation is held"}, {"/ui/events?kind=leader", 200, "Nothing is remembered."}, {"/ui/events?app=PAY", 403, ""},
		{"/ui/nodes", 403, ""}, {"/ui/peers", 403, ""}, {"/ui/peers/dc2", 403, ""}, {"/ui/held", 403, ""}, {"/ui/held?prefix=PAY/", 403, ""}, {"/ui/keys?key=PAY/k", 403, ""}, {"/ui/keys?key=ORDERS/k", 200, "Value"},
		{"/ui/acts/drain?app=ORDERS&id=ORDERS-i", 200, "You may not"}, {"/ui/acts/drain?app=PAY&id=PAY-i0", 403, ""}, {"/ui/acts/release?app=ORDERS", 403, ""}, {"/ui/acts/hold", 403, ""}, {"/ui/acts/remove-node?app=ORDERS&node=node2", 403, ""},
		{"/ui/acts/transfer?app=ORDERS", 403, ""}, {"/ui/acts/end-session?app=ORDERS&session=" + g.sessions["PAY"], 403, ""}, {"/ui/acts/set-key?app=ORDERS&key=PAY/k", 403, ""}, {"/ui/acts/pause?app=ORDERS&peer=dc2", 403, ""},
		{"/ui/live?wait=0s", 200, ""}, {"/ui/live?wait=0s&app=ORDERS", 200, ""}, {"/ui/live?wait=0s&app=PAY", 403, ""}, {"/v1/rollcall/overview", 403, ""}, {"/ui/login", 200, ""},
	} {
		got := g.send("GET", row.path, "", bearer(g.texts["ORDERS"]))
		page := html.UnescapeString(got.Body)
		expect.That(t, got.Status == row.status && strings.Contains(page, row.has), "GET %s: got %d, want %d with %q: %s", row.path, got.Status, row.status, row.has, page)
		for _, other := range []string{"PAY-i", ">PAY<", "pay-c", g.sessions["PAY"], "node2", "node3", "127.0.0.1:876", "of 8 ", "of 9 ", "withheld", "leases in time", "overdue, PAY"} {
			expect.That(t, !strings.Contains(page, other) || strings.Contains(row.path, other), "GET %s has %q of others in it: %s", row.path, other, page)
		}
	}
	page := html.UnescapeString(g.send("GET", "/ui/apps/ORDERS/ORDERS-i", "", bearer(g.texts["ORDERS"])).Body)
	expect.That(t, strings.Contains(page, "needs permission 'app ORDERS override'") && strings.Contains(page, `href="/ui/acts/cancel`), "the page does not say what is missing, or offers nothing: %s", page)
}

// eventsOf returns a function that returns the name and data of a stream's next event, or "" at its end.
func eventsOf(stream io.Reader) (next func() string) {
	lines := bufio.NewScanner(stream)
	return func() string {
		for lines.Scan() {
			if name, is := strings.CutPrefix(lines.Text(), "event: "); is && lines.Scan() {
				return name + " " + lines.Text()
			}
		}
		return ""
	}
}

// TestLivePageOfAPartHearsOfNoOthers: a reader of one application learns neither when the others change nor how much.
func TestLivePageOfAPartHearsOfNoOthers(t *testing.T) {
	httpdtest.Bubble(t, func(t *testing.T) {
		var config httpd.Config
		g := newGuarded(t, access.On, true, func(c *httpd.Config) { config = *c })
		resp := need.Got(httpdtest.NewBubbled(t, config).OpenRequest(t, httpdtest.Request("GET", "/ui/live?wait=8s", "", bearer(g.texts["ORDERS"]))))(t)
		next := eventsOf(resp.Body)
		expect.Equal(t, next(), "tick data: 0", "it begins with")
		for k := range 20 {
			g.memory.Perform(t, registry.Register{Instance: httpdtest.NewInstance("PAY", fmt.Sprintf("PAY-i%d", k))})
		}
		expect.Equal(t, next(), "tick data: 0", "after changes of PAY comes")
		g.memory.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "ORDERS-i9")})
		expect.Equal(t, next(), "change data: 1", "after a change of ORDERS comes")
	})
}

func TestLivePageHearsOfChanges(t *testing.T) {
	httpdtest.WithInstance(t, func(t *testing.T, n *httpdtest.Bubbled) {
		resp := need.Got(n.OpenRequest(t, httpdtest.Request("GET", "/ui/live?app=ORDERS", "")))(t)
		next := eventsOf(resp.Body)
		expect.Equal(t, next(), "tick data: 0", "it begins with")
		for k := range 30 {
			n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("PAY", fmt.Sprintf("p%d", k))})
		}
		expect.Equal(t, next(), "tick data: 0", "after changes of another application comes")
		n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i2")})
		expect.Equal(t, next(), "change data: 1", "after a registration comes")
		expect.Equal(t, next(), "tick data: 0", "after five seconds without one comes")
	})
}

// TestOnlyPagesOfKeysHearOfKeys compares a page that shows keys with one that shows none, while a key is written.
func TestOnlyPagesOfKeysHearOfKeys(t *testing.T) {
	httpdtest.Bubble(t, func(t *testing.T) {
		m := fsmtest.New()
		n := httpdtest.NewBubbled(t, httpd.Config{Service: m, Coordination: fsmtest.NewCoordination(m)})
		n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
		for path, want := range map[string]int{"/": 0, "/ui/apps": 0, "/ui/held": 1, "/ui/keys?key=a": 1} {
			page := html.UnescapeString(n.Get(t, path).Body)
			_, after, _ := strings.Cut(page, `data-live="`)
			stream, _, _ := strings.Cut(after, `"`)
			streamed := make(chan string, 1)
			go func() { streamed <- n.Get(t, stream+"&wait=2s").Body }()
			time.Sleep(time.Second)
			expect.Equal(t, n.Send(t, "PUT", "/v1/kv/a", path).Body, "true", "the key is written:")
			expect.Equal(t, strings.Count(<-streamed, "event: change"), want, "%s: changes of which %s tells", path, stream)
		}
	})
}

// TestPagesLeaveWatchesToPrograms opens more pages than there are places: programs keep all of theirs.
func TestPagesLeaveWatchesToPrograms(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{Limits: web.Limits{Watchers: 20}, Cluster: httpdtest.ThreeNodes, Node: "n1"}, nil)
	n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
	open := func(path string) int {
		resp := need.Got(http.DefaultClient.Do(need.Got(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+n.Addr+path, nil))(t)))(t)
		t.Cleanup(func() { resp.Body.Close() })
		return resp.StatusCode
	}
	for _, want := range []int{200, 200, 503} {
		expect.Equal(t, open("/ui/live?app="), want, "a page that follows changes: got")
	}
	said := n.Send(t, httpdtest.Request("GET", "/v1/rollcall/overview", ""))
	expect.That(t, strings.Contains(said.Body, `"watchers":0`), "pages count as watchers: %s", said.Body)
	for range 20 {
		expect.Equal(t, open("/v1/rollcall/watch?app=ORDERS"), 200, "a watch beside them: got")
	}
}

// TestPageKnowsItsTitleAndTheOtherNodes checks what the script needs to build the page again.
func TestPageKnowsItsTitleAndTheOtherNodes(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{Node: "node1", Cluster: roles("well", "Healthy.", "follower", "follower", "leader")}, nil)
	const app = "A – $& – B"
	n.Perform(t, registry.Register{Instance: httpdtest.NewInstance(app, "i1")})
	path := "/ui/apps/" + url.PathEscape(app)
	whole := html.UnescapeString(n.Send(t, httpdtest.Request("GET", path, "")).Body)
	part := html.UnescapeString(n.Send(t, httpdtest.Request("GET", path, "", "X-Rollcall-Fragment: 1")).Body)
	const title = "A – $& – B – node1 – Rollcall"
	expect.That(t, strings.Contains(whole, "<title>"+title+"</title>"), "the title is not %q: %s", title, whole)
	for _, page := range []string{whole, part} {
		for _, want := range []string{`data-title="` + title + `"`, `data-others="{"node2":"http://127.0.0.1:8762/","node3":"http://127.0.0.1:8763/"}"`} {
			expect.That(t, strings.Contains(page, want), "the page lacks %s: %s", want, page)
		}
	}
}

// asked is a Cluster whose other nodes can be slow.
type asked struct {
	fast httpdtest.Cluster
	slow atomic.Bool
}

// Status implements web.Cluster.
func (a *asked) Status(ctx context.Context) api.Status {
	if !a.slow.Load() {
		return a.fast.Status(ctx)
	}
	<-ctx.Done()
	return roles("leaderless", "No leader.", "follower", "unreachable", "unreachable").Status(ctx)
}

// TestReaderWhoGoesAwaySilencesNoNode: the result of a page whose reader has left is shown to no other reader.
func TestReaderWhoGoesAwaySilencesNoNode(t *testing.T) {
	httpdtest.Bubble(t, func(t *testing.T) {
		nodes := &asked{fast: roles("well", "Healthy.", "follower", "follower", "leader")}
		nodes.slow.Store(true)
		n := httpdtest.NewBubbled(t, httpd.Config{Node: "node1", Cluster: nodes})
		n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
		gone, leave := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer leave()
		n.Handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil).WithContext(gone))
		nodes.slow.Store(false)
		page := n.Get(t, "/").Body
		expect.That(t, strings.Contains(page, "node3 leads; 3 of 3 nodes agree"), "after a reader went away the page says: %s", page)
	})
}

// TestOnlyTheFirstPageAfterAWhileWaitsForOtherNodes asks for pages after a long time without a reader, while the other
// nodes are slow.
func TestOnlyTheFirstPageAfterAWhileWaitsForOtherNodes(t *testing.T) {
	httpdtest.Bubble(t, func(t *testing.T) {
		nodes := &asked{fast: roles("well", "Healthy.", "follower", "follower", "leader")}
		n := httpdtest.NewBubbled(t, httpd.Config{Node: "node1", Cluster: nodes})
		ctx, end := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- n.Handler.Run(ctx) }()
		time.Sleep(time.Minute + 5500*time.Millisecond) // between two looks
		nodes.slow.Store(true)
		begun := time.Now()
		n.Get(t, "/")
		expect.Equal(t, time.Since(begun), 2*time.Second, "the first page waited for")
		for range 10 {
			time.Sleep(1700 * time.Millisecond)
			begun = time.Now()
			n.Get(t, "/")
			expect.Equal(t, time.Since(begun), 0, "a later page waited for")
		}
		end()
		need.OK(t, <-ran)
	})
}

// TestPagesAreSmallAndRememberAtTwentyThousandInstances bounds the size of a page; BenchmarkPages measures the time.
func TestPagesAreSmallAndRememberAtTwentyThousandInstances(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	n.Perform(t, manyInstances(1100, 20)...)
	first := n.Send(t, httpdtest.Request("GET", "/ui/apps/APP-00000", "")).Body
	expect.That(t, strings.Contains(first, "registered as UP"), "what happened to an application before 20,000 other changes is forgotten")
	for _, path := range largePages {
		got := n.Send(t, httpdtest.Request("GET", path, ""))
		expect.That(t, got.Status == 200 && len(got.Body) < 100_000, "GET %s: got %d with %d bytes", path, got.Status, len(got.Body))
	}
}

// largePages are the pages whose size could depend on the number of registrations.
var largePages = []string{"/", "/ui/apps", "/ui/apps?page=20", "/ui/apps?q=host-1", "/ui/apps?q=zone%3Db&status=UP", "/ui/apps/APP-00007", "/ui/apps/APP-00007/app-00007-3", "/ui/events"}

func manyInstances(apps, each int) (ops []registry.Op) {
	for a := range apps {
		for k := range each {
			i := httpdtest.NewInstance(fmt.Sprintf("APP-%05d", a), fmt.Sprintf("app-%05d-%d", a, k))
			i.HostName = fmt.Sprintf("host-%d-%d.example.com", a, k)
			i.Metadata = []registry.Pair{{Key: "zone", Value: []string{"a", "b", "c"}[k%3]}}
			ops = append(ops, registry.Register{Instance: i})
		}
	}
	return ops
}

// newActing returns a coordinated node whose pages may act.
func newActing(t *testing.T, changes ...func(*httpd.Config)) *httpdtest.Coordinated {
	t.Helper()
	config := httpd.Config{Hosts: []string{"example.com"}, Node: "node1"}
	for _, change := range changes {
		change(&config)
	}
	return httpdtest.NewCoordinated(t, config)
}

// hidden returns the value of a page's hidden field, or "" if the page lacks it.
func hidden(page, name string) string {
	_, rest, _ := strings.Cut(page, `name="`+name+`" value="`)
	value, _, _ := strings.Cut(rest, `"`)
	return html.UnescapeString(value)
}

// TestKeyFormWritesWhatWasWritten sends what browsers send: a text area's lines end in CR LF.
func TestKeyFormWritesWhatWasWritten(t *testing.T) {
	c := newActing(t)
	c.Put(t, "/v1/kv/conf/a?flags=3304740253564472344", "old")
	form := c.Get("/ui/acts/set-key?key=conf/a&cas=99&value=of+a+link").Body
	cas, flags := hidden(form, "cas"), hidden(form, "flags")
	expect.That(t, strings.Contains(form, ">\nold</textarea>") && cas != "" && cas != "99", "the form shows another value than that of the key: %s", form)
	expect.That(t, strings.Contains(html.UnescapeString(form), "rollcall kv put conf/a old --cas "+cas+" --flags 3304740253564472344 --addr"), "the form shows another command: %s", form)
	got := c.Act("set-key", "key", "conf/a", "cas", cas, "flags", flags, "value", "one\r\ntwo\r\n")
	need.That(t, got.Status == http.StatusSeeOther && got.Header.Get("Location") == "/ui/keys?done=set-key&index=now&key=conf%2Fa", "got %d to %s", got.Status, got.Header.Get("Location"))
	value, kept := c.Key(t, "conf/a")
	expect.That(t, value == "one\ntwo\n" && kept == 3304740253564472344, "the key is %q with the flags %d", value, kept)
	page := c.Get(got.Header.Get("Location")).Body
	expect.That(t, strings.Contains(page, "Done: change.") && strings.Contains(page, `href="/ui/acts/set-key?key=conf%2Fa"`), "the page of the key has no notice, or no button: %s", page)
}

func TestKeyFormThatIsOvertakenSaysSo(t *testing.T) {
	c := newActing(t)
	c.Put(t, "/v1/kv/a", "old")
	cas := hidden(c.Get("/ui/acts/set-key?key=a").Body, "cas")
	c.Put(t, "/v1/kv/a?flags=7", "of another")
	got := c.Act("set-key", "key", "a", "cas", cas, "value", "mine")
	now := hidden(got.Body, "cas")
	expect.That(t, got.Status == http.StatusConflict && strings.Contains(got.Body, "of another") && strings.Contains(got.Body, ">\nmine</textarea>") && now != cas && hidden(got.Body, "flags") == "7", "got %d %s", got.Status, got.Body)
	expect.Equal(t, c.Act("set-key", "key", "a", "cas", now, "flags", "7", "value", "mine").Status, http.StatusSeeOther, "based on the new index: got")
	c.Act("set-key", "key", "a", "cas", now, "flags", "7", "value", "mine").Says(t, http.StatusSeeOther, "", "a repeated write of the same value")
}

func TestKeyThatIsNoTextIsNotEdited(t *testing.T) {
	c := newActing(t)
	for name, value := range map[string]string{"bin": "\x00\xff", "long": strings.Repeat("a", 17<<10)} {
		c.Put(t, "/v1/kv/"+name, value)
		form := c.Get("/ui/acts/set-key?key=" + name)
		index := httpdtest.DecodeReply[httpdtest.KeyPairs](t, c.Get("/v1/kv/"+name))[0].ModifyIndex
		sent := c.Act("set-key", "key", name, "cas", strconv.FormatUint(index, 10), "value", "")
		kept, _ := c.Key(t, name)
		expect.That(t, form.Status == 422 && sent.Status == 422 && kept == value, "%s: the form has %d, sending one has %d, and %d bytes are left", name, form.Status, sent.Status, len(kept))
	}
}

func TestKeyCommandTakesEveryValue(t *testing.T) {
	c := newActing(t)
	for value, want := range map[string]string{
		"@file": "printf %s @file | rollcall kv put a - --cas ", "-": "printf %s - | rollcall kv put a - --cas ", "--x y": "printf %s '--x y' | rollcall kv put a - --cas ", "a\nb": "rollcall kv put a 'a\nb' --cas ",
	} {
		c.Put(t, "/v1/kv/a", value)
		form := html.UnescapeString(c.Get("/ui/acts/set-key?key=a").Body)
		expect.That(t, strings.Contains(form, ">"+want), "for %q the form lacks %q: %s", value, want, form)
	}
	form := html.UnescapeString(c.Get("/ui/acts/set-key?key=-a").Body)
	expect.That(t, strings.Contains(form, " -- -a ''"), "a name that begins with a dash: %s", form)
}

func TestKeyWriteOfUnknownOutcomeLeadsToItsKey(t *testing.T) {
	c := newActing(t)
	c.Put(t, "/v1/kv/a", "old")
	c.Kv.ApplyErr = registry.ErrUnknownOutcome
	got := c.Act("set-key", "key", "a", "cas", "1", "value", "v")
	expect.That(t, got.Status >= 500 && strings.Contains(got.Body, `href="/ui/keys?index=now&amp;key=a"`), "got %d %s", got.Status, got.Body)
}

// TestPageAfterAnActShowsIt uses a node that is behind, as a follower may be.
func TestPageAfterAnActShowsIt(t *testing.T) {
	status := roles("well", "Healthy.", "follower", "follower", "leader")
	c := newActing(t, func(config *httpd.Config) { config.Cluster = &status })
	session := c.Session(t, `{"Name":"nightly"}`)
	c.Put(t, "/v1/kv/lead?acquire="+session, "x")
	before := need.Got(c.Kv.View(context.Background(), registry.Stale))(t)
	held := c.Get("/ui/held").Body
	expect.That(t, strings.Contains(held, session) && strings.Contains(held, "nightly") && strings.Contains(held, "key lead"), "the page lacks a session: %s", held)
	form := c.Get("/ui/acts/end-session?session=" + session).Body
	expect.That(t, strings.Contains(form, "It holds key lead."), "the form does not say what follows: %s", form)
	got := c.Act("end-session", "session", session)
	need.That(t, got.Status == http.StatusSeeOther && got.Header.Get("Location") == "/ui/held?done=end-session&index=now", "got %d to %s", got.Status, got.Header.Get("Location"))
	c.Kv.Behind = before
	page := c.Get(got.Header.Get("Location")).Body
	expect.That(t, strings.Contains(page, "Done: end.") && !strings.Contains(page, session) && !strings.Contains(page, "have applied"), "the page shows what was: %s", page)

	_ = c.Get("/ui/nodes") // the next page would show this state unless a page acted
	status.Nodes = slices.Clone(status.Nodes)
	status.Nodes[1].Version = "9.9.1"
	expect.Equal(t, c.Act("hold", "for", "30m", "reason", "works").Status, http.StatusSeeOther, "hold: got")
	expect.That(t, strings.Contains(c.Get("/ui/nodes").Body, "9.9.1"), "after an act the page of nodes shows what was seen before it")
}

// TestLocksSayWhoHoldsThem also shows one that is free, and still listed because of its delay.
func TestLocksSayWhoHoldsThem(t *testing.T) {
	c := newActing(t)
	session := c.Session(t, `{"Name":"nightly"}`)
	expect.Equal(t, c.Send("PUT", "/v1/rollcall/locks/backup?session="+session, "").Status, http.StatusOK, "lock: got")
	lock := func() string {
		_, rest, _ := strings.Cut(c.Get("/ui/held").Body, "<code>backup</code>")
		row, _, _ := strings.Cut(rest, "</tr>")
		return row
	}
	held := lock()
	c.Act("end-session", "session", session)
	free := lock()
	expect.That(t, strings.Contains(held, `href="#`+session+`"`) && strings.Count(free, ">–</td>") == 4 && strings.Contains(free, "the last over in"), "a lock is shown as %s, and without its holder as %s", held, free)
}

func TestKeysBelowAPrefixAreNotCounted(t *testing.T) {
	c := newActing(t)
	c.Put(t, "/v1/kv/a/b", "x")
	c.Put(t, "/v1/kv/c", "y")
	all, part := c.Get("/ui/held").Body, c.Get("/ui/held?prefix=a/").Body
	expect.That(t, strings.Contains(all, "2 keys") && strings.Contains(all, `prefix=a%2F"`) && strings.Contains(all, `href="/ui/keys?key=c"`), "the page of all keys: %s", all)
	expect.That(t, !strings.Contains(part, "2 keys") && strings.Contains(part, `href="/ui/keys?key=a%2Fb"`) && !strings.Contains(part, "key=c"), "the page of a prefix: %s", part)
}

func TestFieldsOfOtherActsSkipNoQuestion(t *testing.T) {
	c := newActing(t)
	c.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
	about := []string{"app", "ORDERS", "id", "i1", "reason", "x", "for", "30m", "status", "UP"}
	for _, name := range []string{"drain", "cancel", "quarantine"} {
		expect.Equal(t, c.Act(name, about...).Status, 422, name+" of the last UP instance, with a status: got")
	}
	expect.Equal(t, c.Act("override", about...).Status, http.StatusSeeOther, "to force UP: got")
	c.Act("hold", "for", "30m", "reason", " \u200b").Says(t, 422, "reason is missing", "a reason without a visible character")
}

func TestActsThatAreOffAreOffForCallersWithANameToo(t *testing.T) {
	for _, acts := range []dashboard.Acts{"off", "auto"} {
		g := newGuarded(t, access.LogOnly, true, func(c *httpd.Config) { c.Acts = acts })
		for _, token := range []string{"reader", "operator"} {
			got := g.send("POST", "/ui/acts/hold", "for=30m&reason=x", httpdtest.FormType, "Cookie: rollcall-login="+g.texts[token])
			expect.That(t, got.Status == 422 && strings.Contains(got.Body, "dashboard.acts") && (acts == "auto") == strings.Contains(got.Body, "other machines"), "dashboard.acts %s, by %s: got %d %s", acts, token, got.Status, got.Body)
		}
	}
}

// TestFormOutlivesALogin sends a long value with an expired login.
func TestFormOutlivesALogin(t *testing.T) {
	g := newGuarded(t, access.On, true)
	value := strings.Repeat("a \"ж\"\n", 500)
	ended := g.send("POST", "/ui/acts/set-key", httpdtest.FormOf("key", "ORDERS/k", "cas", "41", "value", value), httpdtest.FormType, "Cookie: rollcall-login="+g.texts["revoked"])
	need.That(t, ended.Status == 401 && hidden(ended.Body, "next") == "/ui/acts/set-key" && hidden(ended.Body, "form.value") == value, "got %d %s", ended.Status, ended.Body)
	fields := []string{"next", "/ui/acts/set-key", "form.key", "ORDERS/k", "form.cas", "41", "form.value", value}
	wrong := g.send("POST", "/ui/login", httpdtest.FormOf(append(fields, "token", "rct_wrong")...), httpdtest.FormType)
	expect.That(t, wrong.Status == 401 && hidden(wrong.Body, "form.value") == value, "a wrong token loses the form: %d", wrong.Status)
	good := g.send("POST", "/ui/login", httpdtest.FormOf(append(fields, "token", g.texts["ORDERS"])...), httpdtest.FormType)
	need.That(t, good.Status == 200 && good.Header.Get("Set-Cookie") != "" && strings.Contains(good.Body, `action="/ui/acts/set-key"`) && hidden(good.Body, "value") == value, "got %d %s", good.Status, good.Body)
	back := g.send("POST", "/ui/acts/set-key", httpdtest.FormOf("key", "ORDERS/k", "cas", "41", "value", value, "carried", hidden(good.Body, "carried")), httpdtest.FormType, "Cookie: rollcall-login="+g.texts["ORDERS"])
	expect.That(t, back.Status == 200 && strings.Contains(html.UnescapeString(back.Body), ">\n"+value+"</textarea>") && hidden(back.Body, "cas") == "41", "got %d %s", back.Status, back.Body)
	expect.Equal(t, g.must(t, "ORDERS", "GET", "/v1/kv/ORDERS/k?raw", "").Body, "x", "the key is")
}

// TestLongNamesCanBeActedOn uses names and a reason of the maximum length.
func TestLongNamesCanBeActedOn(t *testing.T) {
	c := newActing(t)
	app, reason := strings.Repeat("Ж", 127), strings.Repeat("ж", 256)
	for _, id := range []string{"1", "2"} {
		c.Perform(t, registry.Register{Instance: httpdtest.NewInstance(app, strings.Repeat("ж", 120)+id)})
	}
	got := c.Act("drain", "app", app, "id", strings.Repeat("ж", 120)+"1", "reason", reason)
	need.That(t, got.Status == http.StatusSeeOther, "drain: got %d %s", got.Status, got.Body)
	for _, path := range []string{got.Header.Get("Location"), "/ui/apps?q=" + url.QueryEscape(strings.Repeat("Ж", 400)), "/ui/keys?key=" + strings.Repeat("k", 2100)} {
		expect.Equal(t, c.Get(path).Status, http.StatusOK, "GET of "+path[:20]+" with a long name: got")
	}
	expect.Equal(t, c.Get("/v1/rollcall/overview?q="+strings.Repeat("k", 2100)).Status, http.StatusRequestURITooLong, "of an API: got")
}

func TestNoticeOfADrainEndsWithTheLastPoll(t *testing.T) {
	httpdtest.Bubble(t, func(t *testing.T) {
		n := httpdtest.NewBubbled(t, httpd.Config{Hosts: []string{"node"}})
		for _, id := range []string{"i1", "i2"} {
			n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", id)})
		}
		const until = "may call it until"
		page := n.Get(t, "/ui/apps/ORDERS/i1?done=drain&index=now").Body
		expect.That(t, !strings.Contains(page, until), "of an instance that was not drained: %s", page)
		to := n.Post(t, "/ui/acts/drain", "app", "ORDERS", "id", "i1", "reason", "x").Header.Get("Location")
		deadline := func() string {
			_, rest, _ := strings.Cut(n.Get(t, to).Body, until)
			return rest[:min(len(rest), 60)]
		}
		first := deadline()
		time.Sleep(20 * time.Second)
		n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("PAY", "i1")})
		expect.That(t, first != "" && deadline() == first, "it was %q, and is %q after another change", first, deadline())
		time.Sleep(20 * time.Second)
		expect.Equal(t, deadline(), "", "after the time: got")
		page = n.Get(t, n.Post(t, "/ui/acts/hold", "for", "30m", "reason", "x").Header.Get("Location")).Body
		expect.That(t, strings.Contains(page, "Done: hold."), "the overview does not say what was done: %s", page)
	})
}

// TestWithoutConsensusAnActCountsNoNodes uses nodes without a common index.
func TestWithoutConsensusAnActCountsNoNodes(t *testing.T) {
	config := httpdtest.AloneConfig()
	config.Hosts, config.Node, config.Cluster = []string{"node"}, "node1", roles("well", "", "", "", "")
	httpdtest.Bubble(t, func(t *testing.T) {
		n := httpdtest.NewBubbled(t, config)
		for _, id := range []string{"i1", "i2"} {
			n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", id)})
		}
		to := n.Post(t, "/ui/acts/drain", "app", "ORDERS", "id", "i1", "reason", "x").Header.Get("Location")
		page := n.Get(t, to).Body
		expect.That(t, strings.Contains(page, "Done: drain.") && !strings.Contains(page, "applied it") && !strings.Contains(page, "does not answer"), "%s has %s", to, page)
	})
}
