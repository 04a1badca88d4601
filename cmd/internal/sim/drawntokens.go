package sim

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// visitor is a caller whose rights end again and again: its token expires, is rotated or revoked, or its role is
// narrowed. Its long calls go on beside its turns.
type visitor struct {
	l       *load
	world   *World // its clients have an address of their own
	name    string
	visits  int
	left    int     // turns until the next visit
	end     func()  // takes the rights away; nil if the token expires, or if that was done
	endAt   int     // when end is called, in turns left
	passes  []*pass // what it has: during a rotation two secrets, the newest one last
	session string  // waits for the visit's lock
	long    []*visit
}

// pass is a secret that ends.
type pass struct {
	role, accessor, secret string

	made  exchange        // when an operator made it
	known map[string]bool // nodes that know it

	// The secret expires when a node's wall clock shows endsFrom to endsBy (ms since the epoch); 0 means never. It
	// also ends by an operator's act, if there was one.
	endsFrom, endsBy int64
	act              string
	ended            exchange
}

// exchange is when something was asked for and acknowledged; zero if it was not.
type exchange struct{ asked, done time.Time }

// visit is a call of a visitor.
type visit struct {
	decides      int
	method, path string
	node         string
	pass         *pass
	asked        time.Time
	ahead        time.Duration // the node's wall clock, when it was asked
	over         chan struct{} // closed once it has returned
	reply        Reply
	returned     time.Time
	reported     bool
}

// What decides about a call (docs/run/permissions.md, "Exchanging and revoking").
const (
	byNode = iota // the roles that its node knows
	byRead        // the roles in the state that it shows
	byLog         // the roles at its place in the log
)

// A visit has turns, and its calls wait for longestVisit at most. The file has the tokens of visitsInFile visits of
// each visitor.
const (
	visitors, perVisit, visitsInFile = 3, 20, 12

	visitTurn, longestVisit = 700 * time.Millisecond, 15 * time.Second

	visitRules = `["app VISIT read,register","kv visit/ read,write","lock visit- read,write","session write"]`
)

// startVisitors makes visitors call nodes, and wait there in the company of each other.
func (l *load) startVisitors() {
	l.ask("register", l.node(), "POST", "/eureka/apps/VISIT", l.w.newInstance("VISIT/v", longLease).document())
	for n := range visitors {
		world := *l.w
		world.clients = l.w.Client(fmt.Sprint("127.0.9.", 8+n))
		v := &visitor{l: l, world: &world, name: fmt.Sprint("visitor", n), left: 1 + 5*n}
		l.task(visitTurn, v.turn)
		l.tasks = append(l.tasks, func() {
			for _, c := range v.long {
				<-c.over
			}
			v.judgeLong()
		})
	}
}

// turn does one thing that a visitor or, for its visit, the operator does.
func (v *visitor) turn() {
	v.judgeLong()
	if v.left--; v.left <= 0 {
		v.left, v.end, v.passes, v.session = perVisit, nil, nil, ""
		v.visits++
		if f := v.l.d.permits.file; f == nil {
			v.enter()
		} else if v.visits <= visitsInFile {
			v.passes = []*pass{f.visits[v.name][v.visits-1]}
		}
		return
	}
	if len(v.passes) == 0 {
		return
	}
	for _, p := range v.passes {
		v.learn(p)
	}
	if v.end != nil && v.left <= v.endAt {
		v.end()
		v.end = nil
	}
	p := v.passes[v.l.draw(len(v.passes))]
	if v.left%3 == 1 {
		v.wait(p)
		return
	}
	c := v.probe(v.l.draw(6))
	c.pass, c.asked, c.ahead = p, time.Now(), v.ahead(c.node)
	v.send(c, callPatience)
	v.judge(c)
}

