package sim

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// The bounds of checks: reapAfter is the least that Consul's API allows, and a change of leader gives half a TTL and
// checkGrace more (docs/reference/consul.md).
const checkTTL, checkGrace, reapAfter = 10 * time.Second, 2 * time.Second, time.Minute

// fleet is the services that programs register through Consul's API. The load's mutex guards it.
type fleet struct {
	programs []*program
	changes  []change
	born     int
}

// change is a change of a service: when it was asked for, and acknowledged.
type change struct {
	service      string
	asked, acked time.Time
}

// program has a service that nobody else changes, so each read must find what the program has done. It is on an agent
// with a name, on the logical node, or on the node of a registrar, whose checks have no TTL.
type program struct {
	l                 *load
	service, node, id string // the check has the same id
	ttl, reap         time.Duration
	before            *program // of the same client, fell silent

	there, out bool // it is registered; it is in maintenance
	status     string
	said       time.Time // when its last acknowledged report was sent
	ended      time.Time // when that was over
	seen       time.Time // when its check was first seen critical since
	left       time.Time // when it last asked to be deregistered

	session, behavior string
	held              time.Time // when the session asked for its key
	over              bool      // its check may have been critical since
}

// startCatalog has programs register services, and waits for their changes.
func (l *load) startCatalog() {
	l.d.fleet = &fleet{}
	for range 2 {
		p := l.newProgram(nil)
		l.task(3*time.Second, func() { p = p.turn() })
	}
	l.task(6*time.Second, l.watchHealth)
	l.task(3*time.Second, func() { l.d.histories.step(3, "pair") })
}

func (l *load) newProgram(before *program) *program {
	kind, comes := l.draw(3), l.draw(2) == 0
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.d.fleet
	f.born++
	node := []string{"rollcall", fmt.Sprint("web-", f.born), fmt.Sprint("far-", f.born)}[kind]
	p := &program{l: l, service: "fleet", node: node, id: fmt.Sprint("p", f.born), before: before}
	p.ttl, p.reap = checkTTL, longLease
	if kind == 2 {
		p.ttl = longLease
	} else if comes {
		p.service, p.reap = "reaped", reapAfter
	}
	f.programs = append(f.programs, p)
	return p
}

func (p *program) registrar() bool          { return p.ttl == longLease }
func (p *program) agent(path string) string { return "/agent/" + p.node + "/v1/" + path }
func (p *program) instance() string         { return strings.TrimPrefix(p.node+":"+p.id, "rollcall:") }
func (p *program) eureka() string {
	return "/eureka/apps/" + strings.ToUpper(p.service) + "/" + p.instance()
}

// turn does something, and looks at what became of it. It returns the program that goes on.
func (p *program) turn() *program {
	sure := true
	switch act := p.l.draw(16); {
	case !p.there:
		sure = p.report("passing")
	case act == 0 && !p.registrar(): // it is registered with its state
		_, sure = p.insist("again", "PUT", p.agent("agent/service/register"), p.document())
		p.ended = time.Now()
	case act < 4:
		sure = p.report([]string{"warning", "warning", "critical", "critical"}[act])
	case act == 4 || act == 5 && p.out:
		sure = p.maintain()
	case act == 5:
		sure = p.leave()
	case act < 8 && p.status != "critical":
		p.hold()
	case act == 8 && p.reap == reapAfter:
		return p.l.newProgram(p)
	default:
		sure = p.report("passing")
	}
	if !sure {
		p.l.mu.Lock()
		p.l.d.fleet.programs = slices.DeleteFunc(p.l.d.fleet.programs, func(other *program) bool { return other == p })
		p.l.mu.Unlock()
		return p.l.newProgram(p.before)
	}
	p.look()
	if p.before != nil {
		p.before.look()
	}
	return p
}

