package sim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

var errNoSpace = syscall.ENOSPC

// outcome is what a client knows of a write.
type outcome int

const (
	done    outcome = iota // it was acknowledged
	refused                // it has no effect, now or later
	unknown
)

func (o outcome) String() string { return [...]string{"done", "refused", "unknown"}[o] }

// outcomeOf reads a reply as docs/reference/protocol says: 503 and 507 refuse, what is left decides nothing.
func outcomeOf(r Reply) outcome {
	switch {
	case r.Status/100 == 2:
		return done
	case r.Status == http.StatusServiceUnavailable, r.Status == http.StatusInsufficientStorage:
		return refused
	}
	return unknown
}

// load is what clients do beside the faults of a schedule, and what the cluster answers for in the end.
type load struct {
	w    *World
	r    *rand.Rand
	kept []*Instance // renewed on time
	dead []*Instance // not renewed
	ends []func()    // of all that writes, and is stopped before the end is judged

	mu      sync.Mutex
	counts  map[string]map[outcome]int // of writes, by kind
	written map[string]outcome         // registrations by id; each is tried once
	added   map[outcome]int            // increments of the counter
	holds   []hold                     // of the lock, by when they began
}

// hold is a time in which a client may rely on a lock.
type hold struct {
	asked, from, to time.Time // when it asked for the lock, got it, and can no longer rely on it
	session         string
	token           uint64
}

// deadBy is when an instance that is not renewed must be gone, though leaders changed before: its lease, a grace of the same
// length, and what a change of leader may add.
const deadBy = time.Minute

// longLease outlasts the run; shortLease is for instances that come and go.
const (
	longLease  = time.Hour
	shortLease = 12 * time.Second
)

// startLoad has clients work until the scenario ends.
func (w *World) startLoad(seed uint64) *load {
	l := &load{w: w, r: rand.New(rand.NewPCG(seed, 58)), counts: map[string]map[outcome]int{}, written: map[string]outcome{}, added: map[outcome]int{}}
	for k := range 3 {
		l.kept = append(l.kept, w.keep(fmt.Sprintf("LIVE/i%d", k), 3*shortLease, w.cluster.mode() == config.CP))
	}
	for k := range 2 {
		i := w.newInstance(fmt.Sprintf("DEAD/i%d", k), shortLease)
		l.dead = append(l.dead, i)
		w.beside(time.Duration(20+20*k)*time.Second, func() {
			if w.send(i, "POST", "/eureka/apps/DEAD", i.document()).Status == http.StatusNoContent {
				i.renewed = time.Now()
			}
		})
	}
	number := 0
	l.beside(400*time.Millisecond, func() {
		number++
		i := w.newInstance(fmt.Sprintf("ONCE/i%d", number), longLease)
		o := outcomeOf(w.call(l.node(), 3*time.Second, "POST", "/eureka/apps/ONCE", i.document()))
		l.count("register", o)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.written[i.ID] = o
	})
	if w.cluster.mode() == config.CP {
		l.beside(300*time.Millisecond, l.increment)
		for range 2 {
			l.beside(500*time.Millisecond, l.contender())
		}
	}
	return l
}

func (l *load) beside(every time.Duration, do func()) { l.ends = append(l.ends, l.w.beside(every, do)) }

// node draws one.
func (l *load) node() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.nodes[l.r.IntN(len(l.w.nodes))].Name
}

func (l *load) count(kind string, o outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts[kind] == nil {
		l.counts[kind] = map[outcome]int{}
	}
	l.counts[kind][o]++
}

// pair is a key as Consul's API shows it.
type pair struct {
	Value       []byte
	ModifyIndex uint64
}

// counter reads the value and the index of the counter; both are 0 before the first write.
func (l *load) counter(node string) (value int, index uint64, ok bool) {
	r := l.w.call(node, 3*time.Second, "GET", "/v1/kv/counter", "")
	if r.Status == http.StatusNotFound {
		return 0, 0, true
	}
	var pairs []pair
	if !r.decode(&pairs) || len(pairs) != 1 {
		return 0, 0, false
	}
	_, err := fmt.Sscan(string(pairs[0].Value), &value)
	return value, pairs[0].ModifyIndex, err == nil
}

