package httpd_test

import (
	"context"
	"html"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

const formType = "Content-Type: application/x-www-form-urlencoded"

// formOf is the body of a form.
func formOf(fields ...string) string {
	form := url.Values{}
	for i := 0; i+1 < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	return form.Encode()
}

// newActing is a coordinated node whose pages may act.
func newActing(t *testing.T, changes ...func(*httpd.Config)) *coordinated {
	t.Helper()
	config := httpd.Config{Hosts: []string{"example.com"}, Node: "node1"}
	for _, change := range changes {
		change(&config)
	}
	return newCoordinated(t, config)
}

// act sends the form of an act.
func (c *coordinated) act(name string, fields ...string) reply {
	return c.send(http.MethodPost, "/ui/acts/"+name, formOf(fields...), formType)
}

// hidden is the value of a hidden field of a page; "": it has none.
func hidden(page, name string) string {
	_, rest, _ := strings.Cut(page, `name="`+name+`" value="`)
	value, _, _ := strings.Cut(rest, `"`)
	return html.UnescapeString(value)
}

type keyPairs []struct {
	Value       []byte
	Flags       uint64
	ModifyIndex uint64
}

// key is a key as the API has it.
func (c *coordinated) key(t *testing.T, name string) (value string, flags uint64) {
	t.Helper()
	pairs := decodeReply[keyPairs](t, c.get("/v1/kv/"+name))
	return string(pairs[0].Value), pairs[0].Flags
}

// TestKeyFormWritesWhatWasWritten sends what browsers send: the line ends of a text area are CR LF.
func TestKeyFormWritesWhatWasWritten(t *testing.T) {
	c := newActing(t)
	c.put(t, "/v1/kv/conf/a?flags=3304740253564472344", "old")
	form := c.get("/ui/acts/set-key?key=conf/a&cas=99&value=of+a+link").body
	cas, flags := hidden(form, "cas"), hidden(form, "flags")
	expect.That(t, strings.Contains(form, ">\nold</textarea>") && cas != "" && cas != "99", "the form shows another value than that of the key: %s", form)
	expect.That(t, strings.Contains(html.UnescapeString(form), "rollcall kv put conf/a old --cas "+cas+" --flags 3304740253564472344 --addr"), "the form shows another command: %s", form)
	got := c.act("set-key", "key", "conf/a", "cas", cas, "flags", flags, "value", "one\r\ntwo\r\n")
	need.That(t, got.status == http.StatusSeeOther && got.header.Get("Location") == "/ui/keys?done=set-key&index=now&key=conf%2Fa", "got %d to %s", got.status, got.header.Get("Location"))
	value, kept := c.key(t, "conf/a")
	expect.That(t, value == "one\ntwo\n" && kept == 3304740253564472344, "the key is %q with the flags %d", value, kept)
	page := c.get(got.header.Get("Location")).body
	expect.That(t, strings.Contains(page, "Done: change.") && strings.Contains(page, `href="/ui/acts/set-key?key=conf%2Fa"`), "the page of the key has no notice, or no button: %s", page)
}

func TestKeyFormThatIsOvertakenSaysSo(t *testing.T) {
	c := newActing(t)
	c.put(t, "/v1/kv/a", "old")
	cas := hidden(c.get("/ui/acts/set-key?key=a").body, "cas")
	c.put(t, "/v1/kv/a?flags=7", "of another")
	got := c.act("set-key", "key", "a", "cas", cas, "value", "mine")
	now := hidden(got.body, "cas")
	expect.That(t, got.status == http.StatusConflict && strings.Contains(got.body, "of another") && strings.Contains(got.body, ">\nmine</textarea>") && now != cas && hidden(got.body, "flags") == "7", "got %d %s", got.status, got.body)
	expect.Equal(t, c.act("set-key", "key", "a", "cas", now, "flags", "7", "value", "mine").status, http.StatusSeeOther, "based on the new index: got")
	c.act("set-key", "key", "a", "cas", now, "flags", "7", "value", "mine").says(t, http.StatusSeeOther, "", "a repeated write of the same value")
}

func TestKeyThatIsNoTextIsNotEdited(t *testing.T) {
	c := newActing(t)
	for name, value := range map[string]string{"bin": "\x00\xff", "long": strings.Repeat("a", 17<<10)} {
		c.put(t, "/v1/kv/"+name, value)
		form := c.get("/ui/acts/set-key?key=" + name)
		index := decodeReply[keyPairs](t, c.get("/v1/kv/"+name))[0].ModifyIndex
		sent := c.act("set-key", "key", name, "cas", strconv.FormatUint(index, 10), "value", "")
		kept, _ := c.key(t, name)
		expect.That(t, form.status == 422 && sent.status == 422 && kept == value, "%s: the form has %d, sending one has %d, and %d bytes are left", name, form.status, sent.status, len(kept))
	}
}

func TestKeyCommandTakesEveryValue(t *testing.T) {
	c := newActing(t)
	for value, want := range map[string]string{
		"@file": "printf %s @file | rollcall kv put a - --cas ", "-": "printf %s - | rollcall kv put a - --cas ", "--x y": "printf %s '--x y' | rollcall kv put a - --cas ", "a\nb": "rollcall kv put a 'a\nb' --cas ",
	} {
		c.put(t, "/v1/kv/a", value)
		form := html.UnescapeString(c.get("/ui/acts/set-key?key=a").body)
		expect.That(t, strings.Contains(form, ">"+want), "for %q the form lacks %q: %s", value, want, form)
	}
	form := html.UnescapeString(c.get("/ui/acts/set-key?key=-a").body)
	expect.That(t, strings.Contains(form, " -- -a ''"), "a name that begins with a dash: %s", form)
}

func TestKeyWriteOfUnknownOutcomeLeadsToItsKey(t *testing.T) {
	c := newActing(t)
	c.put(t, "/v1/kv/a", "old")
	c.kv.ApplyErr = registry.ErrUnknownOutcome
	got := c.act("set-key", "key", "a", "cas", "1", "value", "v")
	expect.That(t, got.status >= 500 && strings.Contains(got.body, `href="/ui/keys?index=now&amp;key=a"`), "got %d %s", got.status, got.body)
}

// TestPageAfterAnActShowsIt is of a node that is behind, as a follower may be.
func TestPageAfterAnActShowsIt(t *testing.T) {
	status := roles("well", "Healthy.", "follower", "follower", "leader")
	c := newActing(t, func(config *httpd.Config) { config.Cluster = &status })
	session := c.session(t, `{"Name":"nightly"}`)
	c.put(t, "/v1/kv/lead?acquire="+session, "x")
	before := need.Got(c.kv.View(context.Background(), registry.Stale))(t)
	held := c.get("/ui/held").body
	expect.That(t, strings.Contains(held, session) && strings.Contains(held, "nightly") && strings.Contains(held, "key lead"), "the page lacks a session: %s", held)
	form := c.get("/ui/acts/end-session?session=" + session).body
	expect.That(t, strings.Contains(form, "It holds key lead."), "the form does not say what follows: %s", form)
	got := c.act("end-session", "session", session)
	need.That(t, got.status == http.StatusSeeOther && got.header.Get("Location") == "/ui/held?done=end-session&index=now", "got %d to %s", got.status, got.header.Get("Location"))
	c.kv.Behind = before
	page := c.get(got.header.Get("Location")).body
	expect.That(t, strings.Contains(page, "Done: end.") && !strings.Contains(page, session) && !strings.Contains(page, "have applied"), "the page shows what was: %s", page)

	_ = c.get("/ui/nodes") // is what the next one shows, unless a page acts
	status.Nodes = slices.Clone(status.Nodes)
	status.Nodes[1].Version = "9.9.1"
	expect.Equal(t, c.act("hold", "for", "30m", "reason", "works").status, http.StatusSeeOther, "hold: got")
	expect.That(t, strings.Contains(c.get("/ui/nodes").body, "9.9.1"), "after an act the page of nodes shows what was seen before it")
}

func TestKeysBelowAPrefixAreNotCounted(t *testing.T) {
	c := newActing(t)
	c.put(t, "/v1/kv/a/b", "x")
	c.put(t, "/v1/kv/c", "y")
	all, part := c.get("/ui/held").body, c.get("/ui/held?prefix=a/").body
	expect.That(t, strings.Contains(all, "2 keys") && strings.Contains(all, `prefix=a%2F"`) && strings.Contains(all, `href="/ui/keys?key=c"`), "the page of all keys: %s", all)
	expect.That(t, !strings.Contains(part, "2 keys") && strings.Contains(part, `href="/ui/keys?key=a%2Fb"`) && !strings.Contains(part, "key=c"), "the page of a prefix: %s", part)
}

func TestFieldsOfOtherActsSkipNoQuestion(t *testing.T) {
	c := newActing(t)
	c.Perform(t, registry.Register{Instance: newInstance("ORDERS", "i1")})
	about := []string{"app", "ORDERS", "id", "i1", "reason", "x", "for", "30m", "status", "UP"}
	for _, name := range []string{"drain", "cancel", "quarantine"} {
		expect.Equal(t, c.act(name, about...).status, 422, name+" of the last UP instance, with a status: got")
	}
	expect.Equal(t, c.act("override", about...).status, http.StatusSeeOther, "to force UP: got")
	c.act("hold", "for", "30m", "reason", " \u200b").says(t, 422, "reason is missing", "a reason without a visible character")
}

func TestActsThatAreOffAreOffForCallersWithANameToo(t *testing.T) {
	for _, acts := range []httpd.Acts{"off", "auto"} {
		g := newGuarded(t, access.LogOnly, true, func(c *httpd.Config) { c.Acts = acts })
		for _, token := range []string{"reader", "operator"} {
			got := g.send("POST", "/ui/acts/hold", "for=30m&reason=x", formType, "Cookie: rollcall-login="+g.texts[token])
			expect.That(t, got.status == 422 && strings.Contains(got.body, "dashboard.acts") && (acts == "auto") == strings.Contains(got.body, "other machines"), "dashboard.acts %s, by %s: got %d %s", acts, token, got.status, got.body)
		}
	}
}

// TestFormOutlivesALogin sends a long value with a login that has ended.
func TestFormOutlivesALogin(t *testing.T) {
	g := newGuarded(t, access.On, true)
	value := strings.Repeat("a \"ж\"\n", 500)
	ended := g.send("POST", "/ui/acts/set-key", formOf("key", "ORDERS/k", "cas", "41", "value", value), formType, "Cookie: rollcall-login="+g.texts["revoked"])
	need.That(t, ended.status == 401 && hidden(ended.body, "next") == "/ui/acts/set-key" && hidden(ended.body, "form.value") == value, "got %d %s", ended.status, ended.body)
	fields := []string{"next", "/ui/acts/set-key", "form.key", "ORDERS/k", "form.cas", "41", "form.value", value}
	wrong := g.send("POST", "/ui/login", formOf(append(fields, "token", "rct_wrong")...), formType)
	expect.That(t, wrong.status == 401 && hidden(wrong.body, "form.value") == value, "a wrong token loses the form: %d", wrong.status)
	good := g.send("POST", "/ui/login", formOf(append(fields, "token", g.texts["ORDERS"])...), formType)
	need.That(t, good.status == 200 && good.header.Get("Set-Cookie") != "" && strings.Contains(good.body, `action="/ui/acts/set-key"`) && hidden(good.body, "value") == value, "got %d %s", good.status, good.body)
	back := g.send("POST", "/ui/acts/set-key", formOf("key", "ORDERS/k", "cas", "41", "value", value, "carried", hidden(good.body, "carried")), formType, "Cookie: rollcall-login="+g.texts["ORDERS"])
	expect.That(t, back.status == 200 && strings.Contains(html.UnescapeString(back.body), ">\n"+value+"</textarea>") && hidden(back.body, "cas") == "41", "got %d %s", back.status, back.body)
	kept := g.must(t, "ORDERS", "GET", "/v1/kv/ORDERS/k?raw", "").body
	expect.Equal(t, kept, "x", "the key is")
}

// TestLongNamesCanBeActedOn uses names and a reason of the greatest length.
func TestLongNamesCanBeActedOn(t *testing.T) {
	c := newActing(t)
	app, reason := strings.Repeat("Ж", 127), strings.Repeat("ж", 256)
	for _, id := range []string{"1", "2"} {
		c.Perform(t, registry.Register{Instance: newInstance(app, strings.Repeat("ж", 120)+id)})
	}
	got := c.act("drain", "app", app, "id", strings.Repeat("ж", 120)+"1", "reason", reason)
	need.That(t, got.status == http.StatusSeeOther, "drain: got %d %s", got.status, got.body)
	for _, path := range []string{got.header.Get("Location"), "/ui/apps?q=" + url.QueryEscape(strings.Repeat("Ж", 400)), "/ui/keys?key=" + strings.Repeat("k", 2100)} {
		expect.Equal(t, c.get(path).status, http.StatusOK, "GET of "+path[:20]+" with a long name: got")
	}
	expect.Equal(t, c.get("/v1/rollcall/overview?q="+strings.Repeat("k", 2100)).status, http.StatusRequestURITooLong, "of an API: got")
}

func TestNoticeOfADrainEndsWithTheLastPoll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newBubbled(t, httpd.Config{Hosts: []string{"node"}})
		for _, id := range []string{"i1", "i2"} {
			n.Perform(t, registry.Register{Instance: newInstance("ORDERS", id)})
		}
		const until = "may call it until"
		page := n.get(t, "/ui/apps/ORDERS/i1?done=drain&index=now").body
		expect.That(t, !strings.Contains(page, until), "of an instance that was not drained: %s", page)
		to := n.post(t, "/ui/acts/drain", "app", "ORDERS", "id", "i1", "reason", "x").header.Get("Location")
		deadline := func() string {
			_, rest, _ := strings.Cut(n.get(t, to).body, until)
			return rest[:min(len(rest), 60)]
		}
		first := deadline()
		time.Sleep(20 * time.Second)
		n.Perform(t, registry.Register{Instance: newInstance("PAY", "i1")})
		expect.That(t, first != "" && deadline() == first, "it was %q, and is %q after another change", first, deadline())
		time.Sleep(20 * time.Second)
		expect.Equal(t, deadline(), "", "after the time: got")
		page = n.get(t, n.post(t, "/ui/acts/hold", "for", "30m", "reason", "x").header.Get("Location")).body
		expect.That(t, strings.Contains(page, "Done: hold."), "the overview does not say what was done: %s", page)
	})
}

// TestWithoutConsensusAnActCountsNoNodes is of nodes that have no index in common.
func TestWithoutConsensusAnActCountsNoNodes(t *testing.T) {
	config := aloneConfig()
	config.Hosts, config.Node, config.Cluster = []string{"node"}, "node1", roles("well", "", "", "", "")
	bubble(t, func(t *testing.T) {
		n := newBubbled(t, config)
		for _, id := range []string{"i1", "i2"} {
			n.Perform(t, registry.Register{Instance: newInstance("ORDERS", id)})
		}
		to := n.post(t, "/ui/acts/drain", "app", "ORDERS", "id", "i1", "reason", "x").header.Get("Location")
		page := n.get(t, to).body
		expect.That(t, strings.Contains(page, "Done: drain.") && !strings.Contains(page, "applied it") && !strings.Contains(page, "does not answer"), "%s has %s", to, page)
	})
}
