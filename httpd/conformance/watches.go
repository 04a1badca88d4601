package conformance

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// liveness bounds what must happen soon.
const liveness = time.Minute

// watches are the ways to be told of changes.
var watches = []check{
	{"ALongPollTellsEveryChangeOnce", func(t *testing.T, c *client) {
		from := c.now()
		c.register(registration{id: "i1"})
		var told []string
		for len(told) < 5 {
			doc := c.getJSON("/v1/rollcall/watch?wait=30s&app=" + strings.ToLower(c.app) + "&index=" + from)
			changes := at(t, doc, "changes").([]any)
			if len(changes) == 0 {
				t.Fatalf("after %v nothing more is told", told)
			}
			for _, change := range changes {
				told = append(told, toldOf(t, change))
			}
			from = text(t, doc, "index")
			if len(told) < 5 {
				c.step("i1", len(told))
			}
		}
		if got, want := strings.Join(told, ", "), strings.Join(lifeTold, ", "); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if doc := c.getJSON("/v1/rollcall/watch?wait=0s&app=" + c.app + "&index=" + from); len(at(t, doc, "changes").([]any)) != 0 {
			t.Errorf("it is told again: %v", doc)
		}
	}},
	{"AStreamTellsEveryChangeOnceAndIsResumed", func(t *testing.T, c *client) {
		from := c.now()
		c.register(registration{id: "i1"})
		var told []string
		for len(told) < 5 { // a new stream for each change
			name, id, doc := c.nextEvent(from)
			if name != "change" || text(t, doc, "index") != id {
				t.Fatalf("after %v: got %s %s %v", told, name, id, doc)
			}
			told, from = append(told, toldOf(t, doc)), id
			if len(told) < 5 {
				c.step("i1", len(told))
			}
		}
		if got, want := strings.Join(told, ", "), strings.Join(lifeTold, ", "); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}},
	{"AnIndexThatIsNoneOrInTheFutureIs400", func(t *testing.T, c *client) {
		now := c.now()
		for _, index := range []string{"", "x", "7", now + "0000", now + "x"} {
			for _, wait := range []string{"", "&wait=0s"} {
				a := c.want(http.StatusBadRequest, http.MethodGet, "/v1/rollcall/watch?index="+index+wait, "")
				text(t, decode(t, a.body), "error")
			}
		}
	}},
	{"AnIndexOfAnotherHistoryIsTooOld", func(t *testing.T, c *client) {
		a := c.want(http.StatusGone, http.MethodGet, "/v1/rollcall/watch?wait=0s&index=elsewhere-1", "")
		index := text(t, decode(t, a.body), "index")
		c.want(http.StatusOK, http.MethodGet, "/v1/rollcall/watch?wait=0s&index="+index, "")
		if name, _, _ := c.nextEvent("elsewhere-1"); name != "reset" {
			t.Errorf("the stream has %q, want a reset", name)
		}
	}},
}

// lifeTold is what is told of a registration and the steps after it.
var lifeTold = []string{"ADDED registered UP", "MODIFIED changed OUT_OF_SERVICE", "DELETED quarantined OUT_OF_SERVICE", "ADDED changed OUT_OF_SERVICE", "DELETED canceled OUT_OF_SERVICE"}

// step makes the n-th change after the registration.
func (c *client) step(id string, n int) {
	c.t.Helper()
	steps := []struct{ method, path string }{
		1: {http.MethodPut, "/override?value=OUT_OF_SERVICE&author=conformance"},
		2: {http.MethodPut, "/quarantine?for=1h&author=conformance"},
		3: {http.MethodDelete, "/quarantine"},
	}
	if n < len(steps) {
		c.want(http.StatusOK, steps[n].method, c.own(id, steps[n].path), "")
		return
	}
	c.wantEmpty(http.StatusOK, http.MethodDelete, c.path(id, ""), "")
}

// toldOf is a change in three words.
func toldOf(t *testing.T, change any) string {
	t.Helper()
	checkInstance(t, at(t, change, "instance"), false)
	return fmt.Sprintf("%s %s %s", text(t, change, "action"), text(t, change, "why"), text(t, change, "status"))
}

// now is where the registry is.
func (c *client) now() string {
	c.t.Helper()
	return text(c.t, c.getJSON("/v1/rollcall/watch?wait=0s"), "index")
}

// own is the path of an instance of the client's application in Rollcall's own API.
func (c *client) own(id, rest string) string { return "/v1/rollcall/apps/" + c.app + "/" + id + rest }

// nextEvent opens a stream and returns its first event after the start.
func (c *client) nextEvent(index string) (name, id string, doc map[string]any) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), liveness)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/v1/rollcall/watch?app="+c.app+"&index="+index, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || kind != "text/event-stream" {
		c.t.Fatalf("watch: got %d %s", resp.StatusCode, kind)
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch field {
		case "event":
			name = value
		case "id":
			id = value
		case "data":
			doc = decode(c.t, value)
		case "":
			if name != "" && name != "start" {
				return name, id, doc
			}
		}
	}
	c.t.Fatalf("watch: the stream ended without an event: %v", lines.Err())
	return "", "", nil
}