// addVisits puts the tokens of visitors into the file. They expire during their visits, or after them.
func (f *permitFile) addVisits(t testing.TB) {
	f.visits = map[string][]*pass{}
	for n := range visitors {
		role := fmt.Sprint("visitor", n)
		f.roles += fmt.Sprintf("  %s: %s\n", role, visitRules)
		for k := range visitsInFile {
			ends := time.Now().Add(time.Duration((k+1)*perVisit-5+5*n) * visitTurn).Truncate(time.Second).UnixMilli()
			text := config.NewTokenText("")
			token := need.Got(config.TokenOf(text))(t)
			token.Name, token.Roles, token.Expires = fmt.Sprint(role, "-", k), []string{role}, ends
			f.tokens += string(need.Got(config.TokenItem(token))(t))
			p := &pass{role: role, secret: text, known: map[string]bool{}, endsFrom: ends, endsBy: ends}
			p.made = exchange{time.Now(), time.Now().Add(fileInForce)}
			f.visits[role] = append(f.visits[role], p)
		}
	}
}

// enter has the operator make a role and a token, and hold the lock for which the visitor will wait.
func (v *visitor) enter() {
	p := &pass{role: fmt.Sprint(v.name, "-", v.visits), known: map[string]bool{}, made: exchange{asked: time.Now()}}
	life, ends := "", v.l.draw(4)
	if ends == 0 {
		life = (4*time.Second + time.Duration(v.l.draw(8000))*time.Millisecond).String()
	}
	var made api.NewToken
	token := fmt.Sprintf(`{"name":"visitor","app":"VISIT","roles":[%q],"expires":%q}`, p.role, life)
	if permits := &v.l.d.permits; !permits.change("grant", "PUT", rolePath+p.role, bodyOf(visitRules), nil) ||
		!permits.change("token", "POST", "/v1/rollcall/auth/tokens", token, &made) {
		return
	}
	p.accessor, p.secret, p.made.done = made.Accessor, made.Secret, time.Now()
	p.endsFrom, p.endsBy = made.Expires, made.Expires
	v.passes, v.endAt = []*pass{p}, 8+v.l.draw(7)
	v.end = []func(){nil, v.rotate, v.revoke, v.narrow}[ends]
	if session := v.newSession(v.l.w); session != "" {
		v.l.ask("visit", v.l.node(), "PUT", permitPath(ownLock+"visit-"+p.role, session, 1), "")
	}
}

const rolePath = "/v1/rollcall/auth/roles/"

// newSession makes a session that outlasts a visit, by the operator's clients or by the visitor's.
func (v *visitor) newSession(by *World, headers ...string) string {
	var s api.Session
	r := by.call(v.l.node(), callPatience, "POST", "/v1/rollcall/sessions", `{"ttl":"60s","lock_delay":"0s"}`, headers...)
	_ = json.Unmarshal([]byte(r.Body), &s)
	return s.ID
}

// close has the operator end the visitor's rights, and then write what the visitor may not see.
func (v *visitor) close(act, method, path, body string) {
	p := v.passes[0]
	p.act, p.ended.asked = act, time.Now()
	if v.l.d.permits.change(act, method, path, body, nil) {
		p.ended.done = time.Now()
		v.l.ask("visit", v.l.node(), "PUT", "/v1/kv/visit/"+p.role, afterwards)
	}
}

// afterwards is a value that was written after the rights of its visitor had ended.
const afterwards = "written-afterwards"

func (v *visitor) revoke() {
	v.close("revoke", "DELETE", "/v1/rollcall/auth/tokens/"+v.passes[0].accessor, "")
}

func (v *visitor) narrow() {
	v.close("narrow", "PUT", rolePath+v.passes[0].role, bodyOf(`["app NOTHING read"]`))
}

// rotate exchanges the secret. The old one ends by the clock of the node that was asked.
func (v *visitor) rotate() {
	var made api.NewToken
	p, node, grace := v.passes[0], v.l.node(), int64(v.l.draw(4000))
	from := v.wall(node)
	p.act, p.ended.asked = "rotate", time.Now()
	path := fmt.Sprintf("/v1/rollcall/auth/tokens/%s/rotate?grace=%dms", p.accessor, grace)
	r := v.l.ask("rotate", node, "POST", path, "")
	v.l.count("rotate", r.Outcome())
	if !r.decode(&made) {
		return
	}
	p.ended.done, p.endsFrom, p.endsBy = time.Now(), from+grace, max(from, v.wall(node))+grace
	v.passes = append(v.passes, &pass{role: p.role, secret: made.Secret, made: p.ended, known: map[string]bool{}})
}