// increment adds 1 to the counter by compare-and-set.
func (l *load) increment() {
	value, index, ok := l.counter(l.node())
	if !ok {
		return
	}
	r := l.w.call(l.node(), 3*time.Second, "PUT", fmt.Sprintf("/v1/kv/counter?cas=%d", index), fmt.Sprint(value+1))
	o := unknown
	switch {
	case r.Status == http.StatusOK && r.Body[0] == 't':
		o = done
	case r.Status == http.StatusOK: // another write came first
		o = refused
	case r.Status == http.StatusInternalServerError && r.Body == "No cluster leader":
		o = refused
	}
	l.count("cas", o)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.added[o]++
}

// sessionTTL is the TTL of the sessions that contend for the lock.
const sessionTTL = 10 * time.Second

// contender returns what one client of the lock does each time: it takes the lock, holds it for a while, and releases it.
func (l *load) contender() func() {
	var session string
	var renewed time.Time // when the last renewal that was acknowledged was sent
	var held *hold
	var left int // turns for which it holds the lock on
	return func() {
		now := time.Now()
		if session == "" || now.Sub(renewed) >= sessionTTL {
			session, held = "", nil
			var s api.Session
			r := l.w.call(l.node(), 3*time.Second, "POST", "/v1/rollcall/sessions", `{"ttl":"10s","lock_delay":"1s"}`)
			if l.count("session", outcomeOf(r)); json.Unmarshal([]byte(r.Body), &s) == nil && r.Status/100 == 2 {
				session, renewed = s.ID, now
			}
			return
		}
		if r := l.w.call(l.node(), 3*time.Second, "PUT", "/v1/rollcall/sessions/"+session+"/renew", ""); r.Status == http.StatusOK {
			renewed = now
			if held != nil {
				l.extend(held, renewed)
			}
		} else if r.Status == http.StatusNotFound {
			session, held = "", nil
			return
		}
		if left--; held == nil {
			held, left = l.acquire(session, renewed), 6
		} else if left <= 0 {
			l.end(held)
			l.count("release", outcomeOf(l.w.call(l.node(), 3*time.Second, "DELETE", "/v1/rollcall/locks/one?session="+session, "")))
			held = nil
		}
	}
}

// acquire tries to take the lock, and returns it as held, or nil.
func (l *load) acquire(session string, renewed time.Time) *hold {
	h := hold{asked: time.Now(), session: session}
	var a api.Acquired
	r := l.w.call(l.node(), 3*time.Second, "PUT", "/v1/rollcall/locks/one?session="+session, "")
	l.count("acquire", outcomeOf(r))
	if !r.decode(&a) || !a.Acquired {
		return nil
	}
	h.from, h.to, h.token = time.Now(), renewed.Add(sessionTTL), a.Fence
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, other := range l.holds {
		if other.session != session && !other.from.After(h.asked) && other.to.After(h.from) {
			l.w.Errorf("I5 exclusive: session %s got the lock between %v and %v, while session %s held it until %v", session, h.asked.Sub(began), h.from.Sub(began), other.session, other.to.Sub(began))
		}
		if other.from.Before(h.asked) && (other.token > h.token || other.token == h.token && other.session != session) {
			l.w.Errorf("I5 exclusive: the acquisition at %v has token %d, the one before it, at %v, had %d", h.from.Sub(began), h.token, other.from.Sub(began), other.token)
		}
	}
	l.holds = append(l.holds, h)
	return &h
}

func (l *load) extend(h *hold, renewed time.Time) { l.change(h, renewed.Add(sessionTTL)) }

// end says that the holder no longer relies on the lock.
func (l *load) end(h *hold) { l.change(h, time.Now()) }

