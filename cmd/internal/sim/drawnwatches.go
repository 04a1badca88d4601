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

// add applies a change to it, or adds an instance of a list.
func (p picture) add(action, app, id, status, number string) {
	p[app+"/"+id] = status + " " + number
	if action == "DELETED" {
		delete(p, app+"/"+id)
	}
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

func (a applications) addTo(p picture) {
	for _, app := range a.Applications.Application {
		for _, i := range app.Instance {
			p.add(i.Action, i.App, i.ID, i.Status, i.Metadata["n"])
		}
	}
}

// watcher is a client that keeps a picture up to date, in one way.
type watcher struct {
	l      *load
	kind   string
	place  int       // of the node that it asks
	polled time.Time // when it last asked for a delta

	mu    sync.Mutex
	node  string    // that it reads from, or ""
	since time.Time // since when it does without a break
	shown picture
}

// whatEnds is the application whose instances are registered, changed and canceled, and expire.
const whatEnds = "DEAD"

// startWatches starts a watcher of each kind, and changes what they watch.
func (l *load) startWatches() {
	number, lease := 0, shortLease
	if l.d.herd != nil { // so that no more die than live
		lease = longLease
	}
	l.task(1700*time.Millisecond, func() {
		number++
		id, method, path, body := fmt.Sprint("w", l.draw(5)), "POST", "/eureka/apps/"+whatEnds, ""
		switch l.draw(5) {
		case 0:
			method, path = "DELETE", path+"/"+id
		case 1:
			method, path = "PUT", path+"/"+id+"/status?value="+[]string{"OUT_OF_SERVICE", "UP"}[l.draw(2)]
		default:
			body = Registration(whatEnds, id, lease, map[string]string{"n": strconv.Itoa(number)})
		}
		l.count("churn", l.ask("churn", l.node(), method, path, body).Outcome())
	})
	for _, kind := range []string{"stream", "delta", "library", "query"} {
		l.watchers = append(l.watchers, &watcher{l: l, kind: kind, shown: picture{}})
	}
	ctx, cancel := context.WithCancel(context.Background())
	j := l.w.newJob()
	l.w.ends = append(l.w.ends, cancel)
	j.workers.Go(func() { l.watchers[0].stream(ctx) })
	l.task(9*time.Second, l.watchers[1].poll)
	if l.w.Mode() == config.CP {
		j.workers.Go(func() { l.watchers[3].query(j) })
	} else {
		l.watchers = l.watchers[:3]
	}
	believing := client.DiscoveryConfig{App: whatEnds, Guard: client.Guard{Share: -1}}
	l.library.list = need.Got(l.library.client.StartDiscovery(believing))(l.w)
	next := 0
	l.task(1300*time.Millisecond, func() {
		next++
		l.watchers[next%len(l.watchers)].compare()
	})
}

// at returns the node that a watcher reads from, since when, and what it shows of what ends.
func (v *watcher) at() (node string, since time.Time, shown picture) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.kind == "library" {
		v.lookUp()
	}
	shown = maps.Clone(v.shown)
	maps.DeleteFunc(shown, func(name, _ string) bool { return !strings.HasPrefix(name, whatEnds+"/") })
	return v.node, v.since, shown
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
	clear(v.shown)
	for i := range v.l.library.list.Snapshot().All() {
		number := ""
		if len(i.Metadata) > 0 {
			number = i.Metadata[0].Value
		}
		v.shown.add("", i.App, i.InstanceID, i.Status.String(), number)
	}
}

// set takes over what a node says, without a break if the last was from there, too.
func (v *watcher) set(node string, change func(picture)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if node != v.node {
		v.node, v.since = node, time.Now()
	}
	change(v.shown)
}

// leave records that it reads from no node, and will ask the next one.
func (v *watcher) leave() {
	v.place++
	v.set("", func(picture) {})
}

// next returns the node that it asks, of the first datacenter.
func (v *watcher) next() string { return v.l.w.nodes[v.place%v.l.w.cluster.Nodes].Name }

// shownWithin is how soon a node's watchers are told of what it lists, which is at most every 50 ms
// (docs/adr/0009-watch.md), on top of what calls take.
const shownWithin = 100 * time.Millisecond

