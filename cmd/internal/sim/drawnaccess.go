package sim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// bearer adds the operator's token to calls that have no credential.
type bearer struct {
	http.RoundTripper
	header string
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Authorization") == "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", b.header)
	}
	return b.RoundTripper.RoundTrip(r)
}

// permits is a caller of few rights, whose role and token change. Its rights are to write keys under mine/, or nothing.
type permits struct {
	l        *load
	file     *permitFile // nil: roles and tokens are the cluster's
	stranger *World      // its clients have an address of their own: bad credentials are counted by address

	mu       sync.Mutex
	accessor string
	secret   string    // empty: it has no token
	rules    string    // of the file, as JSON
	lines    string    // of the file, with the token
	changed  time.Time // when the file was
	denied   time.Time // since when it must not write; zero: it may, or nobody knows
	revoked  string    // a token that was revoked, and when
	at       time.Time
}

// hidden is the value of a key that the stranger may not read.
const hidden = "hidden-from-strangers"

const (
	wideRules   = `["app MINE read,register","kv mine/ read,write"]`
	narrowRules = `["app MINE read"]`
	newStranger = `{"name":"stranger","app":"MINE","roles":["stranger"]}`
)

// begin makes the first operator, by whom all clients call from now on, and the stranger.
func (p *permits) begin(l *load) {
	w := l.w
	var operator api.NewToken
	if p.file != nil {
		operator.Secret = p.file.operator
	} else {
		w.Await(ReadyWithin, "the first operator is made", func() bool {
			return w.Admin(w.nodes[0].Name, "POST", "/v1/rollcall/auth/bootstrap", "").decode(&operator)
		})
	}
	open := w.clients.Transport
	w.clients = &http.Client{Transport: bearer{open, "Bearer " + operator.Secret}}
	stranger := *w
	stranger.clients = w.Client("127.0.9.7")
	p.l, p.stranger = l, &stranger
	first := w.nodes[0].Name
	w.Await(ReadyWithin, "the operator is known everywhere, and hides something", func() bool {
		secret := Registration("SECRET", "s", longLease, map[string]string{"hidden": hidden})
		return w.Call(first, "POST", "/eureka/apps/SECRET", secret).Status == http.StatusNoContent
	})
	if w.Mode() == config.CP {
		w.Await(ReadyWithin, "it hides a key", func() bool {
			return w.Call(first, "PUT", "/v1/kv/secret/x", hidden).Status == http.StatusOK
		})
	}
	w.Wait(lastWrites) // so that no kill loses it
	p.grant()
	need.That(w, p.secret != "", "the stranger has no token")
}

// change makes a call of the operator's at a random node, and reports whether it was done.
func (p *permits) change(kind, method, path, body string, to any) bool {
	r := p.l.ask(kind, p.l.node(), method, path, body)
	p.l.count(kind, r.Outcome())
	if r.Outcome() == Unknown {
		time.Sleep(unknownTakes)
	}
	return r.Status == http.StatusOK && (to == nil || json.Unmarshal([]byte(r.Body), to) == nil)
}

// grant gives the stranger's role its rights, and the stranger a token if it has none.
func (p *permits) grant() {
	if p.l == nil {
		return
	}
	p.mu.Lock()
	p.denied = time.Time{}
	p.mu.Unlock()
	if p.file != nil {
		p.rewrite(wideRules)
		return
	}
	p.change("grant", "PUT", "/v1/rollcall/auth/roles/stranger", bodyOf(wideRules), nil)
	p.replace()
}

// bodyOf is the body that gives a role its rules.
func bodyOf(rules string) string { return `{"rules":` + rules + `}` }

// replace gives the stranger a token if it has none.
func (p *permits) replace() {
	p.mu.Lock()
	has := p.secret != ""
	p.mu.Unlock()
	var made api.NewToken
	if !has && p.change("token", "POST", "/v1/rollcall/auth/tokens", newStranger, &made) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.accessor, p.secret = made.Accessor, made.Secret
	}
}

