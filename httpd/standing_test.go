package httpd_test

import (
	"bufio"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/order"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/consul"
	"github.com/seed-20419f34/rollcall/httpd/httpdtest"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// keyring holds roles and tokens that a test changes while calls are made.
type keyring struct {
	table    atomic.Pointer[access.Table]
	index    order.Index
	accessor map[string]string // by the text of the token
}

// newKeyring has the roles orders (register ORDERS), pay (register PAY) and reader (read everything that waits).
func newKeyring(t testing.TB, mode access.Mode) *keyring {
	t.Helper()
	k := &keyring{accessor: map[string]string{}}
	k.table.Store(new(access.Table))
	k.change(t, access.Change{Mode: mode, PutRoles: []*access.Role{
		role(t, "orders", "app ORDERS register"),
		role(t, "pay", "app PAY register"),
		role(t, "reader", "app * read", "kv * read", "lock * write", "session write"),
	}})
	return k
}

func role(t testing.TB, name string, rules ...string) *access.Role {
	t.Helper()
	r := &access.Role{Name: name}
	for _, text := range rules {
		r.Rules = append(r.Rules, need.Got(access.ParseRule(text))(t))
	}
	return r
}

func (k *keyring) change(t testing.TB, op access.Change) {
	t.Helper()
	op.Sure = true
	k.index++
	next, refusal := k.table.Load().Apply(&op, k.index, time.Now().UnixMilli())
	need.That(t, refusal == "", "the change was refused: %s", refusal)
	k.table.Store(next)
}

// token makes a token that expires after lasting; 0 means never.
func (k *keyring) token(t testing.TB, role string, lasting time.Duration) (text string) {
	t.Helper()
	text, accessor, hash := newToken(t, "")
	token := &access.Token{Accessor: accessor, Name: role + "-" + accessor[:4], Roles: []string{role}, Secrets: []access.Secret{{Hash: hash}}}
	if lasting != 0 {
		token.Expires = time.Now().Add(lasting).UnixMilli()
	}
	k.change(t, access.Change{Create: []*access.Token{token}})
	k.accessor[text] = accessor
	return text
}

func newToken(t testing.TB, cluster string) (text, accessor string, hash [32]byte) {
	t.Helper()
	var random [access.RandomBytes]byte
	_, _ = rand.Read(random[:])
	text = access.NewText(random, "", cluster)
	accessor, hash, err := access.Parse(text, cluster)
	need.OK(t, err)
	return text, accessor, hash
}

func (k *keyring) revoke(t testing.TB, text string) {
	t.Helper()
	k.change(t, access.Change{Revoke: []string{k.accessor[text]}})
}

// rotate gives a token another secret; the old one stays good for the grace time.
func (k *keyring) rotate(t testing.TB, text string, grace time.Duration) {
	t.Helper()
	k.change(t, access.Change{Rotate: []access.Rotation{{Accessor: k.accessor[text], Hash: access.HashOf("another"), Until: time.Now().Add(grace).UnixMilli()}}})
}

func (k *keyring) config() httpd.Config {
	return httpd.Config{Access: web.AccessConfig{Table: k.table.Load}, Metrics: prometheus.NewRegistry()}
}

func basic(token string) string {
	return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("orders:"+token))
}

func beatWith(fields ...string) string {
	return httpdtest.Request("PUT", "/eureka/apps/ORDERS/i1", "", fields...)
}