// compare compares the picture with the list of its node, if nothing has changed meanwhile. With consensus, and while
// nothing is wrong, any other node's list will do.
func (v *watcher) compare() {
	node, since, _ := v.at()
	asked, everywhere := time.Now(), v.l.w.Mode() == config.CP && v.l.d.undisturbed()
	from, wait, query := node, shownWithin+4*v.l.w.cluster.latency(), "&consistency=stale"
	if everywhere {
		from, wait, query = v.l.node(), time.Second, ""
	}
	if node == "" || v.kind == "delta" {
		return
	}
	before := v.l.ending(from, query)
	time.Sleep(wait)
	again, still, shown := v.at()
	after := v.l.ending(from, query)
	// The Go client may have left its node long before its picture comes from another.
	same := again == node && still.Equal(since) && (v.kind != "library" || v.l.d.hears(node, time.Now()))
	if same && v.l.d.stayed(node, since) && (!everywhere || v.l.d.undisturbed()) {
		v.judge(asked, from, before, after, shown)
	}
}

// judge judges a picture by what a node listed before and after it, if that is the same, and no restore has brought it
// back meanwhile.
func (v *watcher) judge(asked time.Time, node string, before, after, shown picture) {
	if before == nil || after == nil || !maps.Equal(before, after) || v.l.d.restored(asked, time.Now()) {
		return
	}
	v.l.count("watch "+v.kind, Done)
	if !maps.Equal(before, shown) {
		v.l.w.Errorf("I7 converged: %s lists %v at %v, and the %s of %s shows %v", node, before, time.Since(began), v.kind, v.node, shown)
	}
}

// ending returns what a node lists of the instances that end, or nil if it does not respond.
func (l *load) ending(node, query string) picture {
	var all []api.Instance
	if !l.w.call(node, certainWithin, "GET", "/v1/rollcall/apps?app="+whatEnds+query, "").decode(&all) {
		return nil
	}
	p := picture{}
	for _, i := range all {
		p.add("", i.App, i.ID, i.Status, i.Metadata["n"])
	}
	return p
}

// fetch reads everything from a node, and returns the index of that, or "".
func (v *watcher) fetch(node string) string {
	r := v.l.w.call(node, certainWithin, "GET", "/eureka/apps", "")
	var doc applications
	if !r.decode(&doc) {
		return ""
	}
	v.set(node, func(p picture) {
		clear(p)
		doc.addTo(p)
		if p.hash() != doc.Applications.Hash {
			v.l.w.Errorf("I7 converged: %s lists everything at %v with the hash %s, want %s", node, time.Since(began), doc.Applications.Hash, p.hash())
		}
	})
	return r.Header.Get("X-Rollcall-Index")
}

// poll asks for a delta, and for everything unless the delta continues what it knows and its hash matches.
func (v *watcher) poll() {
	node, asked := v.next(), time.Now()
	before := v.l.ending(node, "")
	var doc applications
	if before == nil || !v.l.w.call(node, certainWithin, "GET", "/eureka/apps/delta", "").decode(&doc) {
		v.leave()
		return
	}
	continues := asked.Sub(v.polled) < 2*time.Minute && !v.l.d.restored(v.polled.Add(-callPatience), time.Now()) &&
		(v.l.w.Mode() == config.CP || v.node == node && v.l.d.stayed(node, v.polled))
	v.set(node, doc.addTo)
	if hash := v.shown.hash(); continues && hash != doc.Applications.Hash {
		continues = false
		v.l.w.Errorf("I7 converged: deltas up to that of %s at %v lead to %s, and it says %s", node, asked.Sub(began), hash, doc.Applications.Hash)
	}
	if !continues && v.fetch(node) == "" {
		v.polled = time.Time{}
		return
	}
	v.polled = asked
	_, _, shown := v.at()
	v.judge(asked, node, before, v.l.ending(node, ""), shown)
}

// stream reads everything, watches changes from there on, and goes on at the next node where that ends.
func (v *watcher) stream(ctx context.Context) {
	for index := ""; ctx.Err() == nil; time.Sleep(retryAfter) {
		node := v.next()
		if index == "" {
			index = v.fetch(node)
		}
		v.leave() // until its stream begins
		if index != "" {
			index = v.read(ctx, node, index)
		}
	}
}

