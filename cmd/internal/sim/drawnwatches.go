package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// picture is what a client knows of the registry: instances by APP/id, each as its status and its number.
type picture map[string]string

// of returns the part of it that a watcher of one application sees; "" means all.
func (p picture) of(app string) picture {
	part := maps.Clone(p)
	maps.DeleteFunc(part, func(name, _ string) bool { return app != "" && !strings.HasPrefix(name, app+"/") })
	return part
}

// hash returns the hash that Eureka's clients compute of what they know.
func (p picture) hash() (text string) {
	counts := map[string]int{}
	for _, is := range p {
		status, _, _ := strings.Cut(is, " ")
		counts[status]++
	}
	for _, status := range slices.Sorted(maps.Keys(counts)) {
		text += fmt.Sprintf("%s_%d_", status, counts[status])
	}
	return text
}

// change applies a change to it.
func (p picture) change(action, app, id, status, number string) {
	if action == "DELETED" {
		delete(p, app+"/"+id)
		return
	}
	p[app+"/"+id] = status + " " + number
}

// applications is a list, or a delta, of Eureka's protocol.
type applications struct {
	Applications struct {
		Hash        string `json:"apps__hashcode"`
		Application []struct {
			Instance []struct {
				Listed
				App    string `json:"app"`
				Action string `json:"actionType"`
			}
		}
	}
}

// applyTo applies a delta; one of a full list has only what is there.
func (a applications) applyTo(p picture) {
	for _, app := range a.Applications.Application {
		for _, i := range app.Instance {
			p.change(i.Action, i.App, i.ID, i.Status, i.Metadata["n"])
		}
	}
}

// watcher is a client that keeps a picture up to date, in one way.
type watcher struct {
	l     *load
	kind  string
	whole bool // it watches everything, not only what ends

	place  int       // of the node that a poll asks
	polled time.Time // when the last delta was asked for

	mu    sync.Mutex
	node  string    // that it reads from, or ""
	since time.Time // since when it does without a break
	shown picture
}

// whatEnds is the application that changes in every way: its instances are registered, changed and canceled, and end.
const whatEnds = "DEAD"

// startWatches starts a watcher of each kind, and changes what they watch.
func (l *load) startWatches() {
	number := 0
	l.task(1700*time.Millisecond, func() {
		number++
		id, method, path, body := fmt.Sprint("w", l.draw(5)), "POST", "/eureka/apps/"+whatEnds, ""
		switch l.draw(5) {
		case 0:
			method, path = "DELETE", path+"/"+id
		case 1:
			method, path = "PUT", path+"/"+id+"/status?value="+[]string{"OUT_OF_SERVICE", "UP"}[l.draw(2)]
		default:
			body = Registration(whatEnds, id, shortLease, map[string]string{"n": strconv.Itoa(number)})
		}
		l.count("churn", l.ask("churn", l.node(), method, path, body).Outcome())
	})
	ctx, cancel := context.WithCancel(context.Background())
	j := l.w.newJob()
	l.w.ends = append(l.w.ends, cancel)
	start := func(kind string, whole bool, run func(*watcher)) {
		v := &watcher{l: l, kind: kind, whole: whole, shown: picture{}}
		l.watchers = append(l.watchers, v)
		run(v)
	}
	start("stream", true, func(v *watcher) { j.workers.Go(func() { v.stream(ctx) }) })
	start("delta", true, func(v *watcher) {
		v.poll()
		l.task(9*time.Second, v.poll)
	})
	if l.w.Mode() == config.CP {
		start("blocking query", false, func(v *watcher) { j.workers.Go(func() { v.query(j) }) })
	}
	start("library", false, func(*watcher) {
		believing := client.DiscoveryConfig{App: whatEnds, Guard: client.Guard{Share: -1}}
		l.library.list = need.Got(l.library.client.StartDiscovery(believing))(l.w)
	})
	next := 0
	l.task(900*time.Millisecond, func() {
		next++
		l.watchers[next%len(l.watchers)].compare()
	})
}

// at returns the node that a watcher reads from, since when, and its picture.
func (v *watcher) at() (node string, since time.Time, shown picture) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.kind == "library" {
		v.lookUp()
	}
	return v.node, v.since, v.shown.of(whatEnds)
}

// lookUp takes the picture of the Go client. v.mu must be held.
func (v *watcher) lookUp() {
	status, server := v.l.library.list.Status(), ""
	for _, n := range v.l.w.nodes {
		if status.Err == nil && status.Source == client.SourceWatch && strings.HasPrefix(status.Server, v.l.w.URL(n.Name)) {
			server = n.Name
		}
	}
	if server != v.node {
		v.node, v.since = server, time.Now()
	}
	v.shown = picture{}
	for i := range v.l.library.list.Snapshot().All() {
		number := ""
		for _, pair := range i.Metadata {
			if pair.Key == "n" {
				number = pair.Value
			}
		}
		v.shown.change("", i.App, i.InstanceID, i.Status.String(), number)
	}
}