// insist repeats a write at one node after the other until one has done it, and returns when that try was sent.
func (p *program) insist(kind, method, path, body string) (asked time.Time, sure bool) {
	for try := range 6 {
		node := p.l.node()
		asked = time.Now()
		r := p.l.write(node, method, path, body)
		o := r.Outcome()
		p.l.count("catalog "+kind, o)
		switch {
		case o == Done && try == 0 && kind != "beat" && kind != "again": // an earlier try might have changed it
			p.l.mu.Lock()
			p.l.d.fleet.changes = append(p.l.d.fleet.changes, change{p.service, asked, time.Now()})
			p.l.mu.Unlock()
			return asked, true
		case o == Done, o == NotFound && kind == "leave":
			return asked, true
		case o == NotFound:
			p.judge(node, path, "", asked, time.Time{})
			return asked, false
		case o == Unknown:
			time.Sleep(unknownTakes)
		}
	}
	return asked, false
}

// document is what an agent's program registers.
func (p *program) document() string {
	return fmt.Sprintf(`{"ID":%q,"Name":%q,"Port":80,"Check":{"CheckID":%[1]q,"Status":"passing","TTL":%[3]q,`+
		`"DeregisterCriticalServiceAfter":%[4]q}}`, p.id, p.service, p.ttl, p.reap)
}

// report says how the service is, and registers it if it is not registered.
func (p *program) report(status string) bool {
	verb := map[string]string{"passing": "pass", "warning": "warn", "critical": "fail"}[status]
	kind, path, body := "report", p.agent("agent/check/"+verb+"/"+p.id), ""
	switch {
	case p.registrar():
		path, body = "/v1/catalog/register", fmt.Sprintf(`{"Node":%q,"Address":"10.2.2.2","Service":{"ID":%q,"Service":%q},`+
			`"Check":{"CheckID":%[2]q,"Name":"alive","ServiceID":%[2]q,"Status":%[4]q}}`, p.node, p.id, p.service, status)
	case !p.there:
		path, body = p.agent("agent/service/register"), p.document()
	}
	if p.there && p.status == status {
		kind = "beat"
	}
	first := time.Now()
	asked, sure := p.insist(kind, "PUT", path, body)
	if !p.left.IsZero() && !p.there && p.l.d.restored(p.left, time.Now()) { // it may be back in another state
		return false
	}
	p.over = p.over || status == "critical" || time.Since(p.said) >= p.ttl
	switch still := p.there && p.status == "critical"; {
	case status != "critical":
		p.said = asked
	case !still: // any of the tries may have done it, or the time without a report, and a later report changes nothing
		if lapsed := p.said.Add(p.ttl); p.there && lapsed.Before(first) {
			first = lapsed
		}
		p.said = first
	}
	p.there, p.status, p.ended, p.seen = true, status, time.Now(), time.Time{}
	return sure
}

// maintain puts the service into maintenance, or ends that, through its id.
func (p *program) maintain() bool {
	p.out = !p.out
	method, path := "PUT", p.agent(fmt.Sprintf("agent/service/maintenance/%s?enable=%v", p.id, p.out))
	switch byEureka := len(p.id)%2 == 0; {
	case byEureka && p.out:
		path = p.eureka() + "/status?value=OUT_OF_SERVICE"
	case byEureka:
		method, path = "DELETE", p.eureka()+"/status"
	}
	_, sure := p.insist("maintain", method, path, "")
	return sure
}

// leave deregisters the service.
func (p *program) leave() bool {
	path, body := p.agent("agent/service/deregister/"+p.id), ""
	if p.registrar() {
		path, body = "/v1/catalog/deregister", fmt.Sprintf(`{"Node":%q,"ServiceID":%q}`, p.node, p.id)
	}
	p.there, p.over, p.left = false, true, time.Now()
	_, sure := p.insist("leave", "PUT", path, body)
	return sure
}

// hold makes a session that depends on the check hold a key.
func (p *program) hold() {
	p.session, p.behavior, p.over = "", []string{"release", "delete"}[p.l.draw(2)], false
	var s struct{ ID string }
	r := p.l.write(p.l.node(), "PUT", p.agent("session/create"), fmt.Sprintf(
		`{"LockDelay":"0s","Behavior":%q,"NodeChecks":[],"ServiceChecks":[{"ID":%q}]}`, p.behavior, p.id))
	if p.held = time.Now(); r.decode(&s) {
		r = p.l.write(p.l.node(), "PUT", "/v1/kv/held/"+s.ID+"?acquire="+s.ID, "x")
		if r.Body == "true" {
			p.session = s.ID
		}
	}
	p.l.count("catalog hold", r.Outcome())
}

