package transport

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func serversOf(t *testing.T, inOrder bool, hosts ...string) *serverList {
	t.Helper()
	l := newServerList(urlsOf(hosts...), inOrder)
	need.Equal(t, len(l.order()), len(hosts), "servers in the list:")
	return l
}

func urlsOf(hosts ...string) []string {
	var urls []string
	for _, h := range hosts {
		urls = append(urls, "http://"+h)
	}
	return urls
}

func serverAt(host string) *Server {
	return &Server{URL: "http://" + host, eureka: "http://" + host + "/eureka"}
}

// hosts returns the hosts of a list in order, such as "a b c".
func (l *serverList) hosts() string {
	var hosts []string
	for _, s := range l.order() {
		hosts = append(hosts, strings.TrimPrefix(s.URL, "http://"))
	}
	return strings.Join(hosts, " ")
}

func TestServerListOrdersServersByHowTheyFared(t *testing.T) {
	fail := func(host string) func(*serverList) {
		return func(l *serverList) { l.failed(serverAt(host)) }
	}
	respond := func(host string) func(*serverList) {
		return func(l *serverList) { l.responded(serverAt(host)) }
	}
	unavailable := func(host string, seconds time.Duration) func(*serverList) {
		return func(l *serverList) { l.unavailable(serverAt(host), seconds*time.Second) }
	}
	pass := func(d time.Duration) func(*serverList) {
		return func(*serverList) { time.Sleep(d) }
	}
	set := func(hosts ...string) func(*serverList) {
		return func(l *serverList) { _, _ = l.replace(urlsOf(hosts...)) }
	}
	for _, tc := range []struct {
		name  string
		after []func(*serverList)
		want  string
	}{
		{name: "as given", want: "a b c"},
		{name: "a server that failed is last", after: []func(*serverList){fail("a")}, want: "b c a"},
		{name: "the server that failed first comes back first", after: []func(*serverList){fail("b"), pass(time.Second - 1), fail("c"), fail("a")}, want: "b a c|b c a"},
		{name: "all failed, none is left out", after: []func(*serverList){fail("c"), pass(500 * time.Millisecond), fail("b"), pass(400 * time.Millisecond), fail("a")}, want: "c b a|b c a|c a b"},
		{name: "whose time is over first comes first", after: []func(*serverList){unavailable("a", 2), unavailable("b", 3), unavailable("c", 1)}, want: "c a b"},
		{name: "the client stays with a server that responded", after: []func(*serverList){fail("a"), respond("b")}, want: "b c a"},
		{name: "also when a quarantine is over", after: []func(*serverList){fail("a"), respond("b"), pass(time.Second)}, want: "b a c"},
		{name: "a response ends a quarantine", after: []func(*serverList){fail("a"), respond("a")}, want: "a b c"},
		{name: "another's response does not end a stay", after: []func(*serverList){respond("c")}, want: "a b c"},
		{name: "a server that responds with something else is left, not put last", after: []func(*serverList){func(l *serverList) { l.unfit(serverAt("a")) }, respond("c")}, want: "c a b"},
		{name: "a new list keeps the stay", after: []func(*serverList){fail("a"), respond("b"), set("d", "b", "a")}, want: "b d a"},
		{name: "a new list may lack the server of the stay", after: []func(*serverList){fail("a"), respond("b"), set("d", "a")}, want: "d a"},
		{name: "a server given twice is one", after: []func(*serverList){set("d", "e", "d")}, want: "d e"},
		{name: "a call of one that is gone", after: []func(*serverList){set("d", "e"), fail("a"), respond("b")}, want: "d e"},
		{name: "a list with a mistake changes nothing", after: []func(*serverList){func(l *serverList) { _, _ = l.replace([]string{"http://d", "nonsense"}) }}, want: "a b c"},
		{name: "nor does an empty one", after: []func(*serverList){func(l *serverList) { _, _ = l.replace(nil) }}, want: "a b c"},
	} {
		fake.InBubble(t, tc.name, func(t *testing.T) {
			l := serversOf(t, true, "a", "b", "c")
			for _, do := range tc.after {
				do(l)
			}
			got := l.hosts()
			expect.That(t, slices.Contains(strings.Split(tc.want, "|"), got), "asked in the order %s, want %s", got, tc.want)
		})
	}
}