// set takes over what a node has said, without a break if it has done so before.
func (v *watcher) set(node string, change func(picture)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if node != v.node {
		v.node, v.since = node, time.Now()
	}
	change(v.shown)
}

// leave records that it reads from no node.
func (v *watcher) leave() { v.set("", func(picture) {}) }

// shownWithin is how long a change takes from a node's list to the node's watchers: they get something every 50 ms at
// most (docs/adr/0009-watch.md), over a link of the run.
const shownWithin = 100 * time.Millisecond

// compare compares the picture with the list of its node, if nothing has changed meanwhile. With consensus, and while
// nothing is wrong, any other node's list will do.
func (v *watcher) compare() {
	node, since, _ := v.at()
	from, wait, query := node, shownWithin+4*v.l.w.cluster.latency(), "?consistency=stale"
	if v.l.w.Mode() == config.CP && v.l.d.settled() {
		from, wait, query = v.l.node(), time.Second, ""
	}
	if node == "" || v.kind == "delta" {
		return
	}
	before := v.l.ending(from, query)
	time.Sleep(wait)
	again, still, shown := v.at()
	after := v.l.ending(from, query)
	same := again == node && still.Equal(since) && v.l.d.stayed(node, since)
	if same && (v.kind != "library" || v.l.d.hears(node, time.Now())) {
		v.judge(from, before, after, shown)
	}
}

// judge judges a picture by what a node listed before and after it, if that is the same.
func (v *watcher) judge(node string, before, after, shown picture) {
	if before == nil || after == nil || !maps.Equal(before, after) {
		return
	}
	v.l.count("watch "+v.kind, Done)
	if !maps.Equal(before, shown) {
		v.l.w.Errorf("I7 converged: %s lists %v at %v, and the %s of %s shows %v", node, before, time.Since(began), v.kind, v.node, shown)
	}
}

// ending returns what a node lists of the instances that end, or nil if it does not respond.
func (l *load) ending(node, query string) picture {
	r := l.w.call(node, certainWithin, "GET", "/eureka/apps/"+whatEnds+query, "")
	var doc struct{ Application struct{ Instance []Listed } }
	switch {
	case r.Status == http.StatusNotFound:
		return picture{}
	case !r.decode(&doc):
		return nil
	}
	p := picture{}
	for _, i := range doc.Application.Instance {
		p.change("", whatEnds, i.ID, i.Status, i.Metadata["n"])
	}
	return p
}

// fetch reads everything from a node. It returns the index of that, or "".
func (v *watcher) fetch(node string) string {
	r := v.l.w.call(node, certainWithin, "GET", "/eureka/apps", "")
	var doc applications
	if !r.decode(&doc) {
		v.leave()
		return ""
	}
	v.set(node, func(p picture) {
		clear(p)
		doc.applyTo(p)
		if p.hash() != doc.Applications.Hash {
			v.l.w.Errorf("I7 converged: %s lists everything at %v with the hash %s, want %s", node, time.Since(began), doc.Applications.Hash, p.hash())
		}
	})
	return r.Header.Get("X-Rollcall-Index")
}

// poll asks for a delta, and for everything unless what it knew was of the same registry and the hash matches.
func (v *watcher) poll() {
	node, asked := v.l.w.nodes[v.place%v.l.w.cluster.Nodes].Name, time.Now()
	before := v.l.ending(node, "")
	var doc applications
	if before == nil || !v.l.w.call(node, certainWithin, "GET", "/eureka/apps/delta", "").decode(&doc) {
		v.place++
		return
	}
	known := asked.Sub(v.polled) < 2*time.Minute && !v.l.d.restored(v.polled.Add(-callPatience), time.Now()) &&
		(v.l.w.Mode() == config.CP || v.node == node && v.l.d.stayed(node, v.polled))
	v.set(node, doc.applyTo)
	if hash := v.shown.hash(); known && hash != doc.Applications.Hash {
		v.l.w.Errorf("I7 converged: the deltas of %s since %v lead to %s at %v, and it says %s", node, v.polled.Sub(began), hash, asked.Sub(began), doc.Applications.Hash)
		known = false
	}
	if !known && v.fetch(node) == "" {
		return
	}
	v.polled = asked
	v.judge(node, before, v.l.ending(node, ""), v.shown.of(whatEnds))
}

