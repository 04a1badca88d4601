package sim

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/httpd/api"
)

// mostFamilies is how many families there are at a time. endsTTL is the TTL of the sessions that end by time. endsWait
// is how long each waits in a queue, so that no wait lasts until the last judgements.
const mostFamilies, endsTTL, endsWait = 3, 15 * time.Second, 40 * time.Second

// causes is what ends sessions: a call, their TTL, a check of their node or of a service there, or the node's removal.
var causes = []string{"call", "time", "alive", "works", "node"}

// ends is families in different stages of life.
type ends struct {
	l    *load
	open []*family
	born int
	calm time.Time // when the last fault ended; zero before that
}

// family is sessions that hold and wait for the same keys, lock and semaphore, and end one after the other. Nobody
// else uses its names, so each read must find what its client has done.
type family struct {
	*ends
	name    string // of its lock, its semaphore and its node
	limits  map[string]int
	began   time.Time
	tenants []*tenant
	keys    []*heldKey
	order   map[string][]*tenant // seen at the lock or the semaphore, by path, in the order of asking
	last    time.Time            // when the last end was acknowledged
	unsure  bool                 // the outcome of a call is unknown
}

// tenant is a session of a family.
type tenant struct {
	id, cause, behavior string
	delay               time.Duration
	renewed             time.Time         // when its creation, or its last acknowledged renewal, was sent
	end                 *span             // nil if nobody has ended it yet
	places              map[string]*place // by the path of the lock or semaphore
}

// span is when a change was asked for, and when it was done; zero if it may not be done yet.
type span struct{ asked, done time.Time }

// place is a request of a tenant for a lock or semaphore.
type place struct {
	span
	node  string
	fence uint64        // of the acquisition that a reader has seen
	over  chan struct{} // closed once there is a response
	reply Reply
}

// heldKey is a key that a tenant has acquired. deleted is nil until a client has deleted it.
type heldKey struct {
	name    string
	by      *tenant
	deleted *span
	index   uint64
}

// startEnds has clients end sessions, and what they hold and wait for, in every way.
func (l *load) startEnds() {
	l.d.ends = &ends{l: l}
	l.task(2500*time.Millisecond, l.d.ends.turn)
}

// turn founds a family, or ends something of one.
func (e *ends) turn() {
	if len(e.open) < mostFamilies {
		if f := e.found(); f != nil {
			e.open = append(e.open, f)
		}
		return
	}
	f := e.open[e.l.draw(len(e.open))]
	f.step()
	over := !slices.ContainsFunc(f.tenants, func(m *tenant) bool { return !m.gone(time.Now()) })
	if over {
		f.changeLimit()
	}
	if over || f.void() {
		e.open = slices.DeleteFunc(e.open, func(other *family) bool { return other == f })
	}
}