// longestQuiet is how long a client waits for a stream, which has something to say every 15 s.
const longestQuiet = 40 * time.Second

// read reads a node's changes after an index, and returns the index that it reached, or "" if it must read everything.
func (v *watcher) read(ctx context.Context, node, index string) string {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quiet := time.AfterFunc(longestQuiet, cancel)
	defer quiet.Stop()
	req := need.Got(http.NewRequestWithContext(ctx, "GET", v.l.w.URL(node)+"/v1/rollcall/watch?index="+index, nil))(v.l.w)
	resp, err := v.l.w.clients.Transport.RoundTrip(req)
	if err != nil {
		return index
	}
	defer resp.Body.Close()
	cp := v.l.w.Mode() == config.CP
	switch {
	case resp.StatusCode == http.StatusBadRequest && !cp: // it has lost what came up to there
		return ""
	case resp.StatusCode != http.StatusOK:
		return index
	}
	v.set(node, func(picture) {})
	defer v.set("", func(picture) {})
	for events := api.NewEventReader(resp.Body, 4<<10); ; quiet.Reset(longestQuiet) {
		e, err := events.Next()
		if err != nil {
			return index
		}
		var c api.Change
		var i Listed
		switch string(e.Name) {
		case "reset":
			if cp && !v.l.d.restored(began, time.Now()) {
				v.l.w.Errorf("I9 monotone: %s says at %v after %s: %s", node, time.Since(began), index, e.Data)
			}
			return ""
		case "change":
			if json.Unmarshal(e.Data, &c) != nil || len(c.Instance) > 0 && json.Unmarshal(c.Instance, &i) != nil || ordinal(c.Index) <= ordinal(index) {
				v.l.w.Errorf("I9 monotone: the stream of %s goes on after %s at %v with %s", node, index, time.Since(began), e.Data)
			}
			v.set(node, func(p picture) { p.add(c.Action, c.App, c.ID, c.Status, i.Metadata["n"]) })
		}
		index = string(e.ID)
	}
}

// ordinal returns the number of an index.
func ordinal(index string) uint64 {
	number, _ := strconv.ParseUint(index[strings.LastIndexByte(index, '-')+1:], 10, 64)
	return number
}

// query asks by Consul's API for what has changed since the last response, and goes on at the next node without one.
func (v *watcher) query(j *job) {
	index, newest := uint64(0), map[string]uint64{}
	for wait := time.Duration(0); j.pause(wait); {
		node := v.next()
		r := v.l.w.call(node, callPatience, "GET", fmt.Sprintf("/v1/health/service/%s?stale&wait=4s&index=%d", whatEnds, index), "")
		var all []struct {
			Service struct {
				ID   string
				Meta map[string]string
			}
			Checks []struct{ Status string }
		}
		if wait = retryAfter; !r.decode(&all) {
			v.leave()
			continue
		}
		at := consulIndex(r)
		if at < newest[node] || at == 0 {
			v.l.w.Errorf("I9 monotone: a query at %s has index %d at %v, an earlier one had %d", node, at, time.Since(began), newest[node])
		}
		wait, newest[node] = 0, at
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
				p.add("", whatEnds, s.Service.ID, status, s.Service.Meta["n"])
			}
		})
	}
}

// judgeWatches checks that every watcher shows what its node lists, a minute after the last fault.
func (l *load) judgeWatches(lists map[string]map[string]bool) {
	for _, v := range l.watchers {
		if v.kind == "delta" {
			v.poll()
		}
		v.compare()
		node, _, _ := v.at()
		if node == "" {
			l.w.Errorf("I7 converged: the %s is of no node a minute after the last fault", v.kind)
		}
	}
	for _, v := range l.watchers[:2] { // the others watch one application
		for name := range v.shown {
			if list := lists[v.node]; list != nil && !list[name] && !mayEnd(name) {
				l.w.Errorf("I7 converged: the %s of %s shows %s, which it does not list", v.kind, v.node, name)
			}
		}
		for name := range lists[v.node] {
			if _, is := v.shown[name]; !is && !mayEnd(name) {
				l.w.Errorf("I7 converged: %s lists %s, which its %s does not show", v.node, name, v.kind)
			}
		}
	}
}