// judgeWatches checks that every watcher shows what its node lists, a minute after the last fault.
func (l *load) judgeWatches(lists map[string]map[string]bool) {
	for _, v := range l.watchers {
		if v.kind == "delta" {
			v.poll()
		} else {
			v.compare()
		}
		node, _, _ := v.at()
		if node == "" {
			l.w.Errorf("I7 converged: the %s is of no node a minute after the last fault", v.kind)
		}
		for name := range lists[node] {
			if _, is := v.shown[name]; v.whole && !is {
				l.w.Errorf("I7 converged: %s lists %s, and its %s does not show it", node, name, v.kind)
			}
		}
		for name := range v.shown {
			if lists[node] != nil && !lists[node][name] {
				l.w.Errorf("I7 converged: %s does not list %s, and its %s shows it", node, name, v.kind)
			}
		}
	}
}

// stream watches changes, and goes on at the next node where a stream has ended.
func (v *watcher) stream(ctx context.Context) {
	index := ""
	for place := 0; ctx.Err() == nil; place++ {
		node := v.l.w.nodes[place%v.l.w.cluster.Nodes].Name
		if index == "" {
			index = v.fetch(node)
			v.leave() // until its stream begins
		}
		if index != "" {
			index = v.read(ctx, node, index)
		}
		v.leave()
		time.Sleep(retryAfter)
	}
}

// longestSilence is how long a client waits for a stream, which has something to say every 15 s.
const longestSilence = 40 * time.Second

// read reads the stream of a node from an index on until it ends, and returns the index that it reached, or "" if
// everything must be fetched.
func (v *watcher) read(ctx context.Context, node, index string) string {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quiet := time.AfterFunc(longestSilence, cancel)
	defer quiet.Stop()
	req := need.Got(http.NewRequestWithContext(ctx, "GET", v.l.w.URL(node)+"/v1/rollcall/watch?index="+index, nil))(v.l.w)
	resp, err := v.l.w.clients.Transport.RoundTrip(req)
	if err != nil {
		return index
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusBadRequest && v.l.w.Mode() == config.AP { // what the node had lost with its process
		return ""
	}
	if resp.StatusCode != http.StatusOK {
		return index
	}
	v.set(node, func(picture) {})
	for events := api.NewEventReader(resp.Body, 4<<10); ; quiet.Reset(longestSilence) {
		e, err := events.Next()
		if err != nil {
			return index
		}
		var c api.Change
		switch string(e.Name) {
		case "reset":
			if v.l.w.Mode() == config.CP && !v.l.d.restored(began, time.Now()) {
				v.l.w.Errorf("I9 monotone: %s says at %v after %s: %s", node, time.Since(began), index, e.Data)
			}
			return ""
		case "change":
			var i Listed
			if json.Unmarshal(e.Data, &c) != nil || len(c.Instance) > 0 && json.Unmarshal(c.Instance, &i) != nil || ordinal(c.Index) <= ordinal(index) {
				v.l.w.Errorf("I9 monotone: the stream of %s goes on after %s at %v with %s", node, index, time.Since(began), e.Data)
			}
			v.set(node, func(p picture) { p.change(c.Action, c.App, c.ID, c.Status, i.Metadata["n"]) })
		}
		if len(e.ID) > 0 {
			index = string(e.ID)
		}
	}
}

// ordinal returns the number of an index.
func ordinal(index string) uint64 {
	number, _ := strconv.ParseUint(index[strings.LastIndexByte(index, '-')+1:], 10, 64)
	return number
}

// query asks by Consul's API for what has changed since its last answer, and goes on at the next node where there is
// none.
func (v *watcher) query(j *job) {
	index, newest := uint64(0), map[string]uint64{}
	for place := 0; ; {
		node := v.l.w.nodes[place%v.l.w.cluster.Nodes].Name
		r := v.l.w.call(node, callPatience, "GET", fmt.Sprintf("/v1/health/service/%s?stale&wait=4s&index=%d", whatEnds, index), "")
		var all []struct {
			Service struct {
				ID   string
				Meta map[string]string
			}
			Checks []struct{ Status string }
		}
		if !r.decode(&all) {
			v.leave()
			place++
			if !j.pause(retryAfter) {
				return
			}
			continue
		}
		at := consulIndex(r)
		if at < newest[node] || at == 0 {
			v.l.w.Errorf("I9 monotone: a query at %s has index %d at %v, an earlier one had %d", node, at, time.Since(began), newest[node])
		}
		newest[node] = at
		if at < index { // as Consul tells its clients
			at = 0
		}
		index = at
		v.set(node, func(p picture) {
			clear(p)
			for _, s := range all {
				status := "UP"
				if slices.ContainsFunc(s.Checks, func(c struct{ Status string }) bool { return c.Status != "passing" }) {
					status = "OUT_OF_SERVICE"
				}
				p.change("", whatEnds, s.Service.ID, status, s.Service.Meta["n"])
			}
		})
		if !j.pause(0) {
			return
		}
	}
}