func TestServerListSaysWhetherANewOneDiffers(t *testing.T) {
	l := serversOf(t, true, "a", "b")
	for _, tc := range []struct {
		hosts []string
		want  bool
	}{{[]string{"a", "b"}, false}, {[]string{"a", "b", "a"}, false}, {[]string{"b", "a"}, true}, {[]string{"b"}, true}} {
		got, err := l.replace(urlsOf(tc.hosts...))
		expect.That(t, got == tc.want && err == nil, "%v: changed %v, %v, want %v", tc.hosts, got, err, tc.want)
	}
}

func TestServerListUsesANewPasswordAndKeepsTheQuarantine(t *testing.T) {
	l := newServerList([]string{"http://u:old@a", "http://b"}, true)
	l.failed(serverAt("a"))
	need.Got(l.replace([]string{"http://u:new@a", "http://b"}))(t)
	all := l.order()
	r := &http.Request{Header: make(http.Header)}
	need.OK(t, all[1].sign(r, nil))
	_, password, _ := r.BasicAuth()
	expect.That(t, all[1].URL == "http://a" && password == "new", "asked last: %s with password %q, want http://a with the new one", all[1].URL, password)
}

func TestServerListsSpreadOverTheServers(t *testing.T) {
	first, second := make(map[string]int), make(map[string]int)
	for range 300 {
		l := serversOf(t, false, "a", "b", "c")
		was, _, _ := strings.Cut(l.hosts(), " ")
		first[was]++
		for range 3 {
			again, _, _ := strings.Cut(l.hosts(), " ")
			need.That(t, again == was, "asks %s after %s, although nothing happened", again, was)
		}
		l.failed(serverAt(was))
		l.responded(l.order()[0])
		now, _, _ := strings.Cut(l.hosts(), " ")
		second[was+now]++
	}
	expect.That(t, len(first) == 3 && len(second) == 6, "begins with %v, and then goes to %v, want each server, and then each other one", first, second)
	for host, n := range first {
		expect.That(t, n >= 50, "%d of 300 begin with %s, want about 100", n, host)
	}
}

// stayAway returns how long a list stays with a server that it turned to because its favourite had failed.
func stayAway(l *serverList) time.Duration {
	l.failed(serverAt("a"))
	l.responded(serverAt("b"))
	start := time.Now()
	for l.order()[0].URL == "http://b" {
		time.Sleep(time.Second)
	}
	return time.Since(start)
}

func TestServerListGoesBackToItsFirstServerWhenItsStayEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lengths []time.Duration
		for range 200 {
			lengths = append(lengths, stayAway(serversOf(t, true, "a", "b")))
		}
		shortest, longest := slices.Min(lengths), slices.Max(lengths)
		expect.That(t, shortest >= 10*time.Minute && shortest <= 12*time.Minute && longest >= 28*time.Minute && longest <= 30*time.Minute+time.Second,
			"sessions last from %v to %v, want 10m to 30m", shortest, longest)
	})
}

func TestServerListStaysAwayWhileTheFirstServerIsInQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := serversOf(t, true, "a", "b")
		l.failed(serverAt("a"))
		l.responded(serverAt("b"))
		for range 3600 {
			time.Sleep(time.Second)
			l.failed(serverAt("a"))
			need.Equal(t, l.hosts(), "b a", "asked in the order")
		}
	})
}

func TestServerListPicksAnyServerWhenAStayEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := serversOf(t, false, "a", "b", "c")
		picked := make(map[string]int)
		for range 100 {
			time.Sleep(30*time.Minute + 1)
			picked[l.order()[0].URL]++
		}
		expect.That(t, len(picked) == 3, "100 sessions were with %v, want all three servers", picked)
	})
}