// look reads the service, or what its session holds.
func (p *program) look() {
	node, asked := p.l.node(), time.Now()
	query := []string{"", "", "?passing", "?stale"}[p.l.draw(4)]
	switch p.l.draw(3) {
	case 0:
		if p.session != "" && p.there {
			p.lookAtKey(node, query)
			return
		}
		fallthrough
	case 1:
		r := p.l.ask("catalog", node, "GET", p.eureka(), "")
		var doc struct{ Instance Listed }
		if r.decode(&doc) || r.Status == http.StatusNotFound {
			p.judge(node, "Eureka's API", doc.Instance.Status, asked, time.Time{})
		}
	default:
		if found := p.l.readHealth(node, p.service, query); found != nil && query != "?stale" {
			p.judge(node, "health"+query, found[p.id], asked, time.Time{})
		}
	}
}

// readHealth returns the status of each service of a name by its checks, or nil.
func (l *load) readHealth(node, service, query string) map[string]string {
	path := "/v1/health/service/" + service
	same := path // the reads whose indexes only rise
	if query == "?stale" {
		same += " as " + node + " has it"
	}
	floor := l.reads.newestOf(same)
	r := l.ask("catalog", node, "GET", path+query, "")
	l.count("catalog read", r.Outcome())
	var all []struct {
		Service struct{ ID string }
		Checks  []struct{ CheckID, Status string }
	}
	if !r.decode(&all) {
		return nil
	}
	l.reads.linearizable(l, node, same, floor, r)
	found := map[string]string{}
	for _, s := range all {
		worst := 0
		for _, c := range s.Checks {
			if worst = max(worst, slices.Index(checkWords, c.Status)); strings.HasPrefix(c.CheckID, "_service_maintenance") {
				worst = len(checkWords) - 1
			}
		}
		found[s.Service.ID] = checkWords[worst]
	}
	return found
}

// Words of Consul's API for the worst check of a service, and Eureka's words for them.
var (
	checkWords  = []string{"passing", "warning", "critical", "maintenance"}
	eurekaWords = map[string]string{"passing": "UP", "warning": "UP", "critical": "DOWN", "maintenance": "OUT_OF_SERVICE"}
)

// words returns Eureka's words that a read may find, with an empty one if there may be no service, or nil if a restore
// may have brought an earlier state back. calm is when the last fault ended, or zero.
func (p *program) words(asked, returned, calm time.Time) []string {
	least := p.said // when the check turned critical, at the earliest
	if p.status != "critical" {
		least = least.Add(p.ttl)
	}
	reaped, words := returned.Sub(least) >= p.reap, []string{"UP", "DOWN"}
	switch {
	case !p.there && p.l.d.restored(p.left, returned), reaped && p.l.d.restored(least.Add(p.reap), returned):
		return nil
	case !p.there, reaped && !calm.IsZero() && asked.After(p.goneBy(calm)):
		return []string{""}
	case p.out:
		words = []string{"OUT_OF_SERVICE"}
	case p.status == "critical", !calm.IsZero() && asked.After(p.criticalBy(calm)):
		words = words[1:]
	case returned.Before(least):
		words = words[:1]
	}
	if reaped {
		words = append(words, "")
	}
	return words
}

// criticalBy returns when the check of a program that fell silent is critical.
func (p *program) criticalBy(calm time.Time) time.Time {
	return p.l.lastLife(p.ended, calm).Add(p.ttl + min(p.ttl, p.ttl/2+checkGrace) + endsWithin)
}

// goneBy returns when its service is gone.
func (p *program) goneBy(calm time.Time) time.Time {
	critical := p.criticalBy(calm)
	if !p.seen.IsZero() && !p.l.d.restored(p.seen, time.Now()) {
		critical = p.l.lastLife(p.seen, calm)
	}
	return critical.Add(p.reap + endsWithin)
}