// found makes a family, or returns nil if not every call is done.
func (e *ends) found() *family {
	e.born++
	f := &family{ends: e, name: fmt.Sprint("ends-", e.born), began: time.Now(), order: map[string][]*tenant{}}
	f.limits = map[string]int{ownLock + f.name: 1, semaphore + f.name: 1 + e.l.draw(3)}
	if !e.insist("PUT", "/v1/catalog/register", f.node(`"Service":{"ID":"s","Service":"ends"},"Checks":[`+
		`{"CheckID":"alive","Name":"n","Status":"passing"},{"CheckID":"works","Name":"s","ServiceID":"s","Status":"passing"}]`)) {
		return nil
	}
	for range 4 {
		m := f.create(causes[e.l.draw(len(causes))])
		if m == nil {
			return nil
		}
		f.tenants = append(f.tenants, m)
	}
	for i, name := range []string{"a", "ab", "b"} {
		f.keys = append(f.keys, &heldKey{name: "ends/" + f.name + "/" + name, by: f.tenants[i%2]})
		if !f.acquire(f.keys[i], f.tenants[i%2]) {
			return nil
		}
	}
	for _, m := range f.tenants {
		for path := range f.limits {
			f.wait(m, path)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return f
}

// node returns a registration of the family's node with other members.
func (f *family) node(more string) string {
	return fmt.Sprintf(`{"Node":%q,"Address":"10.3.3.3",%s}`, f.name, more)
}

// insist repeats a write at one node after the other until one has done it.
func (e *ends) insist(method, path, body string) bool {
	for range 6 {
		o := e.ask("end", method, path, body).Outcome()
		if o == Done || o == NotFound {
			return true
		}
	}
	return false
}

// ask makes a call at any node. After an unknown outcome it waits until the call can take no effect any more.
func (e *ends) ask(kind, method, path, body string) Reply {
	r := e.l.write(e.l.node(), method, path, body)
	e.l.count(kind, r.Outcome())
	if r.Outcome() == Unknown {
		time.Sleep(unknownTakes)
	}
	return r
}

// create creates a session that is to end for a cause, or returns nil.
func (f *family) create(cause string) *tenant {
	m := &tenant{cause: cause, renewed: time.Now(), places: map[string]*place{}}
	m.behavior, m.delay = []string{"release", "delete"}[f.l.draw(2)], lockDelay*time.Duration(f.l.draw(2))
	node := map[string]string{"call": "rollcall"}[cause]
	body := fmt.Sprintf(`{"Node":%q,"LockDelay":%q,"Behavior":%q,"NodeChecks":[%s],"ServiceChecks":[%s]}`, cmp.Or(node, f.name), m.delay,
		m.behavior, map[string]string{"alive": `"alive"`}[cause], map[string]string{"works": `{"ID":"works"}`}[cause])
	method, path := "PUT", "/v1/session/create"
	if cause == "time" {
		method, path = "POST", "/v1/rollcall/sessions"
		body = fmt.Sprintf(`{"ttl":%q,"lock_delay":%q,"behavior":%q}`, endsTTL, m.delay, m.behavior)
	}
	r := f.ask("ends session", method, path, body)
	var s struct{ ID string }
	if r.Status == http.StatusCreated {
		r.Status = http.StatusOK
	}
	if !r.decode(&s) {
		return nil
	}
	m.id = s.ID
	return m
}

// acquire makes a session hold a key, and reports whether it does.
func (f *family) acquire(k *heldKey, m *tenant) bool {
	r := f.ask("ends key", "PUT", "/v1/kv/"+k.name+"?acquire="+m.id, m.id)
	f.unsure = f.unsure || r.Outcome() == Unknown
	return r.Status == http.StatusOK && strings.TrimSpace(r.Body) == "true"
}

// wait asks for a lock or semaphore, beside the turns.
func (f *family) wait(m *tenant, path string) {
	p := &place{node: f.l.node(), span: span{asked: time.Now()}, over: make(chan struct{})}
	m.places[path] = p
	go func() {
		defer close(p.over)
		waits := permitPath(path, m.id, f.limits[path]) + "&wait=" + endsWait.String()
		p.reply = f.l.askFor(endsWait+callPatience, endsWait, p.node, "PUT", waits, "")
		p.done = time.Now()
		f.l.count("ends wait", p.reply.Outcome())
	}()
}

func (p *place) isOver() bool {
	select {
	case <-p.over:
		return true
	default:
		return false
	}
}

// earliest returns when a session may have ended, at the earliest.
func (m *tenant) earliest() time.Time {
	switch {
	case m.cause == "time":
		return m.renewed.Add(endsTTL)
	case m.end == nil:
		return m.renewed.Add(longLease)
	}
	return m.end.asked
}

// gone reports whether a session had ended before a read was sent.
func (m *tenant) gone(asked time.Time) bool {
	return m.end != nil && !m.end.done.IsZero() && m.end.done.Before(asked)
}

// void reports whether a restore may have changed a family, or nobody knows what was done to it.
func (f *family) void() bool { return f.unsure || f.l.d.restored(f.began, time.Now()) }

// certain reports whether nothing has happened for so long that no lock-delay lasts.
func (f *family) certain(node string, asked time.Time) bool {
	since := asked.Add(-lockDelay - noticed)
	return f.last.Before(since) && f.l.d.quiet(node, since)
}

// step ends something, or nothing, and looks at what is left.
func (f *family) step() {
	m, k := f.tenants[f.l.draw(len(f.tenants))], f.keys[f.l.draw(len(f.keys))]
	switch n := f.l.draw(10); {
	case n < 3:
		f.endTenant(m)
	case n == 3:
		f.deleteKeys(k)
	case n == 4:
		f.claim(k, m)
	}
	f.lookAtPermits([]string{ownLock, semaphore}[f.l.draw(2)] + f.name)
	if f.l.draw(2) == 0 {
		f.lookAtKeys()
	} else {
		f.lookAtSession(f.tenants[f.l.draw(len(f.tenants))])
	}
}

// endTenant ends a session in one of the ways of its cause, and with it those that have the same cause.
func (f *family) endTenant(m *tenant) {
	if m.cause == "time" || m.end != nil {
		return
	}
	end := &span{asked: time.Now()}
	for _, other := range f.tenants {
		others := other.cause == m.cause && m.cause != "call" || m.cause == "node" && other.cause != "call" && other.cause != "time"
		if other.end == nil && (other == m || others) {
			other.end = end
		}
	}
	service := map[string]string{"works": "s"}[m.cause]
	check := fmt.Sprintf(`{"Node":%q,"CheckID":%q,"Name":"x","ServiceID":%q,"Status":"critical"}`, f.name, m.cause, service)
	const txn, deregister = "/v1/txn", "/v1/catalog/deregister"
	ways := [][3]string{
		{"PUT", "/v1/catalog/register", f.node(`"Check":` + check)}, {"PUT", deregister, check},
		{"PUT", txn, `[{"Check":{"Verb":"delete","Check":` + check + `}}]`}, {"PUT", txn, `[{"Check":{"Verb":"set","Check":` + check + `}}]`},
	}
	switch m.cause {
	case "call":
		ways = [][3]string{{"DELETE", "/v1/rollcall/sessions/" + m.id}, {"PUT", "/v1/session/destroy/" + m.id},
			{"PUT", txn, fmt.Sprintf(`[{"Session":{"Verb":"delete","Session":{"ID":%q}}}]`, m.id)}}
	case "node":
		ways = [][3]string{{"PUT", deregister, fmt.Sprintf(`{"Node":%q}`, f.name)},
			{"PUT", txn, fmt.Sprintf(`[{"Node":{"Verb":"delete","Node":{"Node":%q}}}]`, f.name)}}
	}
	way := ways[f.l.draw(len(ways))]
	f.unsure = !f.insist(way[0], way[1], way[2]) || f.unsure
	end.done = time.Now()
	f.last = end.done
}

// deleteKeys deletes a key, or all that begin with its name.
func (f *family) deleteKeys(k *heldKey) {
	const txn = `[{"KV":{"Verb":%q,"Key":%q}}]`
	key, n := "/v1/kv/"+k.name, f.l.draw(5)
	way := [][3]string{{"DELETE", key + "?recurse"}, {"PUT", "/v1/txn", fmt.Sprintf(txn, "delete-tree", k.name)},
		{"PUT", "/v1/txn", fmt.Sprintf(txn, "delete", k.name)}, {"DELETE", fmt.Sprintf("%s?cas=%d", key, k.index)}, {"DELETE", key}}[n]
	deleted := &span{asked: time.Now()}
	r := f.ask("end of a key", way[0], way[1], way[2])
	f.unsure = f.unsure || r.Outcome() == Unknown
	deleted.done = time.Now()
	for _, other := range f.keys {
		with := other == k || n < 2 && strings.HasPrefix(other.name, k.name)
		if with && r.Status == http.StatusOK && strings.TrimSpace(r.Body) != "false" && other.deleted == nil {
			other.deleted = deleted
		}
	}
}

// claim makes a session acquire a key whose holder may have ended, and that may be deleted.
func (f *family) claim(k *heldKey, m *tenant) {
	if k.by == m || time.Now().Add(callPatience).After(m.earliest()) {
		return
	}
	asked, before := time.Now(), k.by
	if !f.acquire(k, m) {
		return
	}
	lost := k.deleted == nil || before.gone(k.deleted.asked) // its session has lost it, not its deletion
	if lost && time.Now().Before(before.earliest().Add(before.delay)) && !f.void() {
		f.wrong("I5 exclusive", asked, "%s got %s in spite of %+v", m.id, k.name, *before)
	}
	k.by, k.deleted = m, nil
}

func (f *family) wrong(invariant string, asked time.Time, format string, args ...any) {
	f.l.w.Errorf("%s: %s, asked at %v, until %v", invariant, fmt.Sprintf(format, args...), asked.Sub(began), time.Since(began))
}

// read reads something at any node, and returns whether the response says how things are.
func (f *family) read(path string, to any) (node string, asked, returned time.Time, says bool) {
	node, asked = f.l.node(), time.Now()
	r := f.l.ask("ends look", node, "GET", path, "")
	f.l.count("ends look", r.Outcome())
	return node, asked, time.Now(), (r.decode(to) || r.Status == http.StatusNotFound) && !f.void()
}

// lookAtPermits compares the lock or the semaphore with what was done to its sessions.
func (f *family) lookAtPermits(path string) {
	var p api.Permits
	node, asked, returned, says := f.read("/v1/rollcall/"+path, &p)
	if !says {
		return
	}
	wrong := func(invariant, what string) { f.wrong(invariant, asked, "%s shows %s: %s: %+v", node, path, what, p) }
	var shown []*tenant
	show := func(session string, fence uint64) {
		at := slices.IndexFunc(f.tenants, func(m *tenant) bool { return m.id == session && !m.gone(asked) })
		if at < 0 {
			wrong("I4 dead", session+" has ended")
			return
		}
		m := f.tenants[at]
		if was := m.places[path].fence; was != 0 && was != fence {
			wrong("I5 exclusive", fmt.Sprintf("%s had the token %d", session, was))
		}
		m.places[path].fence = fence
		if shown = append(shown, m); !slices.Contains(f.order[path], m) {
			f.order[path] = append(f.order[path], m)
		}
	}
	for _, h := range p.Holders {
		show(h.Session, h.Fence)
	}
	for _, w := range p.Queue {
		show(w.Session, 0)
	}
	at, kept := 0, len(p.DelaysMS)
	for _, m := range f.order[path] {
		is, place := slices.Index(shown, m), m.places[path]
		waits := !place.isOver() && returned.Before(place.asked.Add(endsWait))
		switch {
		case is >= 0 && is < at:
			wrong("I2 linearizable", m.id+" was overtaken")
		case is < 0 && returned.Before(m.earliest()) && (place.fence != 0 || waits):
			wrong("I3 alive", m.id+" is lost")
		case is < 0 && place.fence != 0 && returned.Before(m.earliest().Add(m.delay)):
			kept-- // one of the lock-delays is its
		}
		at = max(at, is)
	}
	taken := len(p.Holders) + len(p.DelaysMS)
	if kept < 0 || taken > f.limits[path] || len(p.Queue) > 0 && taken < f.limits[path] {
		wrong("I5 exclusive", "its limit is "+fmt.Sprint(f.limits[path]))
	}
	if len(p.DelaysMS) > 0 && f.certain(node, asked) {
		wrong("I12 bounded", "lock-delays are over")
	}
	f.judgeWaits(path, asked)
}

// judgeWaits checks that no wait ends early, and that none goes on without its session.
func (f *family) judgeWaits(path string, asked time.Time) {
	for _, m := range f.tenants {
		p := m.places[path]
		if !p.isOver() {
			if m.gone(asked.Add(-noticed)) && f.certain(p.node, asked) {
				f.wrong("I12 bounded", asked, "%s lets a client wait for %s whose session %s has ended", p.node, path, m.id)
			}
			continue
		}
		var got api.Acquired
		early := p.done.Before(m.earliest()) && p.done.Before(p.asked.Add(endsWait-time.Millisecond))
		if early && p.reply.decode(&got) && !got.Acquired && f.l.d.stayed(p.node, p.asked) && !f.void() {
			f.wrong("I3 alive", asked, "session %s lost its place at %s after %v", m.id, path, p.reply.Took)
		}
	}
}

// lookAtKeys compares the keys with what was done to them and to their sessions.
func (f *family) lookAtKeys() {
	var all []Pair
	node, asked, returned, says := f.read("/v1/kv/ends/"+f.name+"/?recurse", &all)
	for _, k := range f.keys {
		var p Pair
		if at := slices.IndexFunc(all, func(p Pair) bool { return p.Key == k.name }); at >= 0 {
			p = all[at]
		}
		m, there, invariant := k.by, p.Key != "", ""
		switch ended := m.gone(asked); {
		case there && (k.deleted != nil || ended && m.behavior == "delete"), p.Session != "" && (ended || p.Session != m.id):
			invariant = "I4 dead"
		case k.deleted == nil && (returned.Before(m.earliest()) && p.Session != m.id || m.behavior == "release" && !there):
			invariant = "I1 durable"
		}
		if k.index = p.ModifyIndex; says && invariant != "" {
			f.wrong(invariant, asked, "%s shows %+v of %+v", node, p, *m)
		}
	}
}

// lookAtSession reads a session, and renews one that ends by time.
func (f *family) lookAtSession(m *tenant) {
	if sent := time.Now(); m.cause == "time" && f.l.draw(2) == 0 && sent.Before(m.earliest()) &&
		f.ask("ends renewal", "PUT", "/v1/rollcall/sessions/"+m.id+"/renew", "").Outcome() == Done {
		m.renewed = sent
	}
	var s api.Session
	node, asked, returned, says := f.read("/v1/rollcall/sessions/"+m.id, &s)
	bound := f.l.lastLife(m.renewed.Add(callPatience), f.calm).Add(2*endsTTL + endsWithin)
	switch lives := returned.Before(m.earliest()); {
	case !says:
	case s.ID == "" && lives:
		f.wrong("I3 alive", asked, "%s has lost %+v", node, *m)
	case s.ID == "" && m.end == nil:
		m.end, f.last = &span{asked, returned}, returned
	case s.ID != "" && (m.gone(asked) || !f.calm.IsZero() && m.cause == "time" && asked.After(bound)):
		f.wrong("I4 dead", asked, "%s shows %+v", node, *m)
	case lives:
		f.judgeHeld(m, s, node, asked)
	}
}

// judgeHeld checks that a session shows what it holds.
func (f *family) judgeHeld(m *tenant, s api.Session, node string, asked time.Time) {
	held := map[string]bool{}
	for _, a := range s.Holds {
		held[a.Kind+"s/"+a.Name] = true
	}
	for _, k := range f.keys {
		if want := k.by == m && k.deleted == nil; held["keys/"+k.name] != want {
			f.wrong("I8 equal", asked, "%s shows %+v: it holds %s, %v", node, s, k.name, want)
		}
	}
	for path, p := range m.places {
		if p.fence != 0 && !held[path] {
			f.wrong("I8 equal", asked, "%s shows %+v: it holds %s", node, s, path)
		}
	}
}

// changeLimit gets the semaphore with another limit when nobody holds it or waits for it.
func (f *family) changeLimit() {
	m := f.create("call")
	if m == nil {
		return
	}
	node, asked, path := f.l.node(), time.Now(), semaphore+f.name
	r := f.l.ask("ends limit", node, "PUT", permitPath(path, m.id, f.limits[path]+1), "")
	f.l.count("ends limit", r.Outcome())
	var got api.Acquired
	refused := r.Status == http.StatusConflict || r.decode(&got) && !got.Acquired
	delayed := slices.ContainsFunc(f.tenants, func(m *tenant) bool { return m.delay > 0 })
	if refused && (!delayed || f.certain(node, asked)) && !f.void() {
		f.wrong("I4 dead", asked, "%s has all of %s free, and answers %v", node, path, r)
	}
	f.insist("DELETE", "/v1/rollcall/sessions/"+m.id, "")
}

// judge compares the nodes, ends what is left, and compares them again.
func (e *ends) judge(calm time.Time) {
	e.calm = calm
	e.l.judgeSame()
	for _, f := range e.open {
		for _, m := range f.tenants {
			f.endTenant(m)
		}
	}
	time.Sleep(lockDelay + noticed)
	for _, f := range e.open {
		for _, m := range f.tenants {
			f.lookAtSession(m)
		}
		for path := range f.limits {
			f.lookAtPermits(path)
		}
		f.lookAtKeys()
		f.changeLimit()
	}
	e.l.judgeSame()
}

// clockFields finds what nodes show by their own clocks.
var clockFields = regexp.MustCompile(`"(age_ms|ends_in_ms|waited_ms|gives_up_ms)": *\d+`)

// judgeSame checks that all nodes show the same sessions, keys, locks, semaphores, nodes and checks.
func (l *load) judgeSame() {
	const own = "?consistency=stale"
	for _, path := range []string{
		"rollcall/sessions" + own, "rollcall/locks" + own, "rollcall/semaphores" + own,
		"session/list?stale", "kv/?recurse&stale", "health/state/any?stale", "catalog/nodes?stale",
	} {
		shown := map[string][]string{}
		for tries := 5; tries > 0 && len(shown) != 1; tries-- { // something may be ending
			clear(shown)
			for _, node := range l.w.Datacenter(1) {
				r := l.w.call(node, 10*time.Second, "GET", "/v1/"+path, "")
				text := fmt.Sprint(consulIndex(r), clockFields.ReplaceAllString(r.String(), ""))
				shown[text] = append(shown[text], node)
			}
			time.Sleep(time.Second)
		}
		if len(shown) > 1 {
			l.w.Errorf("I8 equal: %s differs: %v", path, shown)
		}
	}
}