// quarantinesOf returns how long a server is asked last after each of n failures in a row.
func quarantinesOf(l *serverList, n int) []time.Duration {
	var lengths []time.Duration
	for range n {
		l.failed(serverAt("a"))
		length := time.Until(l.find(serverAt("a")).quarantine.until)
		lengths = append(lengths, length)
		time.Sleep(length)
	}
	return lengths
}

func TestQuarantineDoublesWithJitterAndAnyResponseEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		most := []time.Duration{1, 2, 4, 8, 16, 30, 30}
		seen := make([][]time.Duration, len(most))
		for range 40 {
			l := serversOf(t, true, "a", "b")
			for i, length := range quarantinesOf(l, len(most)) {
				seen[i] = append(seen[i], length)
			}
			l.responded(serverAt("a"))
			again := quarantinesOf(l, 1)[0]
			need.That(t, again <= time.Second, "after a response it lasts %v, want 1 s at most", again)
		}
		for i, lengths := range seen {
			longest := most[i] * time.Second
			least, greatest := slices.Min(lengths), slices.Max(lengths)
			expect.That(t, least >= longest/2 && greatest <= longest && greatest-least >= longest/8,
				"quarantine %d lasts from %v to %v, want it spread over %v to %v", i+1, least, greatest, longest/2, longest)
		}
	})
}

func TestQuarantineTakesCallsThatFailTogetherForOneFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := serversOf(t, true, "a", "b")
		for range 100 {
			l.failed(serverAt("a"))
		}
		time.Sleep(time.Second)
		expect.That(t, l.quarantined() == 0, "a hundred calls that failed at once cost more than the first quarantine")
	})
}

func TestQuarantineOfAServerWithoutALeaderLastsAsLongAsItSays(t *testing.T) {
	for _, tc := range []struct {
		name   string
		header string
		want   time.Duration
	}{
		{name: "none", want: time.Second},
		{name: "2 s", header: "2", want: 2 * time.Second},
		{name: "too long", header: "3600", want: 5 * time.Second},
		{name: "a date", header: "Wed, 21 Oct 2015 07:28:00 GMT", want: time.Second},
	} {
		fake.InBubble(t, tc.name, func(t *testing.T) {
			c := clusterOf(t, fake.Servers{"a": fake.Always(503, "", "Retry-After", tc.header), "b": fake.Always(200, "")}, "a", "b")
			for range 3 { // never more than that
				c.servers.pick(time.Now())
				need.OK(t, c.renew(t.Context()))
				expect.That(t, c.Quarantined() == 1, "it is not asked last")
				time.Sleep(tc.want - 1)
				expect.That(t, c.Quarantined() == 1, "it is not asked last for %v", tc.want)
				time.Sleep(time.Nanosecond)
				expect.That(t, c.Quarantined() == 0, "it is asked last for more than %v", tc.want)
			}
		})
	}
}

func TestCallDuringAnElectionCostsNoTime(t *testing.T) {
	for _, tc := range []struct {
		name string
		call func(context.Context, *Cluster) error
		none func(*http.Request) (*http.Response, error)
	}{
		{name: "Eureka", none: fake.Always(503, "", "Retry-After", "1"), call: func(ctx context.Context, c *Cluster) error {
			_, err := c.fetch(ctx, "apps")
			return err
		}},
		{name: "keys", none: fake.Always(500, "No cluster leader"), call: func(ctx context.Context, c *Cluster) error {
			_, err := c.Perform(ctx, Consul(http.MethodGet, "kv", "k"), "")
			return err
		}},
	} {
		fake.InBubble(t, tc.name, func(t *testing.T) {
			j := fake.NewJournal()
			c := clusterOf(t, fake.Servers{"a": j.Around(tc.none), "b": j.Around(tc.none), "c": j.Around(tc.none)}, "a", "b", "c")
			start := time.Now()
			for n := 1; n <= 20; n++ {
				need.That(t, tc.call(t.Context(), c) != nil, "no error without a leader")
				need.Equal(t, len(j.Times()), 3*n, "%d calls ask every server each time: requests", n)
			}
			expect.Equal(t, time.Since(start), 0, "20 calls took")
		})
	}
}

