package sim

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/httpd/api"
)

// mostFamilies is how many families there are at a time. endsTTL is the TTL of those of their sessions that end by
// time, and endsWait how long each waits in a queue, so that no wait lasts until the last judgements.
const mostFamilies, endsTTL, endsWait = 3, 15 * time.Second, 40 * time.Second

// causes is why the sessions of a family end: a call, the time, a check of their node or of a service, or their node.
var causes = []string{"call", "time", "alive", "works", "node"}

// ends is families in different stages of life.
type ends struct {
	l    *load
	open []*family
	born int
	calm time.Time // when the last fault ended; zero before that
}

// family is sessions that hold and wait for the same things, and end one after the other. Nobody else uses its names,
// so each read must find what its client has done. It has a lock and a semaphore of its name, by path, and its node.
type family struct {
	*ends
	name    string
	limit   int
	began   time.Time
	tenants []*tenant
	order   map[string][]*tenant // those seen at the lock or the semaphore, in the order of asking
	keys    []*heldKey
	last    time.Time // when the last end was acknowledged
	unsure  bool      // whether something has ended is unknown
}

// tenant is a session of a family.
type tenant struct {
	id, cause, behavior string
	delay               time.Duration
	renewed             time.Time // when its creation, or its last acknowledged renewal, was sent
	asked, ended        time.Time // when its end was asked for, and when that was known
	places              map[string]*place
}

// place is a request of a tenant for a lock or semaphore.
type place struct {
	node            string
	asked, returned time.Time
	fence           uint64        // of the acquisition that a reader has seen
	over            chan struct{} // closed once there is a response
	reply           Reply
}

// heldKey is a key that a tenant has acquired, and when its deletion was asked for and acknowledged.
type heldKey struct {
	name        string
	by          *tenant
	asked, gone time.Time
	index       uint64
}

// startEnds has clients end sessions, and what they hold and wait for, in every way.
func (l *load) startEnds() {
	l.d.ends = &ends{l: l}
	l.task(1500*time.Millisecond, l.d.ends.turn)
}

// turn founds a family, or does something with one.
func (e *ends) turn() {
	if len(e.open) < mostFamilies {
		if f := e.found(); f != nil {
			e.open = append(e.open, f)
		}
		return
	}
	f := e.open[e.l.draw(len(e.open))]
	f.step()
	over := !slices.ContainsFunc(f.tenants, func(m *tenant) bool { return m.ended.IsZero() })
	if over && !f.void() {
		f.changeLimit()
	}
	if over || f.void() {
		e.open = slices.DeleteFunc(e.open, func(other *family) bool { return other == f })
	}
}

// insist repeats a write at one node after the other until one has done it.
func (e *ends) insist(method, path, body string) bool {
	for range 6 {
		o := e.l.write(e.l.node(), method, path, body).Outcome()
		e.l.count("end", o)
		switch o {
		case Done, NotFound:
			return true
		case Unknown:
			time.Sleep(unknownTakes)
		}
	}
	return false
}