// judge compares what a read found, in Consul's words or Eureka's, with what the program has done.
func (p *program) judge(node, where, got string, asked, calm time.Time) {
	returned, word := time.Now(), cmp.Or(eurekaWords[got], got)
	exact := got != "passing" && got != "warning" || got == p.status
	want := p.words(asked, returned, calm)
	if word == "DOWN" && p.seen.IsZero() {
		p.seen = returned
	}
	if passing := strings.HasSuffix(where, "passing"); passing && got == "" {
		exact = want == nil || want[0] != "UP" || len(want) > 1 || p.status == "warning"
	} else if !slices.Contains(want, word) || passing && word != "UP" {
		exact = false
	}
	if exact || want == nil {
		return
	}
	invariant := "I2 linearizable"
	switch {
	case !calm.IsZero() && word != "":
		invariant = "I4 dead"
	case word == "" || want[0] == "":
		invariant = "I1 durable"
	case word == "DOWN" && p.status != "critical":
		invariant = "I3 alive"
	}
	p.l.w.Errorf("%s: %s of %s is %q by %s at %s at %v, want one of %q; the last report, sent at %v, is %s", invariant,
		p.instance(), p.service, got, where, node, asked.Sub(began), want, p.said.Sub(began), p.status)
}

// lookAtKey reads the check and the key of its session at once. The session ends when the check turns critical.
func (p *program) lookAtKey(node, query string) {
	body := fmt.Sprintf(`[{"KV":{"Verb":"get-or-empty","Key":"held/%s"}},`+
		`{"Check":{"Verb":"get","Check":{"Node":%q,"CheckID":%q}}}]`, p.session, p.node, p.id)
	r := p.l.ask("catalog", node, "PUT", "/v1/txn"+query, body)
	p.l.count("catalog txn", r.Outcome())
	var found struct {
		Results []struct {
			KV    Pair
			Check struct{ Status string }
		}
	}
	if !r.decode(&found) {
		return
	}
	key, check := found.Results[0].KV, found.Results[1].Check.Status
	holds, stays := key.Session == p.session, key.ModifyIndex > 0 && p.behavior == "delete"
	stale := query == "?stale" || p.l.d.restored(p.held, time.Now()) // a restore ends all sessions
	if holds && check == "critical" || stays && !holds {
		p.l.w.Errorf("I2 linearizable: %s has %+v at %v, of session %s (%s), which depends on %s: %s",
			node, key, time.Since(began), p.session, p.behavior, p.id, check)
	}
	if alive := time.Since(p.said) < p.ttl; !stale && !p.over && alive && !holds {
		p.l.w.Errorf("I3 alive: %s has %+v at %v, and session %s depends on %s, which passes",
			node, key, time.Since(began), p.session, p.id)
	}
}

// watchHealth waits for a change of a service. A query that waits in vain reads once more at its end.
func (l *load) watchHealth() {
	const wait = 4 * time.Second
	service, node, asked := []string{"fleet", "reaped"}[l.draw(2)], l.node(), time.Now()
	path := "/v1/health/service/" + service
	index := l.reads.newestOf(path)
	r := l.w.call(node, callPatience, "GET", fmt.Sprintf("%s?index=%d&wait=%v", path, index, wait), "")
	l.count("catalog watch", r.Outcome())
	returned := time.Now()
	if r.Status != http.StatusOK || !l.d.stayed(node, asked) || l.d.restored(asked.Add(-time.Minute), returned) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.d.fleet.changes {
		missed := consulIndex(r) <= index && c.acked.Before(asked.Add(wait))
		late := returned.Sub(c.acked) > inForce && l.d.quiet(node, asked)
		if c.service == service && c.asked.After(asked) && (missed || late) {
			l.w.Errorf("I9 monotone: %s at %s, asked at %v to wait after %d, says %d at %v; a change was asked for at %v, done %v",
				path, node, asked.Sub(began), index, consulIndex(r), returned.Sub(began), c.asked.Sub(began), c.acked.Sub(began))
		}
	}
}

