package sim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

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
	stranger *World // its clients have an address of their own: bad credentials are counted by address

	mu       sync.Mutex
	accessor string
	secret   string    // empty: it has no token
	denied   time.Time // since when it must not write; zero: it may, or nobody knows
	revoked  string    // a token that was revoked, and when
	at       time.Time
}

// hidden is the value of a key that the stranger may not read.
const hidden = "hidden-from-strangers"

const (
	wideRules   = `{"rules":["app MINE read,register","kv mine/ read,write"]}`
	narrowRules = `{"rules":["app MINE read"]}`
	newStranger = `{"name":"stranger","app":"MINE","roles":["stranger"]}`
)

// begin makes the first operator, by whom all clients call from now on, and the stranger.
func (p *permits) begin(l *load) {
	w := l.w
	var operator api.NewToken
	w.Await(ReadyWithin, "the first operator is made", func() bool {
		return w.Admin(w.nodes[0].Name, "POST", "/v1/rollcall/auth/bootstrap", "").decode(&operator)
	})
	open := w.clients.Transport
	w.clients = &http.Client{Transport: bearer{open, "Bearer " + operator.Secret}}
	stranger := *w
	stranger.clients = w.Client("127.0.9.7")
	p.l, p.stranger = l, &stranger
	w.Await(ReadyWithin, "the operator is known everywhere, and hides something", func() bool {
		return w.Call(w.nodes[0].Name, "PUT", "/v1/kv/secret/x", hidden).Status == http.StatusOK
	})
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
	p.change("grant", "PUT", "/v1/rollcall/auth/roles/stranger", wideRules, nil)
	p.replace()
}

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
	if p.l == nil || !p.change("narrow", "PUT", "/v1/rollcall/auth/roles/stranger", narrowRules, nil) {
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
	done := p.change("revoke", "DELETE", "/v1/rollcall/auth/tokens/"+p.accessor, "", nil)
	p.mu.Lock()
	if done {
		p.revoked, p.at = p.secret, time.Now()
	}
	p.secret = ""
	p.mu.Unlock()
	p.replace()
}

// inForce is when a change of permissions is in force at every node that hears the leader (docs/run/permissions.md).
const inForce = time.Second

// trespass tries something that the stranger may not do, or may no longer.
func (p *permits) trespass() {
	p.mu.Lock()
	secret, denied, revoked, at := p.secret, p.denied, p.revoked, p.at
	p.mu.Unlock()
	node, asked := p.l.node(), time.Now()
	do := func(secret, method, path, body string) Reply {
		var headers []string
		if secret != "" {
			headers = append(headers, "Authorization: Bearer "+secret)
		}
		r := p.stranger.call(node, certainWithin, method, path, body, headers...)
		p.l.count("trespass", r.Outcome())
		return r
	}
	// A node that hears no leader goes on with what it knows, and so admits a write that it may send to one later.
	hears := p.l.d.hears(node, asked)
	refuse := func(why string, r Reply, path string) {
		if r.Status/100 == 2 || r.Status == http.StatusNotFound || strings.Contains(r.Body, hidden) {
			p.l.w.Errorf("I13 allowed: %s answers %s of a caller without the right (%s) at %v: %v", node, path, why, asked.Sub(began), r)
		}
	}
	forbidden := []struct{ method, path, body string }{
		{"GET", "/v1/kv/secret/x?raw&stale", ""},
		{"GET", "/v1/kv/secret/x?raw", ""},
		{"PUT", "/v1/kv/secret/y", "written"},
		{"DELETE", "/eureka/apps/LIVE/i0", ""},
		{"POST", "/eureka/apps/OTHER", p.l.w.newInstance("OTHER/o", longLease).document()},
		{"GET", "/v1/rollcall/snapshot?stale", ""},
		{"POST", "/v1/rollcall/replication", "x"},
		{"POST", "/v1/rollcall/transfer", ""},
	}
	switch turn := rand.IntN(len(forbidden) + 3); {
	case turn < len(forbidden):
		f := forbidden[turn]
		refuse("never granted", do(secret, f.method, f.path, f.body), f.path)
	case turn == len(forbidden) && revoked != "":
		r := do(revoked, "PUT", "/v1/kv/mine/x", "revoked")
		if hears && asked.Sub(at) > inForce {
			refuse("the token was revoked at "+at.Sub(began).String(), r, "/v1/kv/mine/x")
		}
	default:
		r := do(secret, "PUT", "/v1/kv/mine/x", "granted")
		p.mu.Lock()
		still := p.denied.Equal(denied) // else it was given back meanwhile
		p.mu.Unlock()
		if secret == "" || hears && still && !denied.IsZero() && asked.Sub(denied) > inForce {
			refuse("the right was taken away at "+fmt.Sprint(denied.Sub(began)), r, "/v1/kv/mine/x")
		}
	}
}

// judge expects that the stranger has left nothing behind.
func (p *permits) judge(lists map[string]map[string]bool) {
	if p.l == nil {
		return
	}
	for node, list := range lists {
		if list["OTHER/o"] {
			p.l.w.Errorf("I13 allowed: %s lists OTHER/o, which only a caller without the right has registered", node)
		}
	}
	node := p.l.w.nodes[0].Name
	if r := p.l.w.Call(node, "GET", "/v1/kv/secret/?keys", ""); strings.Contains(r.Body, "secret/y") {
		p.l.w.Errorf("I13 allowed: secret/y, which only a caller without the right has written: %v", r)
	}
}