// Whatever happens to credentials after a connection was taken over, a heartbeat on it is answered and counted like
// one on a fresh connection.
func TestHeartbeatConnectionJudgesCredentialsAsAnyOther(t *testing.T) {
	same := func(k *keyring, orders string) []string { return []string{basic(orders)} }
	for name, row := range map[string]struct {
		change func(t *testing.T, k *keyring, orders string)
		fields func(k *keyring, orders string) []string // nil if the same as before
		target string                                   // empty if the same as before
		status int
		back   bool // net/http gets the connection back
	}{
		"the same":                 {status: 200},
		"the same in another form": {fields: func(_ *keyring, orders string) []string { return []string{"x-consul-token: " + orders} }, status: 200},
		"the same in two forms": {fields: func(_ *keyring, orders string) []string {
			return []string{"Authorization: Bearer " + orders, "X-Consul-Token: " + orders}
		}, status: 200},
		"none":                 {fields: func(*keyring, string) []string { return nil }, status: 401},
		"empty":                {fields: func(*keyring, string) []string { return []string{"Authorization:"} }, status: 401, back: true},
		"another that may":     {fields: func(k *keyring, _ string) []string { return []string{basic(k.token(t, "orders", 0))} }, status: 200},
		"another that may not": {fields: func(k *keyring, _ string) []string { return []string{basic(k.token(t, "pay", 0))} }, status: 403},
		"one that is not known": {fields: func(*keyring, string) []string {
			text, _, _ := newToken(t, "")
			return []string{basic(text)}
		}, status: 401},
		"another cluster's": {fields: func(*keyring, string) []string {
			text, _, _ := newToken(t, "elsewhere")
			return []string{basic(text)}
		}, status: 401},
		"cut off": {fields: func(_ *keyring, orders string) []string { return []string{basic(orders[:len(orders)-1])} }, status: 401},
		"two that contradict": {fields: func(k *keyring, orders string) []string {
			return []string{basic(orders), "X-Consul-Token: " + k.token(t, "orders", 0)}
		}, status: 401},
		"two of a kind": {fields: func(k *keyring, orders string) []string {
			return []string{basic(orders), basic(k.token(t, "orders", 0))}
		}, status: 401, back: true},
		"and one in the URL":      {target: "/eureka/apps/ORDERS/i1?token=rct_x", status: 401},
		"of another application":  {target: "/eureka/apps/PAY/i1", status: 403},
		"of an unknown instance":  {target: "/eureka/apps/ORDERS/nobody", status: 404},
		"revoked":                 {change: (func(t *testing.T, k *keyring, orders string) { k.revoke(t, orders) }), status: 401},
		"rotated without a grace": {change: (func(t *testing.T, k *keyring, orders string) { k.rotate(t, orders, 0) }), status: 401},
		"rotated with a grace":    {change: (func(t *testing.T, k *keyring, orders string) { k.rotate(t, orders, time.Hour) }), status: 200},
		"its role was taken away": {change: func(t *testing.T, k *keyring, _ string) { k.change(t, access.Change{DropRoles: []string{"orders"}}) }, status: 403},
		"its role lets it less": {change: func(t *testing.T, k *keyring, _ string) {
			k.change(t, access.Change{PutRoles: []*access.Role{role(t, "orders", "app ORDERS read")}})
		}, status: 403},
		"another role was changed":   {change: func(t *testing.T, k *keyring, _ string) { k.change(t, access.Change{DropRoles: []string{"pay"}}) }, status: 200},
		"none, and nothing is asked": {change: func(t *testing.T, k *keyring, _ string) { k.change(t, access.Change{Mode: access.Off}) }, fields: func(*keyring, string) []string { return nil }, status: 200},
		"none, and it is but logged": {change: func(t *testing.T, k *keyring, _ string) { k.change(t, access.Change{Mode: access.LogOnly}) }, fields: func(*keyring, string) []string { return nil }, status: 200},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKeyring(t, access.On)
			orders := k.token(t, "orders", 0)
			config := k.config()
			n := httpdtest.NewNode(t, config, nil)
			n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("PAY", "i1")})
			warm := takenOverBy(t, n, beatWith(basic(orders)))
			if row.change != nil {
				row.change(t, k, orders)
			}
			fields := same
			if row.fields != nil {
				fields = row.fields
			}
			target := row.target
			if target == "" {
				target = "/eureka/apps/ORDERS/i1"
			}
			beat := httpdtest.Request("PUT", target, "", fields(k, orders)...)
			counted := func() (n [2]float64) {
				for i, metric := range []string{"rollcall_auth_denied_total", "rollcall_auth_would_deny_total"} {
					n[i] = sumOf(t, config.Metrics, metric)
				}
				return n
			}
			none := counted()
			got := warm.RoundTrip(t, beat)
			once := counted()
			want := n.Send(t, beat)
			twice := counted()
			for _, r := range []*httpdtest.Reply{&got, &want} {
				r.Header.Del("Date")
			}
			expect.That(t, got.Status == row.status && got.Body == want.Body && want.Status == row.status && maps.EqualFunc(got.Header, want.Header, slices.Equal),
				"got  %+v\nwant %+v, and status %d", got, want, row.status)
			for i := range none {
				expect.That(t, once[i]-none[i] == twice[i]-once[i], "counted %v, then %v, then %v", none, once, twice)
			}
			expect.That(t, n.Handler.TookOver(warm.LocalAddr().String()) != row.back, "given back: %v", !row.back)
			if !row.back && row.change == nil { // the standing from before does not carry over to the next row
				warm.RoundTrip(t, beatWith(basic(orders))).Says(t, 200, "", "the credential of before")
				if row.target == "" {
					warm.RoundTrip(t, beat).Says(t, row.status, "", "this one again")
				}
			}
		})
	}
}