func (l *load) change(h *hold, to time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.IndexFunc(l.holds, func(other hold) bool { return other.from.Equal(h.from) && other.session == h.session }); i >= 0 {
		l.holds[i].to = to
	}
}

// lastWrites is how long the last writes take, at most, to be on every node without consensus: a batch's delay, and its way.
const lastWrites = 2 * time.Second

// judge expects of every node, once it is calm, what the cluster has promised.
func (l *load) judge() {
	for _, end := range l.ends {
		end()
	}
	time.Sleep(lastWrites)
	for _, i := range l.kept {
		if missing := i.gone(); len(missing) > 0 {
			l.w.Errorf("I3 alive: %s/%s was renewed on time, and was gone %d times, first: %s", i.App, i.ID, len(missing), missing[0])
		}
	}
	lists := map[string]map[string]bool{}
	for _, n := range l.w.nodes {
		lists[n.Name] = l.list(n.Name)
	}
	for node, list := range lists {
		if list == nil {
			continue
		}
		for _, i := range l.kept {
			if !list[i.App+"/"+i.ID] {
				l.w.Errorf("I7 converged: %s does not list %s/%s, which is renewed on time", node, i.App, i.ID)
			}
		}
		for _, i := range l.dead {
			if age := time.Since(i.renewed); list[i.App+"/"+i.ID] && age > deadBy {
				l.w.Errorf("I4 dead: %s lists %s/%s %v after its last renewal; its lease is %v", node, i.App, i.ID, age, i.Lease)
			}
		}
		if l.w.cluster.mode() == config.AP {
			continue
		}
		for id, o := range l.written {
			switch there := list["ONCE/"+id]; {
			case o == done && !there:
				l.w.Errorf("I1 durable: %s does not list ONCE/%s, whose registration was acknowledged", node, id)
			case o == refused && there:
				l.w.Errorf("I6 honest: %s lists ONCE/%s, whose registration was refused", node, id)
			}
		}
	}
	l.sameLists(lists)
	if l.w.cluster.mode() == config.CP {
		l.judgeCounter()
		l.judgeReplicas()
	}
}

// list returns the instances that a node lists, as APP/id; nil: it does not answer.
func (l *load) list(node string) map[string]bool {
	r := l.w.call(node, 10*time.Second, "GET", "/v1/rollcall/apps", "")
	var all []api.Instance
	if !r.decode(&all) {
		l.w.Errorf("I2 available: %s does not list its instances a minute after the last fault: %v", node, r)
		return nil
	}
	list := map[string]bool{}
	for _, i := range all {
		list[i.App+"/"+i.ID] = true
	}
	return list
}

func (l *load) sameLists(lists map[string]map[string]bool) {
	first := l.w.nodes[0].Name
	for node, list := range lists {
		for name := range list {
			if lists[first] != nil && !lists[first][name] && name[:4] != "DEAD" {
				l.w.Errorf("I7 converged: %s lists %s, and %s does not", node, name, first)
			}
		}
		for name := range lists[first] {
			if list != nil && !list[name] && name[:4] != "DEAD" {
				l.w.Errorf("I7 converged: %s lists %s, and %s does not", first, name, node)
			}
		}
	}
}

// judgeCounter expects every acknowledged increment in the counter, and no refused one.
func (l *load) judgeCounter() {
	value, _, ok := l.counter(l.w.nodes[0].Name)
	if least, most := l.added[done], l.added[done]+l.added[unknown]; !ok || value < least || value > most {
		l.w.Errorf("I2 linearizable: the counter is %d (read: %t); %d increments were acknowledged and %d are unknown", value, ok, least, most-least)
	}
}

// judgeReplicas expects equal digests.
func (l *load) judgeReplicas() {
	var v api.Verification
	if r := l.w.call(l.w.nodes[0].Name, 10*time.Second, "GET", "/v1/rollcall/verify", ""); !r.decode(&v) || v.Verdict != "equal" {
		l.w.Errorf("I8 equal: %v", r)
	}
}