// wall returns what a node's wall clock shows, in ms since the epoch.
func (v *visitor) wall(node string) int64 { return time.Now().Add(v.ahead(node)).UnixMilli() }

func (v *visitor) ahead(node string) time.Duration {
	return time.Duration(v.l.w.Node(node).ahead.Load())
}

// probe returns a call that does not wait.
func (v *visitor) probe(n int) *visit {
	if v.l.w.Mode() == config.AP {
		n = min(n, 2)
	}
	c := []visit{
		{decides: byNode, method: "GET", path: "/eureka/apps/VISIT"},
		{decides: byNode, method: "GET", path: "/v1/rollcall/watch?app=VISIT&wait=0s"},
		{decides: byNode, method: "PUT", path: "/eureka/apps/VISIT/v"},
		{decides: byNode, method: "GET", path: "/v1/kv/visit/x?stale"},
		{decides: byRead, method: "GET", path: "/v1/kv/visit/x"},
		{decides: byLog, method: "PUT", path: "/v1/kv/visit/x?flags=1"},
	}[n]
	c.node = v.l.anyNode()
	return &c
}

// wait begins a call that waits, at the node where other visitors wait at this time.
func (v *visitor) wait(p *pass) {
	n := v.l.draw(5)
	c := &visit{decides: byNode, method: "GET", path: "/v1/rollcall/watch?app=VISIT"}
	c.node = v.l.w.nodes[int(time.Since(began)/(10*time.Second))%len(v.l.w.nodes)].Name
	if n == 1 || v.l.w.Mode() == config.AP && n > 1 {
		c.path += fmt.Sprint("&wait=", longestVisit)
	} else if n == 4 {
		if v.session == "" {
			v.session = v.newSession(v.world, "Authorization: Bearer "+p.secret)
		}
		if v.session == "" {
			return
		}
		c.decides, c.method = byLog, "PUT"
		c.path = permitPath(ownLock+"visit-"+p.role, v.session, 1) + fmt.Sprint("&wait=", longestVisit)
	} else if n > 1 {
		path := []string{"/v1/kv/visit/" + p.role, "/v1/health/service/VISIT"}[n-2]
		index := consulIndex(v.l.ask("visit", c.node, "GET", path+"?stale", ""))
		c.decides, c.path = byRead, fmt.Sprintf("%s?index=%d&wait=%v", path, max(index, 1), longestVisit)
	}
	v.long = append(v.long, c)
	c.pass, c.asked, c.ahead, c.over = p, time.Now(), v.ahead(c.node), make(chan struct{})
	go func() {
		defer close(c.over)
		v.send(c, longestVisit+5*time.Second)
	}()
}

// send makes a call, and records the response.
func (v *visitor) send(c *visit, patience time.Duration) {
	c.reply = v.world.call(c.node, patience, c.method, c.path, "", "Authorization: Bearer "+c.pass.secret)
	c.returned = time.Now()
	v.l.count("visit", c.reply.Outcome())
}

// learn notes which nodes know a pass by now.
func (v *visitor) learn(p *pass) {
	for _, n := range v.l.w.nodes {
		p.known[n.Name] = p.known[n.Name] || v.inForce(n.Name, p.made, time.Now())
	}
}