// sumOf returns the sum of a counter that may not have counted yet.
func sumOf(t testing.TB, metrics *prometheus.Registry, name string) (sum float64) {
	t.Helper()
	for _, family := range need.Got(metrics.Gather())(t) {
		if family.GetName() == name {
			for _, series := range family.GetMetric() {
				sum += series.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func TestHeartbeatConnectionEndsTheStandingOfACredentialThatEnds(t *testing.T) {
	for name, lasting := range map[string]time.Duration{"a token": 30 * time.Second, "a secret": 0} {
		httpdtest.InBubble(t, name, func(t *testing.T) {
			k := newKeyring(t, access.On)
			orders := k.token(t, "orders", lasting)
			if lasting == 0 {
				k.rotate(t, orders, 30*time.Second)
			}
			n := httpdtest.NewBubbled(t, k.config())
			n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
			conn := need.Got(n.Pipes.Dial(t.Context(), "", ""))(t)
			defer conn.Close()
			l := httpdtest.Line{Conn: conn, In: bufio.NewReader(conn)}
			for i := range 5 {
				need.Equal(t, l.RoundTrip(t, beatWith(basic(orders))).Status, 200, "heartbeat: got")
				need.That(t, i < 3 || n.Handler.TookOver("pipe"), "the connection was not taken over")
			}
			time.Sleep(30*time.Second - time.Millisecond)
			expect.Equal(t, l.RoundTrip(t, beatWith(basic(orders))).Status, 200, "just before: got")
			time.Sleep(time.Millisecond)
			expect.Equal(t, l.RoundTrip(t, beatWith(basic(orders))).Status, 401, "at the end: got")
		})
	}
}

func allOf(stream, others string) map[string]string {
	return map[string]string{"stream": stream, "poll": others, "key": others, "lock": others}
}

// A revocation takes effect within a second, also for calls already let in.
func TestCallThatWaitsEndsWhenItsCallerMayNotGoOn(t *testing.T) {
	unauthorized, forbidden := allOf("200, true", "401, true"), allOf("200, true", "403, true")
	unauthorized["key"] = "403, true" // in Consul's API both are
	for name, row := range map[string]struct {
		mode   access.Mode
		change func(t *testing.T, k *keyring, token string)
		want   map[string]string
	}{
		"its token is revoked":    {access.On, func(t *testing.T, k *keyring, token string) { k.revoke(t, token) }, unauthorized},
		"its secret is exchanged": {access.On, func(t *testing.T, k *keyring, token string) { k.rotate(t, token, 0) }, unauthorized},
		"the grace of its secret ends": {access.On, func(t *testing.T, k *keyring, token string) {
			k.rotate(t, token, 2*time.Minute)
			time.Sleep(2 * time.Minute)
		}, unauthorized},
		"its token ends":             {access.On, func(*testing.T, *keyring, string) { time.Sleep(4 * time.Minute) }, unauthorized},
		"its role is taken away":     {access.On, func(t *testing.T, k *keyring, _ string) { k.change(t, access.Change{DropRoles: []string{"reader"}}) }, forbidden},
		"another role is taken away": {access.On, func(t *testing.T, k *keyring, _ string) { k.change(t, access.Change{DropRoles: []string{"pay"}}) }, allOf("", "")},
		"its role lets it do other things": {access.On, func(t *testing.T, k *keyring, _ string) {
			k.change(t, access.Change{PutRoles: []*access.Role{role(t, "reader", "app A read", "kv j read", "lock m write", "session write")}})
		}, forbidden},
		"its token is revoked, and nothing is asked": {access.Off, func(t *testing.T, k *keyring, token string) { k.revoke(t, token) }, allOf("", "")},
		"its token is revoked, which is but logged":  {access.LogOnly, func(t *testing.T, k *keyring, token string) { k.revoke(t, token) }, allOf("", "")},
		"it is asked now": {access.Off, func(t *testing.T, k *keyring, token string) {
			k.revoke(t, token)
			k.change(t, access.Change{Mode: access.On})
		}, unauthorized},
	} {
		httpdtest.InBubble(t, name, func(t *testing.T) {
			k := newKeyring(t, row.mode)
			token := k.token(t, "reader", 5*time.Minute)
			m := fsmtest.New()
			config := k.config()
			config.Service, config.Coordination, config.Agents = m, fsmtest.NewCoordination(m), consul.OneAgent
			n := httpdtest.NewBubbled(t, config)
			ended := n.Waiting(t, "X-Consul-Token: "+token)
			k.token(t, "reader", 0) // a change that affects nobody
			time.Sleep(time.Minute)
			synctest.Wait()
			need.That(t, maps.Equal(ended(), allOf("", "")), "ended without a reason: %v", ended())
			row.change(t, k, token)
			time.Sleep(time.Second)
			synctest.Wait()
			got := ended()
			expect.That(t, maps.Equal(got, row.want), "after a second: %v, want %v", got, row.want)
			// makes the others end
			k.change(t, access.Change{Mode: access.On, PutRoles: []*access.Role{role(t, "reader", "node read")}})
			time.Sleep(time.Second)
			synctest.Wait()
		})
	}
}

// A caller that loses its permission while it is being let in is not forgotten, whenever that happens.
func TestCallThatWaitsIsJudgedByWhatChangedWhileItBegan(t *testing.T) {
	for revoked := range int64(12) { // how many times the table is read first
		httpdtest.Bubble(t, func(t *testing.T) {
			k := newKeyring(t, access.On)
			token := k.token(t, "reader", 0)
			looks := new(atomic.Int64)
			config := httpd.Config{Service: fsmtest.New(), Access: web.AccessConfig{Table: func() *access.Table {
				if looks.Add(1) == revoked+1 {
					k.revoke(t, token)
				}
				return k.table.Load()
			}}}
			handler := need.Got(httpd.New(config))(t)
			looks.Store(0)
			begun := time.Now()
			r := httptest.NewRequest("GET", "/v1/rollcall/watch?wait=9m", nil)
			r.Header.Set("X-Consul-Token", token)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			expect.That(t, w.Code == 401 && time.Since(begun) <= 10*time.Second, "revoked at look %d: got %d after %v", revoked, w.Code, time.Since(begun))
		})
	}
}

// What is known of a TLS connection survives being taken over and given back.
func TestHeartbeatConnectionOverTLSIsTakenOver(t *testing.T) {
	certificate, trusted := httpdtest.Certified(t)
	k := newKeyring(t, access.On)
	orders := k.token(t, "orders", 0)
	n := httpdtest.NewNode(t, k.config(), func(s *http.Server) {
		s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2", "http/1.1"}}
	})
	n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
	open := func() httpdtest.Line {
		conn := tls.Client(n.Dial(t), &tls.Config{RootCAs: trusted, ServerName: "example.com"})
		return httpdtest.Line{Conn: conn, In: bufio.NewReader(conn)}
	}
	beat := beatWith(basic(orders))
	l := open()
	for range 3 {
		for range 3 {
			need.Equal(t, l.RoundTrip(t, beat).Status, 200, "heartbeat: got")
		}
		need.That(t, n.Handler.TookOver(l.LocalAddr().String()), "not taken over after three heartbeats")
		for range 70 {
			l.RoundTrip(t, beat)
		}
		need.Equal(t, l.RoundTrip(t, httpdtest.Request("GET", "/healthz", "")).Status, 200, "a read between: got")
	}
	need.Equal(t, n.Handler.Layers(l.LocalAddr().String()), 0, "layers of a connection that net/http has: got")
	for range 3 {
		l.RoundTrip(t, beat)
	}
	expect.Equal(t, n.Handler.Layers(l.LocalAddr().String()), 1, "layers: got")
	need.Got(io.WriteString(l, beat+beatWith()+beat))(t)
	for i, want := range []int{200, 401, 200} {
		expect.Equal(t, l.Read(t, "PUT ").Status, want, "heartbeat %d of a pipeline: got", i)
	}
	k.revoke(t, orders)
	expect.Equal(t, l.RoundTrip(t, beat).Status, 401, "revoked: got")
	idle := l
	need.OK(t, n.Handler.Shutdown(t.Context()))
	expect.Equal(t, expect.Err(idle.In.ReadByte()), io.EOF, "the idle connection after the shutdown: got")
}

// A TLS connection has one lifetime, whoever reads it.
func TestHeartbeatConnectionOverTLSEndsWithinAnHour(t *testing.T) {
	certificate, trusted := httpdtest.Certified(t)
	for name, reads := range map[string]func(minute int) bool{
		"heartbeats":             func(int) bool { return false },
		"heartbeats, then reads": func(minute int) bool { return minute > 30 },
		"reads between":          func(minute int) bool { return minute%9 == 0 },
	} {
		httpdtest.InBubble(t, name, func(t *testing.T) {
			n := httpdtest.NewBubbledTLS(t, httpd.Config{}, &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2", "http/1.1"}})
			n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
			conn := tls.Client(need.Got(n.Pipes.Dial(t.Context(), "", ""))(t), &tls.Config{RootCAs: trusted, ServerName: "example.com"})
			l := httpdtest.Line{Conn: conn, In: bufio.NewReader(conn)}
			defer l.Close()
			took := 0
			for minute := 0; ; minute++ {
				need.That(t, minute < 60, "the connection lives after an hour")
				call := beatWith()
				if reads(minute) {
					call = httpdtest.Request("GET", "/healthz", "")
				}
				for range 70 { // heartbeats, so that the connection is worth taking over
					if got := l.RoundTrip(t, call); got.Closed {
						expect.That(t, got.Status == 200 && minute >= 40 && minute <= 50 && took > 0, "status %d, it ended in minute %d, taken over in %d", got.Status, minute, took)
						return
					}
				}
				if n.Handler.TookOver("pipe") {
					took++
				}
				time.Sleep(time.Minute)
			}
		})
	}
}
