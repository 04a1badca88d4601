package httpdtest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// watches are the ways to follow changes.
var watches = []check{
	{"ALongPollTellsEveryChangeOnce", func(t *testing.T, c *client) {
		last := c.live(t, func(from string) (changes []any, index string) {
			doc := c.getJSON("/v1/rollcall/watch?wait=30s&app=" + strings.ToLower(c.app) + "&index=" + from)
			return at(t, doc, "changes").([]any), text(t, doc, "index")
		})
		doc := c.getJSON("/v1/rollcall/watch?wait=0s&app=" + c.app + "&index=" + last)
		expect.That(t, len(at(t, doc, "changes").([]any)) == 0, "it is told again: %v", doc)
	}},
	{"AStreamTellsEveryChangeOnceAndIsResumed", func(t *testing.T, c *client) {
		c.live(t, func(from string) (changes []any, index string) { // a new stream for each change
			name, id, doc := c.nextEvent(from)
			need.That(t, name == "change" && text(t, doc, "index") == id, "after %s: got %s %s %v", from, name, id, doc)
			return []any{doc}, id
		})
	}},
	{"AnIndexOfAnotherHistoryIsTooOld", func(t *testing.T, c *client) {
		resp := c.want(http.StatusGone, http.MethodGet, "/v1/rollcall/watch?wait=0s&index=elsewhere-1", "")
		index := text(t, decode(t, resp.body), "index")
		c.want(http.StatusOK, http.MethodGet, "/v1/rollcall/watch?wait=0s&index="+index, "")
		name, _, _ := c.nextEvent("elsewhere-1")
		expect.Equal(t, name, "reset", "the stream has")
	}},
}

// lifeChanges are the changes caused by a registration and the steps after it.
var lifeChanges = []string{"ADDED registered UP", "MODIFIED changed OUT_OF_SERVICE", "DELETED quarantined OUT_OF_SERVICE", "ADDED changed OUT_OF_SERVICE", "DELETED canceled OUT_OF_SERVICE"}

// live registers an instance, makes each change when the previous one has arrived, and expects the changes of
// lifeChanges. next returns the changes after an index, and the index to resume from; live returns the last index.
func (c *client) live(t *testing.T, next func(from string) (changes []any, index string)) (last string) {
	t.Helper()
	last = c.now()
	c.register(registration{id: "i1"})
	var told []string
	for {
		var changes []any
		changes, last = next(last)
		need.That(t, len(changes) != 0, "after %v nothing more is told", told)
		for _, change := range changes {
			checkInstance(t, at(t, change, "instance"), false)
			told = append(told, fmt.Sprintf("%s %s %s", text(t, change, "action"), text(t, change, "why"), text(t, change, "status")))
		}
		if len(told) >= len(lifeChanges) {
			expect.Slice(t, told, lifeChanges, "it is told of")
			return last
		}
		c.step("i1", len(told))
	}
}

// step makes the n-th change after the registration.
func (c *client) step(id string, n int) {
	c.t.Helper()
	steps := []struct{ method, path string }{
		1: {http.MethodPut, "/override?value=OUT_OF_SERVICE&author=conformance"},
		2: {http.MethodPut, "/quarantine?for=1h&author=conformance"},
		3: {http.MethodDelete, "/quarantine"},
	}
	if n < len(steps) {
		c.want(http.StatusOK, steps[n].method, c.ownPath(id, steps[n].path), "")
		return
	}
	c.wantEmpty(http.StatusOK, http.MethodDelete, c.path(id, ""), "")
}

// now returns the registry's index.
func (c *client) now() string {
	c.t.Helper()
	return text(c.t, c.getJSON("/v1/rollcall/watch?wait=0s"), "index")
}

// ownPath returns the path of an instance of the client's application in Rollcall's own API.
func (c *client) ownPath(id, rest string) string {
	return "/v1/rollcall/apps/" + c.app + "/" + id + rest
}

// nextEvent opens a stream and returns its first event after the start.
func (c *client) nextEvent(index string) (name, id string, doc map[string]any) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), liveness)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/v1/rollcall/watch?app="+c.app+"&index="+index, nil)
	need.OK(c.t, err)
	resp, err := transport.RoundTrip(req)
	need.OK(c.t, err)
	defer resp.Body.Close()
	kind := resp.Header.Get("Content-Type")
	need.That(c.t, resp.StatusCode == http.StatusOK && kind == "text/event-stream", "watch: got %d %s", resp.StatusCode, kind)
	for events := api.NewEventReader(resp.Body, 64<<10); ; {
		e, err := events.Next()
		need.That(c.t, err == nil, "watch: the stream ended without an event: %v", err)
		if len(e.Name) > 0 && string(e.Name) != "start" {
			return string(e.Name), string(e.ID), decode(c.t, string(e.Data))
		}
	}
}