func TestQuarantineIsNotBegunByACallThatWasInterrupted(t *testing.T) {
	waiting := &Call{method: http.MethodPut, path: []string{"v1", "rollcall", "locks", "demo"}, Patience: time.Hour, Write: true}
	for _, tc := range []struct {
		name   string
		call   *Call
		within time.Duration // 0 if the caller goes away
		want   int           // servers in quarantine
	}{
		{name: "the caller goes away", call: &Call{method: http.MethodGet, path: []string{"v1"}}, want: 0},
		{name: "the caller has no time for a wait", call: waiting, within: 10 * time.Minute, want: 0},
		{name: "the caller never has much time", call: &Call{method: http.MethodGet, path: []string{"v1"}}, within: time.Second, want: 1},
	} {
		fake.InBubble(t, tc.name, func(t *testing.T) {
			c := clusterOf(t, fake.Servers{"a": fake.Silent, "b": fake.Silent}, "a", "b")
			ctx, cancel := fake.ContextWithin(t, tc.within)
			defer cancel()
			expect.ErrorIs(t, expect.Err(c.do(ctx, tc.call)), ctx.Err(), "got")
			expect.Equal(t, c.Quarantined(), tc.want, "servers in quarantine:")
		})
	}
}

func TestSiblingIsAskedAsThePresentServer(t *testing.T) {
	s := newServerList([]string{"https://u:p@a:1/prefix/eureka"}, true).sibling("10.0.0.2:8761")
	r := &http.Request{Header: make(http.Header)}
	need.OK(t, s.sign(r, nil))
	user, _, _ := r.BasicAuth()
	expect.Equal(t, fmt.Sprint(s.URL, " ", s.eureka, " ", user), "https://10.0.0.2:8761 https://10.0.0.2:8761/eureka u", "got")
	expect.Equal(t, newServerList(nil, false).sibling("b:1").URL, "http://b:1", "without any server:")
}

func TestServerURLSaysWhereEurekaAndRollcallAre(t *testing.T) {
	for _, tc := range []struct{ given, own, eureka string }{
		{"http://a:8761", "http://a:8761", "http://a:8761/eureka"},
		{"http://a:8761/", "http://a:8761", "http://a:8761/eureka"},
		{"HTTPS://a", "https://a", "https://a/eureka"},
		{"http://[::1]:8761", "http://[::1]:8761", "http://[::1]:8761/eureka"},
		{"http://a/eureka", "http://a", "http://a/eureka"},
		{"http://a/eureka/", "http://a", "http://a/eureka"},
		{"http://a/eureka//", "http://a", "http://a/eureka"},
		{"http://a/eureka/v1", "http://a", "http://a/eureka/v1"},
		{"http://a/eureka/v2/", "http://a", "http://a/eureka/v2"},
		{"http://a/v2", "http://a", "http://a/v2"},
		{"http://a/discovery", "http://a/discovery", "http://a/discovery/eureka"},
		{"http://a/discovery/eureka/v2", "http://a/discovery", "http://a/discovery/eureka/v2"},
		{"http://a/discovery/v2", "http://a/discovery", "http://a/discovery/v2"},
		{"http://a/myeureka", "http://a/myeureka", "http://a/myeureka/eureka"},
		{"http://a/eureka/v3", "http://a/eureka/v3", "http://a/eureka/v3/eureka"},
		{"http://a/with%2Fslash", "http://a/with%2Fslash", "http://a/with%2Fslash/eureka"},
		{"http://user:pass@a/eureka", "http://a", "http://a/eureka"},
	} {
		s, err := parseServer(tc.given)
		if err != nil {
			t.Errorf("%s: %v", tc.given, err)
			continue
		}
		expect.That(t, s.URL == tc.own && s.eureka == tc.eureka, "%s: own %s, Eureka's %s, want %s and %s", tc.given, s.URL, s.eureka, tc.own, tc.eureka)
	}
}