// narrow takes the right to write away.
func (p *permits) narrow() {
	switch {
	case p.l == nil:
		return
	case p.file != nil:
		p.rewrite(narrowRules)
	case !p.change("narrow", "PUT", "/v1/rollcall/auth/roles/stranger", bodyOf(narrowRules), nil):
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.denied = time.Now()
}

// revoke revokes the stranger's token, and gives it another one.
func (p *permits) revoke() {
	if p.l == nil || p.secret == "" {
		return
	}
	done := p.file != nil || p.change("revoke", "DELETE", "/v1/rollcall/auth/tokens/"+p.accessor, "", nil)
	p.mu.Lock()
	if done {
		p.revoked, p.at = p.secret, time.Now()
	}
	p.secret = ""
	p.mu.Unlock()
	if p.file != nil {
		p.rewrite(p.rules)
		return
	}
	p.replace()
}

// inForce is when a change of permissions is in force at every node that hears the leader (docs/run/permissions.md).
const inForce = time.Second

// isInForce reports whether a node must have put a change of that time in force. One that hears no leader goes on with what it
// knows of the cluster's permissions, and so admits a write that it may send to one later.
func (p *permits) isInForce(node string, change, asked time.Time) bool {
	if p.file == nil {
		return p.l.d.hears(node, asked) && asked.Sub(change) > inForce
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.l.d.stayed(node, asked.Add(-ReadyWithin)) && asked.Sub(p.changed) > fileInForce // no earlier change is later in force
}

// trespass tries something that the stranger may not do, or may no longer.
func (p *permits) trespass() {
	p.mu.Lock()
	secret, denied, revoked, at := p.secret, p.denied, p.revoked, p.at
	p.mu.Unlock()
	node, asked := p.l.anyNode(), time.Now()
	do := func(f forgery) Reply {
		headers := []string{"Content-Type: application/json"}
		if f.secret != "" {
			headers = append(headers, "Authorization: Bearer "+f.secret)
		}
		r := p.stranger.call(node, certainWithin, f.method, f.path, f.body, headers...)
		p.l.count("trespass", r.Outcome())
		return r
	}
	refuse := func(why string, r Reply, f forgery) {
		if r.Status/100 == 2 || r.Status == http.StatusNotFound || strings.Contains(r.Body, hidden) {
			p.l.w.Errorf("I13 allowed: %s answers %s %s of a caller without the right (%s) at %v: %.300q", node, f.method, f.path, why, asked.Sub(began), r)
		}
	}
	forbidden := append(p.forgeries(secret), []forgery{
		{secret, "GET", "/eureka/apps/SECRET", ""},
		{secret, "GET", "/eureka/apps", ""},
		{secret, "DELETE", "/eureka/apps/LIVE/i0", ""},
		{secret, "POST", "/eureka/apps/OTHER", p.l.w.newInstance("OTHER/o", longLease).document()},
		{secret, "GET", "/v1/rollcall/snapshot?stale", ""},
		{secret, "POST", "/v1/rollcall/transfer", ""},
	}...)
	may := forgery{secret, "PUT", "/v1/kv/mine/x", "granted"} // as long as it has the right
	if p.l.w.Mode() == config.AP {
		may = forgery{secret, "PUT", "/eureka/apps/MINE/m", ""}
	} else {
		forbidden = append(forbidden, forgery{secret, "GET", "/v1/kv/secret/x?raw&stale", ""},
			forgery{secret, "GET", "/v1/kv/secret/x?raw", ""}, forgery{secret, "PUT", "/v1/kv/secret/y", "written"})
	}
	switch turn := rand.IntN(len(forbidden) + 4); {
	case turn < len(forbidden):
		f := forbidden[turn]
		refuse("never granted", do(f), f)
	case turn == len(forbidden) && revoked != "":
		may.secret = revoked
		if r := do(may); p.isInForce(node, at, asked) {
			refuse("the token was revoked at "+at.Sub(began).String(), r, may)
		}
	default:
		r := do(may)
		p.mu.Lock()
		still := p.denied.Equal(denied) // else it was given back meanwhile
		p.mu.Unlock()
		if secret == "" || still && !denied.IsZero() && p.isInForce(node, denied, asked) {
			refuse("the right was taken away at "+fmt.Sprint(denied.Sub(began)), r, may)
		}
	}
}

// judge expects that the stranger has left nothing behind.
func (p *permits) judge(lists map[string]map[string]bool) {
	if p.l == nil {
		return
	}
	for node, list := range lists {
		for name := range list {
			if strings.HasPrefix(name, "OTHER/") {
				p.l.w.Errorf("I13 allowed: %s lists %s, which only a caller without the right has registered", node, name)
			}
		}
	}
	node := p.l.w.nodes[0].Name
	if r := p.l.w.Call(node, "GET", "/v1/kv/secret/?keys", ""); strings.Contains(r.Body, "secret/y") {
		p.l.w.Errorf("I13 allowed: secret/y, which only a caller without the right has written: %v", r)
	}
}