// acts covers operators' acts and what reads show about them.
var acts = []check{
	{"TheQuarantinedAreInNoListAndRenew", func(t *testing.T, c *client) {
		hidden, shown := "hidden-of-"+c.app, "shown-of-"+c.app
		c.register(registration{id: hidden, vip: c.app})
		c.register(registration{id: shown, vip: c.app})
		c.want(http.StatusOK, http.MethodPut, c.ownPath(hidden, "/quarantine?for=1h"), "")
		for _, path := range []string{"/eureka/apps", "/eureka/apps/" + c.app, "/eureka/vips/" + c.app, "/eureka/svips/" + c.app, "/v1/rollcall/apps?app=" + c.app} {
			body := c.want(http.StatusOK, http.MethodGet, path, "", "Accept", "application/json").body
			expect.That(t, !strings.Contains(body, "host.hidden-of-"+c.app) && strings.Contains(body, "host.shown-of-"+c.app), "GET %s shows the wrong one: %.300s", path, body)
		}
		c.want(http.StatusNotFound, http.MethodGet, c.path(hidden, ""), "")
		c.wantEmpty(http.StatusOK, http.MethodPut, c.path(hidden, ""), "")
		expect.Equal(t, c.inDelta(hidden), "DELETED", "the delta shows it as")
		body := c.want(http.StatusOK, http.MethodGet, "/v1/rollcall/apps?quarantined=true&app="+c.app, "").body
		expect.That(t, strings.Contains(body, `"quarantined_until":`), "asked for, it is not listed: %s", body)
		expect.Equal(t, text(t, c.explain(hidden), "state"), "quarantined", "it is explained as")
		c.want(http.StatusOK, http.MethodDelete, c.ownPath(hidden, "/quarantine"), "")
		c.wantStatus(hidden, "UP")
		expect.Equal(t, c.inDelta(hidden), "ADDED", "the delta shows it as")
	}},
	{"ALifeIsExplainedAlsoWhenItIsOver", func(t *testing.T, c *client) {
		c.want(http.StatusNotFound, http.MethodGet, c.ownPath("i1", "/explain"), "")
		c.register(registration{id: "i1"})
		doc := c.explain("i1")
		expect.That(t, text(t, doc, "state") == "listed" && text(t, doc, "status") == "UP" && strings.Contains(text(t, doc, "summary"), c.app+"/i1 is listed as UP."), "alive, it is explained as %v", doc)
		c.wantEmpty(http.StatusOK, http.MethodDelete, c.path("i1", ""), "")
		doc = c.explain("i1")
		expect.That(t, text(t, doc, "state") == "gone" && text(t, doc, "removed", "kind") == "canceled" && strings.Contains(text(t, doc, "summary"), "it was canceled at"), "gone, it is explained as %v", doc)
		history := at(t, doc, "history").([]any)
		expect.That(t, len(history) == 2 && text(t, history[0], "what") == "registered" && text(t, history[1], "what") == "canceled", "its history is %v", history)
	}},
}

func (c *client) explain(id string) map[string]any {
	c.t.Helper()
	return c.getJSON(c.ownPath(id, "/explain"))
}

// inDelta returns the delta's actionType for an instance of the client's application.
func (c *client) inDelta(id string) string {
	c.t.Helper()
	for _, app := range at(c.t, c.getJSON("/eureka/apps/delta"), "applications", "application").([]any) {
		if text(c.t, app, "name") != c.app {
			continue
		}
		for _, instance := range at(c.t, app, "instance").([]any) {
			if text(c.t, instance, "instanceId") == id {
				return text(c.t, instance, "actionType")
			}
		}
	}
	return ""
}

// eventually waits for a condition that the server reaches without further calls.
func (c *client) eventually(what string, holds func() bool) {
	c.t.Helper()
	for end := time.Now().Add(liveness); !holds(); time.Sleep(10 * time.Millisecond) {
		need.That(c.t, !time.Now().After(end), "waited %v until %s", liveness, what)
	}
}