func TestServerURLsUserAndPasswordAreSentAndNotShown(t *testing.T) {
	for _, tc := range []struct{ given, user, password string }{
		{"http://user:pass@a", "user", "pass"},
		{"http://user:a:colon@a", "user", "a:colon"}, // where Spring's clients send nothing at all
		{"http://user:p%40ss%2Fw%23rd@a", "user", "p@ss/w#rd"},
		{"http://user@a", "user", ""},
	} {
		s, err := parseServer(tc.given)
		if err != nil {
			t.Errorf("%s: %v", tc.given, err)
			continue
		}
		r := &http.Request{Header: make(http.Header)}
		expect.OK(t, s.sign(r, nil))
		user, password, _ := r.BasicAuth()
		expect.That(t, user == tc.user && password == tc.password,
			"%s: signed as %s with %s, want %s with %s", tc.given, user, password, tc.user, tc.password)
		expect.That(t, s.URL == "http://a" && s.eureka == "http://a/eureka", "%s is called %s and %s, want no user in either", tc.given, s.URL, s.eureka)
	}
}

func TestInvalidServerURLIsReportedWithoutUserAndPassword(t *testing.T) {
	for given, shown := range map[string]string{
		"127.0.0.1:8761":              `"127.0.0.1:8761" is not a URL such as`,
		"ftp://a":                     `"ftp://a" is not a URL such as`,
		"http://":                     `"http://" is not a URL such as`,
		"http://a?x=1":                `"http://a?x=1" has a query or a fragment`,
		"http://a?":                   `"http://a?" has a query or a fragment`,
		"http://a/#top":               `"http://a/#top" has a query or a fragment`,
		"http://a#":                   `"http://a#" has a query or a fragment`,
		"ftp://user:secret@a":         `"ftp://…@a" is not a URL such as`,
		"http://user:secret@a?x=1":    `"http://…@a?x=1" has a query`,
		"http://user:sec#ret@a":       `"http://…@a" is not a URL such as`,
		"http://user:sec%ret@a":       `"http://…@a" is not a URL such as`,
		"user:secret@a":               `"…@a" is not a URL such as`,
		"user:sec://ret@a":            `"…@a" is not a URL such as`,
		"http://user:secret@a?x=y@z":  `"http://…@z" has a query`,
		"http://user:secret@a:port/x": `"http://…@a:port/x" is not a URL such as`,
		"unix:":                       `"unix:" names no socket`,
	} {
		_, err := parseServer(given)
		expect.That(t, err != nil && strings.Contains(err.Error(), shown), "%s: %v, want …%s…", given, err, shown)
		expect.That(t, err == nil || !strings.Contains(err.Error(), "sec") && !strings.Contains(err.Error(), "user"),
			"%s: %v shows user or password", given, err)
	}
}

func FuzzServerURL(f *testing.F) {
	for _, text := range []string{
		"http://a:8761", "https://user:pass@a/x/eureka/v2/", "http://a?x", "user:pass@a", "http://[::1]:1/v2", "http://u:p@a%zz", "http://a/%2F//eureka/", "unix:/x/admin.sock", "unix://", "",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseServer(text)
		if err != nil {
			if at := strings.LastIndexByte(text, '@'); at > 0 {
				if _, hidden, _ := strings.Cut(text[:at], "://"); len(hidden) > 3 && !strings.Contains("server … is not a URL such as http://127.0.0.1:8761 has a query or a fragment; give scheme, host and path only"+text[at:], hidden) && strings.Contains(err.Error(), hidden) {
					t.Errorf("%q: %v shows what stands before the host", text, err)
				}
			}
			return
		}
		for _, shown := range []string{s.URL, s.eureka} {
			again, err := parseServer(shown)
			switch {
			case err != nil:
				t.Errorf("%q became %q, which is not taken: %v", text, shown, err)
			case again.auth != nil:
				t.Errorf("%q became %q, which has a user", text, shown)
			}
			expect.That(t, !strings.HasSuffix(shown, "/"), "%q became %q, which ends in a slash", text, shown)
		}
		if again, _ := parseServer(s.eureka); again != nil && again.eureka != s.eureka {
			t.Errorf("%q: Eureka's base %q is taken for one of %q", text, s.eureka, again.eureka)
		}
		expect.OKf(t, expect.Err(http.NewRequest(http.MethodGet, s.eureka+"/apps", nil)), "%q", text)
	})
}