// inForce reports whether a node that was asked at a time must know a change of permissions. Nothing has happened since
// the change that could keep it from hearing a leader.
func (v *visitor) inForce(node string, change exchange, asked time.Time) bool {
	d := v.l.d
	if change.done.IsZero() || asked.Sub(change.done) <= inForce || !d.hears(node, asked) {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.permits.file != nil || d.acted.Before(change.asked.Add(-time.Second))
}

// isOver reports whether a call was sent when its caller had no rights any more.
func (v *visitor) isOver(c *visit) bool {
	p := c.pass
	shown := c.asked.Add(c.ahead).UnixMilli()
	expired := p.endsBy != 0 && min(shown, v.wall(c.node)) >= p.endsBy
	switch {
	case p.act == "":
		return expired
	case p.ended.done.IsZero():
		return false
	case p.act == "rotate":
		return expired && v.inForce(c.node, p.ended, c.asked)
	case c.decides == byRead, c.decides == byLog && v.l.d.permits.byTheLog:
		return c.asked.After(p.ended.done)
	}
	return v.inForce(c.node, p.ended, c.asked)
}

// isGood reports whether a call returned while its caller had its rights, at a node that knew that.
func (v *visitor) isGood(c *visit) bool {
	p := c.pass
	shown := c.asked.Add(c.ahead).UnixMilli()
	return p.known[c.node] && v.l.d.hears(c.node, c.asked) &&
		(p.endsFrom == 0 || max(shown, v.wall(c.node)) < p.endsFrom) &&
		(p.ended.asked.IsZero() || c.returned.Before(p.ended.asked))
}

// judge judges the response to a call.
func (v *visitor) judge(c *visit) {
	r, wrong := c.reply, ""
	denied := r.Status == http.StatusUnauthorized || r.Status == http.StatusForbidden
	switch answered := r.Status/100 == 2 || r.Status == http.StatusNotFound; {
	case answered && v.isOver(c):
		wrong = "answers a caller whose rights have ended"
	case c.decides == byRead && strings.Contains(r.Body, afterwardsEncoded):
		wrong = "shows a caller what was written after its rights had ended"
	case denied && v.isGood(c):
		wrong = "refuses a caller that has the right"
	default:
		return
	}
	v.l.w.Errorf("I13 allowed: %s %s (%s): %s %s from %v to %v: %.300q", c.node, wrong, c.pass, c.method, c.path,
		c.asked.Sub(began), c.returned.Sub(began), r)
}

// afterwardsEncoded is how Consul's API shows the value.
var afterwardsEncoded = base64.StdEncoding.EncodeToString([]byte(afterwards))

// String says how a pass ends.
func (p *pass) String() string {
	expires, ended := time.UnixMilli(p.endsBy).Sub(began), p.ended.done.Sub(began)
	return fmt.Sprintf("%s, expires %v, %s %v", p.role, expires, p.act, ended)
}

// judgeLong judges the calls that wait, or have returned.
func (v *visitor) judgeLong() {
	v.long = slices.DeleteFunc(v.long, func(c *visit) bool {
		now, returned := time.Now(), false
		select {
		case <-c.over:
			now, returned = c.returned, true
			v.judge(c)
		default:
		}
		end := v.endOf(c)
		late := !end.IsZero() && now.After(end.Add(inForce+2*v.l.d.latency()+lateness))
		if late && !c.reported && v.mustEnd(c) {
			c.reported = true
			v.l.w.Errorf("I13 allowed: %s lets a caller whose rights ended at %v (%s) wait until %v: %s %s of %v",
				c.node, end.Sub(began), c.pass, now.Sub(began), c.method, c.path, c.asked.Sub(began))
		}
		return returned
	})
}

// endOf returns when the rights of a call that waits had ended at its node, or zero if that is not known.
func (v *visitor) endOf(c *visit) (end time.Time) {
	p := c.pass
	if p.act != "" {
		end = p.ended.done
	}
	expires := time.UnixMilli(p.endsBy).Add(-c.ahead)
	if p.endsBy != 0 && (p.act == "" || !end.IsZero()) && expires.After(end) {
		end = expires
	}
	if !end.IsZero() && c.asked.After(end) {
		return c.asked
	}
	return end
}

// mustEnd reports whether a node must have ended a call that waits. One that waits for a lock leaves its queue by a
// write.
func (v *visitor) mustEnd(c *visit) bool {
	p, d := c.pass, v.l.d
	if !d.stayed(c.node, c.asked) || v.ahead(c.node) != c.ahead {
		return false
	}
	if c.decides == byLog {
		d.mu.Lock()
		quiet := d.acted.Before(c.asked)
		d.mu.Unlock()
		if !quiet || !d.hears(c.node, c.asked) {
			return false
		}
	}
	return p.act == "" || v.inForce(c.node, p.ended, time.Now())
}