// found makes a family, or nothing if not every call is acknowledged.
func (e *ends) found() *family {
	e.born++
	f := &family{ends: e, name: fmt.Sprint("ends-", e.born), limit: 1 + e.l.draw(3), began: time.Now(), order: map[string][]*tenant{}}
	if !e.insist("PUT", "/v1/catalog/register", fmt.Sprintf(`{"Node":%q,"Address":"10.3.3.3","Service":{"ID":"s","Service":"ends"},`+
		`"Checks":[{"CheckID":"alive","Name":"n","Status":"passing"},{"CheckID":"works","Name":"s","ServiceID":"s","Status":"passing"}]}`, f.name)) {
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
		if k := f.keys[i]; !f.acquire(k, k.by) {
			return nil
		}
	}
	for _, m := range f.tenants {
		for _, path := range f.paths() {
			f.wait(m, path)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return f
}

func (f *family) paths() []string { return []string{ownLock + f.name, semaphore + f.name} }

func (f *family) limitOf(path string) int {
	if strings.HasPrefix(path, ownLock) {
		return 1
	}
	return f.limit
}

// create creates a session that is to end for a cause, or returns nil.
func (f *family) create(cause string) *tenant {
	m := &tenant{cause: cause, renewed: time.Now(), places: map[string]*place{}}
	m.behavior, m.delay = []string{"release", "delete"}[f.l.draw(2)], lockDelay*time.Duration(f.l.draw(2))
	method, path := "PUT", "/v1/session/create"
	node, checks, services := f.name, "", ""
	switch cause {
	case "call":
		node = "rollcall"
	case "alive":
		checks = `"alive"`
	case "works":
		services = `{"ID":"works"}`
	}
	body := fmt.Sprintf(`{"Node":%q,"LockDelay":%q,"Behavior":%q,"NodeChecks":[%s],"ServiceChecks":[%s]}`, node, m.delay, m.behavior, checks, services)
	if cause == "time" {
		method, path = "POST", "/v1/rollcall/sessions"
		body = fmt.Sprintf(`{"ttl":%q,"lock_delay":%q,"behavior":%q}`, endsTTL, m.delay, m.behavior)
	}
	r := f.l.write(f.l.node(), method, path, body)
	f.l.count("ends session", r.Outcome())
	var s struct{ ID string }
	r.Status = map[bool]int{true: http.StatusOK}[r.Status/100 == 2]
	if !r.decode(&s) {
		return nil
	}
	m.id = s.ID
	return m
}

// acquire makes a session hold a key, and reports whether it does.
func (f *family) acquire(k *heldKey, m *tenant) bool {
	r := f.l.write(f.l.node(), "PUT", "/v1/kv/"+k.name+"?acquire="+m.id, m.id)
	f.l.count("ends key", r.Outcome())
	f.unsure = f.unsure || r.Outcome() == Unknown
	return r.Status == http.StatusOK && strings.TrimSpace(r.Body) == "true"
}

// wait asks for a lock or semaphore beside the turns.
func (f *family) wait(m *tenant, path string) {
	p := &place{node: f.l.node(), asked: time.Now(), over: make(chan struct{})}
	m.places[path] = p
	limit := f.limitOf(path)
	go func() {
		defer close(p.over)
		p.reply = f.l.askFor(endsWait+callPatience, endsWait, p.node, "PUT", permitPath(path, m.id, limit)+"&wait="+endsWait.String(), "")
		p.returned = time.Now()
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
	case m.asked.IsZero():
		return m.renewed.Add(longLease)
	}
	return m.asked
}

// lives reports whether a session has not ended by a time, and gone whether it had ended before.
func (m *tenant) lives(at time.Time) bool   { return at.Before(m.earliest()) }
func (m *tenant) gone(asked time.Time) bool { return !m.ended.IsZero() && m.ended.Before(asked) }

// void reports whether a restore may have changed a family, or nobody knows what was done to it.
func (f *family) void() bool { return f.unsure || f.l.d.restored(f.began, time.Now()) }

// settled reports whether nothing has happened for so long that no lock-delay lasts and each permit has a new holder.
func (f *family) settled(node string, asked time.Time) bool {
	since := asked.Add(-lockDelay - noticed)
	return f.last.Before(since) && f.l.d.quiet(node, since)
}

// step ends something, or looks at what is left.
func (f *family) step() {
	switch n := f.l.draw(10); {
	case n < 3:
		f.end(f.tenants[f.l.draw(len(f.tenants))])
	case n == 3:
		f.deleteKeys(f.keys[f.l.draw(len(f.keys))])
	case n == 4:
		f.claim(f.keys[f.l.draw(len(f.keys))], f.tenants[f.l.draw(len(f.tenants))])
	}
	for _, path := range f.paths() {
		f.lookAtPermits(path)
	}
	f.lookAtKeys()
	f.lookAtSession(f.tenants[f.l.draw(len(f.tenants))])
}

// end ends a session in one of the ways of its cause, and the others that end with it.
func (f *family) end(m *tenant) {
	if m.cause == "time" || !m.asked.IsZero() {
		return
	}
	var with []*tenant
	for _, other := range f.tenants {
		sure := other == m || other.cause == m.cause && m.cause != "call"
		if sure || m.cause == "node" && other.cause != "call" && other.cause != "time" {
			with = append(with, other)
		}
	}
	asked := time.Now()
	for _, other := range with {
		if other.asked.IsZero() {
			other.asked = asked
		}
	}
	check := fmt.Sprintf(`{"Node":%q,"CheckID":%q,"Name":"x","ServiceID":%q,"Status":"critical"}`, f.name, m.cause, map[bool]string{true: "s"}[m.cause == "works"])
	address := fmt.Sprintf(`{"Node":%q,"Address":"10.3.3.3"}`, f.name)
	ways := map[string][][2]string{
		"call": {
			{"DELETE /v1/rollcall/sessions/" + m.id}, {"PUT /v1/session/destroy/" + m.id},
			{"PUT /v1/txn", `[{"Session":{"Verb":"delete","Session":{"ID":"` + m.id + `"}}}]`},
		},
		"node": {{"PUT /v1/catalog/deregister", address}, {"PUT /v1/txn", `[{"Node":{"Verb":"delete","Node":` + address + `}}]`}},
		"check": {
			{"PUT /v1/catalog/register", strings.TrimSuffix(address, "}") + `,"Check":` + check + `}`}, {"PUT /v1/catalog/deregister", check},
			{"PUT /v1/txn", `[{"Check":{"Verb":"delete","Check":` + check + `}}]`}, {"PUT /v1/txn", `[{"Check":{"Verb":"set","Check":` + check + `}}]`},
		},
	}
	all := ways[m.cause]
	if all == nil {
		all = ways["check"]
	}
	way := all[f.l.draw(len(all))]
	method, path, _ := strings.Cut(way[0], " ")
	f.unsure = !f.insist(method, path, way[1]) || f.unsure
	f.last = time.Now()
	for _, other := range with {
		if other.ended.IsZero() {
			other.ended = f.last
		}
	}
}

// deleteKeys deletes a key, or all that begin with its name.
func (f *family) deleteKeys(k *heldKey) {
	with, method, path, body := "", "DELETE", "/v1/kv/"+k.name, ""
	switch f.l.draw(5) {
	case 0:
		with, path = k.name, path+"?recurse"
	case 1:
		with, method, path, body = k.name, "PUT", "/v1/txn", fmt.Sprintf(`[{"KV":{"Verb":"delete-tree","Key":%q}}]`, k.name)
	case 2:
		method, path, body = "PUT", "/v1/txn", fmt.Sprintf(`[{"KV":{"Verb":"delete","Key":%q}}]`, k.name)
	case 3:
		path += fmt.Sprintf("?cas=%d", k.index)
	}
	asked := time.Now()
	r := f.l.write(f.l.node(), method, path, body)
	f.l.count("end of a key", r.Outcome())
	f.unsure = f.unsure || r.Outcome() == Unknown
	if r.Status != http.StatusOK || strings.TrimSpace(r.Body) == "false" { // cas, and its session has ended since
		return
	}
	for _, other := range f.keys {
		if (other == k || with != "" && strings.HasPrefix(other.name, with)) && other.gone.IsZero() {
			other.asked, other.gone = asked, time.Now()
		}
	}
}

// claim makes another session acquire a key whose holder may have ended.
func (f *family) claim(k *heldKey, m *tenant) {
	if k.by == m || !m.lives(time.Now().Add(callPatience)) {
		return
	}
	asked, before := time.Now(), k.by
	switch yes := f.acquire(k, m); {
	case yes && time.Now().Before(before.earliest().Add(before.delay)) && (k.gone.IsZero() || before.gone(k.asked)) && !f.void():
		f.wrong("I5 exclusive", asked, "%s got %s in spite of %+v", m.id, k.name, *before)
	case yes:
		k.by, k.asked, k.gone = m, time.Time{}, time.Time{}
	}
}

func (f *family) wrong(invariant string, asked time.Time, format string, args ...any) {
	f.l.w.Errorf("%s: %s of the family of %v, asked at %v, until %v", invariant, fmt.Sprintf(format, args...), f.began.Sub(began), asked.Sub(began), time.Since(began))
}

// lookAtPermits compares the lock or the semaphore with what its sessions were told.
func (f *family) lookAtPermits(path string) {
	node, asked := f.l.node(), time.Now()
	r := f.l.ask("ends look", node, "GET", "/v1/rollcall/"+path, "")
	f.l.count("ends look", r.Outcome())
	var p api.Permits
	if returned := time.Now(); (r.decode(&p) || r.Status == http.StatusNotFound) && !f.void() {
		f.judgePermits(path, p, node, asked, returned)
	}
}

func (f *family) judgePermits(path string, p api.Permits, node string, asked, returned time.Time) {
	var shown []*tenant
	show := func(session string, fence uint64) {
		at := slices.IndexFunc(f.tenants, func(m *tenant) bool { return m.id == session })
		if at < 0 || f.tenants[at].gone(asked) {
			f.wrong("I4 dead", asked, "%s lists session %s, which has ended, at %s: %+v", node, session, path, p)
			return
		}
		m := f.tenants[at]
		if was := m.places[path].fence; was != 0 && was != fence {
			f.wrong("I5 exclusive", asked, "%s has session %s at %s with the token %d, which was %d", node, session, path, fence, was)
		}
		m.places[path].fence = fence
		shown = append(shown, m)
		if !slices.Contains(f.order[path], m) {
			f.order[path] = append(f.order[path], m)
		}
	}
	for _, h := range p.Holders {
		show(h.Session, h.Fence)
	}
	for _, w := range p.Queue {
		show(w.Session, 0)
	}
	at, kept := 0, 0
	for _, m := range f.order[path] {
		is, place := slices.Index(shown, m), m.places[path]
		if is < 0 && m.lives(returned) && (place.fence != 0 || !place.isOver() && returned.Before(place.asked.Add(endsWait))) {
			f.wrong("I3 alive", asked, "session %s is no longer at %s, says %s: %+v", m.id, path, node, p)
		}
		if is >= 0 && is < at {
			f.wrong("I2 linearizable", asked, "session %s was overtaken at %s, says %s: %+v", m.id, path, node, p)
		}
		at = max(at, is)
		if is < 0 && place.fence != 0 && returned.Before(m.earliest().Add(m.delay)) {
			kept++
		}
	}
	limit := f.limitOf(path)
	if held := len(p.Holders) + max(kept, len(p.DelaysMS)); held > limit || len(p.Queue) > 0 && len(p.Holders)+len(p.DelaysMS) < limit {
		f.wrong("I5 exclusive", asked, "%s shows at %s, with a limit of %d, of which lock-delays keep %d: %+v", node, path, limit, kept, p)
	}
	if f.settled(node, asked) && len(p.DelaysMS) > 0 && !slices.ContainsFunc(f.tenants, func(m *tenant) bool { return m.cause == "time" }) {
		f.wrong("I12 bounded", asked, "%s still keeps %s back: %+v", node, path, p)
	}
	f.judgeWaits(path, asked)
}

// judgeWaits checks that no wait ended early, and that none goes on without its session.
func (f *family) judgeWaits(path string, asked time.Time) {
	for _, m := range f.tenants {
		p := m.places[path]
		if !p.isOver() {
			if m.gone(asked.Add(-noticed)) && f.settled(p.node, asked) {
				f.wrong("I12 bounded", asked, "%s lets a client wait for %s whose session %s has ended", p.node, path, m.id)
			}
			continue
		}
		var got api.Acquired
		if p.reply.decode(&got) && !got.Acquired && m.lives(p.returned) && p.returned.Before(p.asked.Add(endsWait-time.Millisecond)) && f.l.d.stayed(p.node, p.asked) {
			f.wrong("I3 alive", asked, "session %s lost its place at %s after %v", m.id, path, p.reply.Took)
		}
	}
}

// lookAtKeys compares the keys with what was done to them and their sessions.
func (f *family) lookAtKeys() {
	node, asked := f.l.node(), time.Now()
	r := f.l.ask("ends look", node, "GET", "/v1/kv/ends/"+f.name+"/?recurse", "")
	f.l.count("ends look", r.Outcome())
	var all []Pair
	if !r.decode(&all) && r.Status != http.StatusNotFound || f.void() {
		return
	}
	for _, k := range f.keys {
		p, m := Pair{}, k.by
		if at := slices.IndexFunc(all, func(p Pair) bool { return p.Key == k.name }); at >= 0 {
			p = all[at]
		}
		there, deleted, ended := p.Key != "", !k.gone.IsZero(), m.gone(asked)
		switch lives := m.lives(time.Now()); {
		case there && (deleted || ended && m.behavior == "delete"), ended && p.Session != "", there && p.Session != "" && p.Session != m.id:
			f.wrong("I4 dead", asked, "%s has %+v of %+v", node, p, *m)
		case lives && !deleted && p.Session != m.id, m.behavior == "release" && !deleted && !there:
			f.wrong("I1 durable", asked, "%s has %+v of %+v", node, p, *m)
		}
		k.index = p.ModifyIndex
	}
}

// lookAtSession renews a session that ends by time, or reads one.
func (f *family) lookAtSession(m *tenant) {
	node, asked, method, path := f.l.node(), time.Now(), "GET", "/v1/rollcall/sessions/"+m.id
	renews := m.cause == "time" && m.lives(asked) && f.l.draw(2) == 0
	if renews {
		method, path = "PUT", path+"/renew"
	}
	r := f.l.ask("ends look", node, method, path, "")
	f.l.count("ends look", r.Outcome())
	var s api.Session
	switch there := r.decode(&s); {
	case f.void():
	case r.Status == http.StatusNotFound && m.lives(time.Now()):
		f.wrong("I3 alive", asked, "%s says of %+v: %v", node, *m, r)
	case r.Status == http.StatusNotFound && m.ended.IsZero():
		m.ended, f.last = time.Now(), time.Now()
	case there && (m.gone(asked) || !f.calm.IsZero() && m.cause == "time" && asked.After(f.l.lastLife(m.renewed.Add(callPatience), f.calm).Add(2*endsTTL+endsWithin))):
		f.wrong("I4 dead", asked, "%s says of %+v: %v", node, *m, r)
	case there && renews:
		m.renewed = asked
	case there && !renews && m.lives(time.Now()):
		f.judgeHeld(m, s, node, asked)
	}
}

// judgeHeld checks that a session shows what it holds.
func (f *family) judgeHeld(m *tenant, s api.Session, node string, asked time.Time) {
	holds := func(kind, name string) bool {
		return slices.ContainsFunc(s.Holds, func(a api.Acquisition) bool { return a.Kind == kind && a.Name == name })
	}
	for _, k := range f.keys {
		if want := k.by == m && k.gone.IsZero(); holds("key", k.name) != want {
			f.wrong("I8 equal", asked, "%s shows that %+v holds %s: %v, want %v", node, *m, k.name, !want, want)
		}
	}
	for _, path := range f.paths() {
		if kind, _, _ := strings.Cut(path, "s/"); m.places[path].fence != 0 && !holds(kind, f.name) {
			f.wrong("I8 equal", asked, "%s does not show that %+v holds %s", node, *m, path)
		}
	}
}

// changeLimit gets the semaphore with another limit, when nobody holds it or waits for it.
func (f *family) changeLimit() {
	m, asked := f.create("call"), time.Now()
	if m == nil {
		return
	}
	node := f.l.node()
	r := f.l.ask("ends limit", node, "PUT", permitPath(semaphore+f.name, m.id, f.limit+1), "")
	f.l.count("ends limit", r.Outcome())
	var got api.Acquired
	delayed := slices.ContainsFunc(f.tenants, func(m *tenant) bool { return m.delay > 0 })
	if answered := r.decode(&got) || r.Status == http.StatusConflict; answered && !got.Acquired && (!delayed || f.settled(node, asked)) && !f.void() {
		f.wrong("I4 dead", asked, "%s has all of %s free, and says: %v", node, f.name, r)
	}
	f.insist("DELETE", "/v1/rollcall/sessions/"+m.id, "")
}

// judge compares the nodes, ends what is left, and compares them again.
func (e *ends) judge(calm time.Time) {
	e.calm = calm
	e.l.judgeSame()
	for _, f := range e.open {
		for _, m := range f.tenants {
			f.end(m)
		}
	}
	time.Sleep(lockDelay + noticed)
	for _, f := range e.open {
		for _, m := range f.tenants {
			f.lookAtSession(m)
		}
		for range e.l.w.cluster.Nodes {
			f.lookAtPermits(f.paths()[0])
			f.lookAtPermits(f.paths()[1])
			f.lookAtKeys()
		}
		if !f.void() {
			f.changeLimit()
		}
	}
	e.l.judgeSame()
}

// clockFields is what two nodes show that read a clock at different times.
var clockFields = regexp.MustCompile(`"(age_ms|ends_in_ms|waited_ms|gives_up_ms)": *\d+`)

// judgeSame checks that all nodes show the same state of coordination, and of checks.
func (l *load) judgeSame() {
	for _, path := range []string{
		"/v1/rollcall/sessions?consistency=stale", "/v1/rollcall/locks?consistency=stale", "/v1/rollcall/semaphores?consistency=stale",
		"/v1/session/list?stale", "/v1/kv/?recurse&stale", "/v1/health/state/any?stale", "/v1/catalog/nodes?stale",
	} {
		var nodes, texts []string
		for range 5 { // something may end, or be under way
			nodes, texts = nil, nil
			for _, node := range l.w.Datacenter(1) {
				r := l.w.call(node, 10*time.Second, "GET", path, "")
				text := fmt.Sprint(r.Header.Get("X-Consul-Index"), clockFields.ReplaceAllString(r.String(), ""))
				if !slices.Contains(texts, text) {
					nodes, texts = append(nodes, node), append(texts, text)
				}
			}
			if len(texts) == 1 {
				break
			}
			time.Sleep(time.Second)
		}
		if len(texts) > 1 {
			l.w.Errorf("I8 equal: %s differs at %v:\n%s", path, nodes, strings.Join(texts, "\n"))
		}
	}
}