// doomed returns a transaction that fails: nothing of it may happen, and without the check a program loses its session.
func (l *load) doomed(pair string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.d.fleet.programs[len(l.d.fleet.programs)-1]
	return fmt.Sprintf(`[{"Check":{"Verb":"delete","Check":{"Node":%q,"CheckID":%q}}},`+
		`{"KV":{"Verb":"set","Key":"h/%[3]s","Value":"eA=="}},`+
		`{"Service":{"Verb":"set","Node":"rollcall","Service":{"ID":"ghost","Service":"ghost"}}},`+
		`{"KV":{"Verb":"check-not-exists","Key":"h/%[3]s"}}]`, p.node, p.id, pair)
}

// onPair writes two keys in one transaction, or deletes them.
func (l *load) onPair(node string, on *history, do string, value int, index uint64) result {
	if r := l.ask("txn", node, "PUT", "/v1/txn", l.doomed(on.name)); r.Status == http.StatusOK {
		l.w.Errorf("I2 linearizable: a transaction is done at %v, though its last operation fails: %v", time.Since(began), r)
	}
	verb := map[string]string{"put": "set", "cas": "cas", "delete": "delete"}[do]
	other := strings.Replace(verb, "cas", "set", 1)
	const op = `{"KV":{"Verb":%q,"Key":"h/%s","Value":%q,"Index":%d}}`
	text := base64.StdEncoding.EncodeToString([]byte(strconv.Itoa(value)))
	body := fmt.Sprintf("["+op+","+op+"]", other, on.name+"-twin", text, 0, verb, on.name, text, index)
	r := l.write(node, "PUT", "/v1/txn", body)
	l.count("txn", r.Outcome())
	if do == "cas" && r.Status == http.StatusConflict {
		return result{outcome: NotFound}
	}
	return result{outcome: r.Outcome()}
}

// readPair reads both keys at once: they have one value and one index, at any time, at any node.
func (l *load) readPair(node string, on *history, query string) (result, uint64) {
	r := l.ask("pair", node, "GET", "/v1/kv/h/"+on.name+"?recurse"+query, "")
	l.count("pair", r.Outcome())
	both, found := map[string]Pair{}, []Pair(nil)
	r.decode(&found)
	for _, key := range found {
		both[strings.TrimPrefix(key.Key, "h/"+on.name)] = key // also others, whose names begin so
	}
	key, twin := both[""], both["-twin"]
	if string(key.Value) != string(twin.Value) || key.ModifyIndex != twin.ModifyIndex {
		l.w.Errorf("I2 linearizable: %s has %+v and %+v at %v (%s), which only transactions write",
			node, key, twin, time.Since(began), query)
	}
	if query == "" && l.draw(2) == 0 {
		l.readPair(l.node(), on, "&stale")
	}
	if len(found) == 0 || key.Key == "" && r.Outcome() == Done {
		return result{outcome: max(r.Outcome(), NotFound)}, 0
	}
	n, err := strconv.Atoi(string(key.Value))
	if err != nil {
		n = -1 // never written
	}
	return result{outcome: Done, value: n}, key.ModifyIndex
}

// judge compares what all nodes tell of the services with what their programs have done.
func (f *fleet) judge(l *load, calm time.Time) {
	for _, n := range l.w.nodes {
		asked := time.Now()
		listed, err := ListOf(l.w.Call(n.Name, "GET", "/eureka/apps", ""))
		need.OK(l.w, err)
		if listed["ghost"].ID != "" {
			l.w.Errorf("I2 linearizable: %s lists a service that only transactions have registered that failed", n.Name)
		}
		for _, p := range f.programs {
			got, want := listed[p.instance()].Status, p.words(asked, time.Now(), calm)
			switch {
			case n.dc == 1:
				p.judge(n.Name, "Eureka's list", got, asked, calm)
				p.judge(n.Name, "health", l.readHealth(n.Name, p.service, "")[p.id], asked, calm)
			case p.service == "fleet" && want != nil && !slices.Contains(want, got):
				l.w.Errorf("I7 converged: %s lists %s as %q, want one of %q", n.Name, p.instance(), got, want)
			}
		}
	}
}
