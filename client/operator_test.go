package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

var by = registry.Act{Author: "anna@bastion", Reason: "kernel update"}

// method is a method of the Client that makes one call.
type method struct {
	sends    string
	do       func(context.Context, *Client) (any, error)
	response string // "" means {}
	want     any    // of the response; nil if the method returns nothing
	missing  error  // what a 404 means; nil if it is a refusal like any other
	removes  bool   // a 404 after an earlier try is a success
	reads    bool
	once     bool // not tried again when it may have taken effect
}

func TestEndOfAnActThatIsNotThereIsAnError(t *testing.T) {
	s := fake.Always(200, `{"app":"ORDERS","id":"orders-1","index":"e-7","nothing":true}`)
	c := clientOf(t, fake.Servers{"a": s}, "a")
	_, err := c.EndOverride(context.Background(), key, by)
	expect.That(t, errors.Is(err, ErrNoAct) && err.Error() == "end the override of ORDERS/orders-1: none is in force", "an override: %v", err)
	_, err = c.EndQuarantine(context.Background(), key, by)
	expect.ErrorIs(t, err, ErrNoAct, "a quarantine:")
}

func done(do func(context.Context, *Client) error) func(context.Context, *Client) (any, error) {
	return func(ctx context.Context, c *Client) (any, error) { return nil, do(ctx, c) }
}

var methods = []method{
	{sends: "PUT /eureka/apps/ORDERS/orders-1?lastDirtyTimestamp=7", missing: ErrNotRegistered,
		do: done(func(ctx context.Context, c *Client) error { return c.Renew(ctx, key, 7) })},
	{sends: "DELETE /eureka/apps/ORDERS/orders-1", missing: ErrNotRegistered, removes: true,
		do: done(func(ctx context.Context, c *Client) error { return c.Cancel(ctx, key) })},
	{sends: "PUT /eureka/apps/ORDERS/orders-1/status?value=DOWN", missing: ErrNotRegistered,
		do: done(func(ctx context.Context, c *Client) error { return c.SetStatus(ctx, key, registry.Down) })},
	{sends: "DELETE /eureka/apps/ORDERS/orders-1/status", missing: ErrNotRegistered,
		do: done(func(ctx context.Context, c *Client) error { return c.DeleteStatus(ctx, key) })},

	{sends: "PUT /v1/rollcall/apps/ORDERS/orders-1/override?author=anna%40bastion&for=1m0s&reason=kernel+update&value=OUT_OF_SERVICE", response: `{"index":"e-7"}`, want: "e-7", missing: ErrNotRegistered,
		do: func(ctx context.Context, c *Client) (any, error) {
			return c.Override(ctx, key, registry.OutOfService, by, time.Minute)
		}},
	{sends: "PUT /v1/rollcall/apps/ORDERS/orders-1/override?value=UP", response: `{"index":"e-7"}`, want: "e-7", missing: ErrNotRegistered,
		do: func(ctx context.Context, c *Client) (any, error) {
			return c.Override(ctx, key, registry.Up, registry.Act{}, 0)
		}},
	{sends: "DELETE /v1/rollcall/apps/ORDERS/orders-1/override?author=anna%40bastion&reason=kernel+update", response: `{"index":"e-7"}`, want: "e-7", missing: ErrNotRegistered,
		do: func(ctx context.Context, c *Client) (any, error) { return c.EndOverride(ctx, key, by) }},
	{sends: "PUT /v1/rollcall/apps/ORDERS/orders-1/quarantine?author=anna%40bastion&for=1h0m0s&reason=kernel+update", response: `{"index":"e-7"}`, want: "e-7", missing: ErrNotRegistered,
		do: func(ctx context.Context, c *Client) (any, error) { return c.Quarantine(ctx, key, by, time.Hour) }},
	{sends: "DELETE /v1/rollcall/apps/ORDERS/orders-1/quarantine?author=anna%40bastion&reason=kernel+update", response: `{"index":"e-7"}`, want: "e-7", missing: ErrNotRegistered,
		do: func(ctx context.Context, c *Client) (any, error) { return c.EndQuarantine(ctx, key, by) }},
	{sends: "GET /v1/rollcall/apps/ORDERS/orders-1/explain", reads: true, missing: ErrNotRegistered,
		response: `{"app":"ORDERS","id":"orders-1","state":"gone","removed":{"at":10,"kind":"evicted"}}`, want: Explanation{App: "ORDERS", ID: "orders-1", State: "gone", Removed: &Removed{At: 10, Kind: "evicted"}},
		do: func(ctx context.Context, c *Client) (any, error) { return c.Explain(ctx, key) }},
	{sends: "GET /v1/rollcall/apps", reads: true, response: `[]`, want: []Instance{},
		do: func(ctx context.Context, c *Client) (any, error) { return c.List(ctx, "") }},
	{sends: "GET /v1/rollcall/apps?app=orders", reads: true, response: `[{"app":"ORDERS","id":"o1","datacenter":"dc2","unheard_ms":41000,"metadata":{"zone":"a"}}]`,
		want: []Instance{{App: "ORDERS", ID: "o1", Owner: Owner{Datacenter: "dc2", UnheardMS: 41000}, Metadata: map[string]string{"zone": "a"}}},
		do:   func(ctx context.Context, c *Client) (any, error) { return c.List(ctx, "orders") }},
	{sends: "GET /v1/rollcall/apps?app=A&quarantined=true", reads: true, response: `[{"app":"A","id":"1"},{"app":"A","id":"2","quarantined_until":4}]`, want: []Instance{{App: "A", ID: "2", QuarantinedUntil: 4}},
		do: func(ctx context.Context, c *Client) (any, error) { return c.Quarantined(ctx, "A") }},
	{sends: "POST /v1/rollcall/prune?not-passing=", response: `[]`, want: []Pruned{},
		do: func(ctx context.Context, c *Client) (any, error) { return c.Prune(ctx, PruneOptions{}) }},
	{sends: "POST /v1/rollcall/prune?dry-run=&not-passing=&service=orders", reads: true, response: `[{"app":"ORDERS","id":"o1","node":"m","status":"DOWN","reason":"r"}]`,
		want: []Pruned{{App: "ORDERS", ID: "o1", Node: "m", Status: "DOWN", Reason: "r"}},
		do: func(ctx context.Context, c *Client) (any, error) {
			return c.Prune(ctx, PruneOptions{Service: "orders", DryRun: true})
		}},

	{sends: "GET /v1/rollcall/verify", reads: true, response: `{"verdict":"differ","index":7,"nodes":[{"id":"n2","differs":["keys"]}]}`,
		want: Verification{Verdict: "differ", Index: 7, Nodes: []VerifiedNode{{ID: "n2", Differs: []string{"keys"}}}},
		do:   func(ctx context.Context, c *Client) (any, error) { return c.Verify(ctx) }},
	{sends: "GET /v1/rollcall/status", reads: true, response: `{"mode":"ap"}`, want: Status{Mode: "ap"},
		do: func(ctx context.Context, c *Client) (any, error) { return c.Status(ctx) }},
	{sends: "GET /v1/rollcall/events", reads: true, want: Events{},
		do: func(ctx context.Context, c *Client) (any, error) { return c.Events(ctx) }},
	{sends: "GET /v1/rollcall/settings", reads: true, response: `{"a":true,"b":0.85,"c":1000000,"d":"1h0m0s"}`, want: Settings{"a": "true", "b": "0.85", "c": "1000000", "d": "1h0m0s"},
		do: func(ctx context.Context, c *Client) (any, error) { return c.Settings(ctx) }},
	{sends: "DELETE /v1/rollcall/members/n%2F1?author=anna%40bastion&reason=kernel+update", missing: ErrUnknownMember, removes: true,
		do: done(func(ctx context.Context, c *Client) error { return c.RemoveMember(ctx, "n/1", by) })},
	{sends: "POST /v1/rollcall/transfer?to=n%2F1", missing: ErrUnknownMember, response: `{"leader":"n/1"}`, want: "n/1",
		do: func(ctx context.Context, c *Client) (any, error) { return c.TransferLeadership(ctx, "n/1") }},
	{sends: "POST /v1/rollcall/transfer", missing: ErrUnknownMember, response: `{"leader":"n2"}`, want: "n2",
		do: func(ctx context.Context, c *Client) (any, error) { return c.TransferLeadership(ctx, "") }},
	{sends: "GET /v1/rollcall/upgrade", reads: true, response: `{"level":1,"next":2,"nodes":[{"id":"n1","oldest":1,"newest":2}]}`,
		want: Upgrade{Level: 1, Next: 2, Nodes: []NodeLevels{{ID: "n1", Oldest: 1, Newest: 2}}},
		do:   func(ctx context.Context, c *Client) (any, error) { return c.Upgrade(ctx) }},
	{sends: "POST /v1/rollcall/upgrade/finalize", response: `{"level":2}`, want: Upgrade{Level: 2},
		do: func(ctx context.Context, c *Client) (any, error) { return c.FinalizeUpgrade(ctx) }},
	{sends: "GET /v1/rollcall/self-preservation", reads: true, response: `{"state":"held","figures":{"leases":4}}`, want: SelfPreservation{State: "held", Figures: Figures{Leases: 4}},
		do: func(ctx context.Context, c *Client) (any, error) { return c.SelfPreservation(ctx) }},
	{sends: "POST /v1/rollcall/self-preservation/release?author=anna%40bastion&reason=kernel+update", response: `{"state":"released"}`, want: SelfPreservation{State: "released"},
		do: func(ctx context.Context, c *Client) (any, error) { return c.ReleaseSelfPreservation(ctx, by) }},
	{sends: "POST /v1/rollcall/self-preservation/hold?author=anna%40bastion&for=1m0s&reason=kernel+update", response: `{"state":"held"}`, want: SelfPreservation{State: "held"},
		do: func(ctx context.Context, c *Client) (any, error) { return c.HoldSelfPreservation(ctx, by, time.Minute) }},

	{sends: "GET /v1/rollcall/peers", reads: true, response: `{"datacenter":"dc1","peers":[{"name":"dc2","cursor":"e-7"}],"senders":[{"sender":"s","late":7}]}`,
		want: Peers{Datacenter: "dc1", Peers: []Peer{{Name: "dc2", Cursor: "e-7"}}, Senders: []PeerSender{{Sender: "s", Late: 7}}},
		do:   func(ctx context.Context, c *Client) (any, error) { return c.Peers(ctx) }},
	{sends: "GET /v1/rollcall/peers/a:1%2Fb/diff", reads: true, response: `{"apps":1}`, want: PeerDiff{Apps: 1}, missing: ErrUnknownPeer,
		do: func(ctx context.Context, c *Client) (any, error) { return c.PeerDiff(ctx, "a:1/b") }},
	{sends: "POST /v1/rollcall/peers/a:1%2Fb/repair", response: `{"apps":1}`, want: PeerDiff{Apps: 1}, missing: ErrUnknownPeer,
		do: func(ctx context.Context, c *Client) (any, error) { return c.RepairPeer(ctx, "a:1/b") }},
	{sends: "POST /v1/rollcall/peers/a:1%2Fb/pause?author=anna%40bastion&reason=kernel+update", missing: ErrUnknownPeer,
		do: done(func(ctx context.Context, c *Client) error { return c.PausePeer(ctx, "a:1/b", by) })},
	{sends: "POST /v1/rollcall/peers/a:1%2Fb/resume?author=anna%40bastion&reason=kernel+update", missing: ErrUnknownPeer,
		do: done(func(ctx context.Context, c *Client) error { return c.ResumePeer(ctx, "a:1/b", by) })},
	{sends: "POST /v1/rollcall/peers/a:1%2Fb/forget?author=anna%40bastion&reason=kernel+update", missing: ErrUnknownSender,
		do: done(func(ctx context.Context, c *Client) error { return c.ForgetSender(ctx, "a:1/b", by) })},

	{sends: "GET /v1/rollcall/auth", reads: true, response: `{"mode":"on","age_s":0.5,"caller":{"name":"ops"}}`, want: AuthStatus{Mode: "on", Age: 0.5, Caller: AuthCaller{Name: "ops"}},
		do: func(ctx context.Context, c *Client) (any, error) { return c.AuthStatus(ctx) }},
	{sends: "PUT /v1/rollcall/auth/mode?author=anna%40bastion&mode=on&reason=kernel+update", response: `{"mode":"on"}`, want: AuthStatus{Mode: "on"},
		do: func(ctx context.Context, c *Client) (any, error) { return c.SetAuthMode(ctx, "on", AuthChange{By: by}) }},
	{sends: "POST /v1/rollcall/auth/bootstrap?author=anna%40bastion&reason=kernel+update", once: true, response: `{"accessor":"a","secret":"rct_"}`, want: NewToken{Token: Token{Accessor: "a"}, Secret: "rct_"},
		do: func(ctx context.Context, c *Client) (any, error) { return c.Bootstrap(ctx, TokenRequest{}, by) }},
	{sends: "GET /v1/rollcall/auth/roles", reads: true, response: `[{"name":"r","rules":["session write"]}]`, want: []Role{{Name: "r", Rules: []string{"session write"}}},
		do: func(ctx context.Context, c *Client) (any, error) { return c.Roles(ctx) }},
	{sends: "GET /v1/rollcall/auth/roles/a%2Fb", reads: true, missing: ErrUnknownRole, response: `{"name":"a/b"}`, want: Role{Name: "a/b"},
		do: func(ctx context.Context, c *Client) (any, error) { return c.Role(ctx, "a/b") }},
	{sends: "PUT /v1/rollcall/auth/roles/r?force=", response: `{"name":"r"}`, want: Role{Name: "r"},
		do: func(ctx context.Context, c *Client) (any, error) {
			return c.PutRole(ctx, Role{Name: "r", Rules: []string{"session write"}}, AuthChange{Force: true})
		}},
	{sends: "DELETE /v1/rollcall/auth/roles/r?force=", missing: ErrUnknownRole, removes: true,
		do: done(func(ctx context.Context, c *Client) error { return c.DeleteRole(ctx, "r", AuthChange{Force: true}) })},
	{sends: "GET /v1/rollcall/auth/tokens", reads: true, response: `[{"accessor":"a"}]`, want: []Token{{Accessor: "a"}},
		do: func(ctx context.Context, c *Client) (any, error) { return c.Tokens(ctx) }},
	{sends: "POST /v1/rollcall/auth/tokens?author=anna%40bastion&reason=kernel+update", once: true, response: `{"accessor":"a","secret":"rct_"}`, want: NewToken{Token: Token{Accessor: "a"}, Secret: "rct_"},
		do: func(ctx context.Context, c *Client) (any, error) {
			return c.CreateToken(ctx, TokenRequest{Name: "n"}, by)
		}},
	{sends: "POST /v1/rollcall/auth/tokens/a/rotate?force=&grace=1h0m0s", once: true, missing: ErrUnknownToken, response: `{"accessor":"a","secret":"rct_"}`, want: NewToken{Token: Token{Accessor: "a"}, Secret: "rct_"},
		do: func(ctx context.Context, c *Client) (any, error) {
			return c.RotateToken(ctx, "a", time.Hour, AuthChange{Force: true})
		}},
	{sends: "DELETE /v1/rollcall/auth/tokens/a?author=anna%40bastion&reason=kernel+update", missing: ErrUnknownToken, removes: true,
		do: done(func(ctx context.Context, c *Client) error { return c.RevokeToken(ctx, "a", AuthChange{By: by}) })},
	{sends: "GET /v1/rollcall/auth/test?accessor=a&need=app+ORDERS+read", reads: true, response: `{"allowed":true,"need":"app ORDERS read"}`, want: Decision{Allowed: true, Need: "app ORDERS read"},
		do: func(ctx context.Context, c *Client) (any, error) { return c.TestPolicy(ctx, "a", "app ORDERS read") }},
	{sends: "GET /v1/rollcall/auth/check", reads: true, response: `{"vips":[{"app":"ORDERS","vip":"ORDERS.NET"}],"more":2}`, want: AuthCheck{VIPs: []RefusedVIP{{App: "ORDERS", VIP: "ORDERS.NET"}}, More: 2},
		do: func(ctx context.Context, c *Client) (any, error) { return c.CheckAuth(ctx) }},
	{sends: "GET /v1/rollcall/audit?app=ORDERS&limit=2&outcome=denied&principal=ops&since=1h", reads: true, response: `{"records":[{"principal":"ops","index":7}]}`, want: []AuditRecord{{Principal: "ops", Index: 7}},
		do: func(ctx context.Context, c *Client) (any, error) {
			return c.Audit(ctx, AuditQuery{Since: "1h", Principal: "ops", App: "ORDERS", Outcome: "denied", Limit: 2})
		}},

	{sends: "GET /v1/rollcall/sessions", reads: true,
		response: `[{"id":"s1","name":"n","node":"m","ttl":"15s","lock_delay":"1s","behavior":"delete","created":1,"age_ms":2,"ends_in_ms":3,"holds":[{"kind":"lock","name":"demo","fence":4}]}]`,
		want: []Session{{ID: "s1", Name: "n", Node: "m", TTL: "15s", LockDelay: "1s", Behavior: "delete", Created: 1, AgeMS: 2, EndsInMS: 3,
			Holds: []Acquisition{{Kind: "lock", Name: "demo", Fence: 4}}}},
		do: func(ctx context.Context, c *Client) (any, error) { return c.Sessions(ctx) }},
	{sends: "GET /v1/rollcall/sessions/s1", reads: true, response: `{"id":"s1"}`, want: Session{ID: "s1"}, missing: ErrNoSession,
		do: func(ctx context.Context, c *Client) (any, error) { return c.Session(ctx, "s1") }},
	{sends: "POST /v1/rollcall/sessions", response: `{"id":"s1"}`, want: Session{ID: "s1"},
		do: func(ctx context.Context, c *Client) (any, error) {
			return c.CreateSession(ctx, SessionOptions{TTL: time.Minute})
		}},
	{sends: "PUT /v1/rollcall/sessions/s1/renew", response: `{"id":"s1"}`, want: Session{ID: "s1"}, missing: ErrNoSession,
		do: func(ctx context.Context, c *Client) (any, error) { return c.RenewSession(ctx, "s1") }},
	{sends: "DELETE /v1/rollcall/sessions/s1", missing: ErrNoSession, removes: true,
		do: done(func(ctx context.Context, c *Client) error { return c.DestroySession(ctx, "s1") })},
	{sends: "GET /v1/rollcall/locks", reads: true,
		response: `[{"name":"demo","limit":1,"holders":[{"session":"s1","fence":4,"since":5,"value":"bWU="}],"queue":[{"session":"s2","waited_ms":6,"gives_up_ms":7,"value":null}],"delays_ms":[8]}]`,
		want: []Permits{{Name: "demo", Limit: 1, Holders: []Holder{{Session: "s1", Fence: 4, Since: 5, Value: []byte("me")}},
			Queue: []Waiter{{Session: "s2", WaitedMS: 6, LeftMS: 7}}, DelaysMS: []int64{8}}},
		do: func(ctx context.Context, c *Client) (any, error) { return c.Locks(ctx) }},
	{sends: "GET /v1/rollcall/semaphores", reads: true, response: `[]`, want: []Permits{},
		do: func(ctx context.Context, c *Client) (any, error) { return c.Semaphores(ctx) }},
	{sends: "GET /v1/rollcall/fence/a%2Fb?index=57&kind=semaphore&session=s1", reads: true, response: `{"holds":true,"fence":57}`, want: FenceState{Holds: true, Fence: 57},
		do: func(ctx context.Context, c *Client) (any, error) {
			return c.CheckFence(ctx, kv.Fence{Kind: kv.Semaphore, Name: "a/b", Index: 57}, "s1")
		}},
}

func TestEveryMethodReturnsTheOutcomeOfItsCall(t *testing.T) {
	var sent string
	missing := fake.Always(404, `{"error":"no"}`)
	for _, m := range methods {
		if m.response == "" {
			m.response = "{}"
		}
		good := func(r *http.Request) (*http.Response, error) {
			sent = r.Method + " " + r.URL.RequestURI()
			return fake.Respond(200, m.response)
		}
		afterCut := error(nil)
		if m.once {
			afterCut = ErrUnknownOutcome
		}
		for _, tc := range []struct {
			name          string
			first, second func(*http.Request) (*http.Response, error)
			want          error  // nil if done, unless says is set
			says          string // in the text of the error
		}{
			{name: "done", first: good},
			{name: "not there", first: missing, want: m.missing, says: map[bool]string{true: "404 Not Found: no"}[m.missing == nil]},
			{name: "no leader there, done elsewhere", first: fake.Always(503, ""), second: good},
			{name: "refused everywhere", first: fake.Always(503, `{"error":"only n3 would be left"}`), second: fake.Always(503, ""), says: "503 Service Unavailable: only n3 would be left"},
			{name: "not offered", first: fake.Always(501, `{"error":"needs consensus"}`), says: "501 Not Implemented: needs consensus"},
			{name: "the server does not know", first: fake.Always(504, "", "X-Rollcall-Outcome", "unknown"), want: ErrUnknownOutcome},
			{name: "unreachable, not there elsewhere", first: fake.Unreachable, second: missing, want: m.missing, says: map[bool]string{true: "404"}[m.missing == nil]},
			{name: "no server", first: fake.Unreachable, second: fake.Unreachable, says: "connection refused"},
			{name: "cut off, done elsewhere", first: fake.CutOff, second: good, want: afterCut},
		} {
			got, err := m.do(t.Context(), clientOf(t, fake.Servers{"a": tc.first, "b": tc.second}, "a", "b"))
			switch {
			case tc.want == nil && tc.says == "":
				expect.That(t, err == nil && sent == m.sends && reflect.DeepEqual(got, m.want), "%s, %s: sent %s, got %+v, %v, want %+v", m.sends, tc.name, sent, got, err, m.want)
			case err == nil || !errors.Is(err, tc.want) && tc.want != nil || !strings.Contains(err.Error(), tc.says) || errors.Is(err, ErrUnknownOutcome) && tc.want != ErrUnknownOutcome:
				t.Errorf("%s, %s: got %v, want %v and %q in it", m.sends, tc.name, err, tc.want, tc.says)
			}
		}
		_, err := m.do(t.Context(), clientOf(t, fake.Servers{"a": fake.CutOff, "b": fake.Unreachable}, "a", "b"))
		expect.That(t, errors.Is(err, ErrUnknownOutcome) == !m.reads, "%s, cut off, and no server elsewhere: %v, want an unknown outcome of a write", m.sends, err)
		if m.removes {
			expect.OKf(t, expect.Err(m.do(t.Context(), clientOf(t, fake.Servers{"a": fake.CutOff, "b": missing}, "a", "b"))), "%s, cut off, gone elsewhere", m.sends)
		}
	}
}

// Nor are there waits for it.
func TestPermitsOfAnAbsentLockAreNone(t *testing.T) {
	for path, ask := range map[string]func(context.Context, *Client) (Permits, error){
		"locks":      func(ctx context.Context, c *Client) (Permits, error) { return c.Lock(ctx, "a/b") },
		"semaphores": func(ctx context.Context, c *Client) (Permits, error) { return c.Semaphore(ctx, "a/b") },
	} {
		j := fake.NewJournal()
		got, err := ask(t.Context(), clientOf(t, fake.Servers{"a": j.Around(fake.Always(200, `{"name":"a/b","limit":3}`))}, "a"))
		expect.That(t, err == nil && j.String() == "GET /v1/rollcall/"+path+"/a%2Fb" && got.Name == "a/b" && got.Limit == 3, "sent %s, got %+v, %v", j, got, err)
		got, err = ask(t.Context(), clientOf(t, fake.Servers{"a": fake.Always(404, `{"error":"nobody holds or waits for it"}`)}, "a"))
		expect.That(t, err == nil && got.Name == "a/b" && len(got.Holders) == 0, "of one that is not held: %+v, %v, want its name alone", got, err)
	}
}

// Unless an earlier try may have done that.
func TestSelfPreservationIsNotReleasedTwice(t *testing.T) {
	off := func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet {
			return fake.Respond(200, `{"state":"released"}`)
		}
		return fake.Respond(409, `{"error":"self-preservation is off: there is nothing to release"}`)
	}
	_, err := clientOf(t, fake.Servers{"a": off}, "a").ReleaseSelfPreservation(t.Context(), by)
	expect.ErrorSays(t, err, "release self-preservation: http://a answered 409 Conflict: self-preservation is off", "got")
	got, err := clientOf(t, fake.Servers{"a": fake.CutOff, "b": off}, "a", "b").ReleaseSelfPreservation(t.Context(), by)
	expect.That(t, err == nil && got.State == "released", "cut off, released elsewhere: %q, %v", got.State, err)
}

// The peer may be far away, and is asked for a lot.
func TestPeerDiffMayLastMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clientOf(t, fake.Servers{"a": func(r *http.Request) (*http.Response, error) {
			select {
			case <-time.After(2 * time.Minute): // virtual
				return fake.Respond(200, `{"apps":1,"missing":2,"extra":3,"items":[{"app":"A","id":"1","what":"older"}]}`)
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		}}, "a")
		got, err := c.PeerDiff(t.Context(), "dc2")
		expect.That(t, err == nil && got.Apps == 1 && got.Missing == 2 && got.Extra == 3 && len(got.Items) == 1 && got.Items[0] == (DiffedItem{App: "A", ID: "1", What: "older"}),
			"got %+v, %v", got, err)
	})
}

func fixture(t *testing.T, name string) string {
	t.Helper()
	return string(need.Got(os.ReadFile("../httpd/eureka/testdata/" + name))(t))
}

func TestAppsReadsTheRegistry(t *testing.T) {
	apps := need.Got(clientOf(t, fake.Servers{"a": fake.Always(200, fixture(t, "apps.json"))}, "a").Apps(t.Context()))(t)
	got := make(map[string]int)
	for _, app := range apps {
		got[app.Name] = len(app.Leases)
	}
	expect.Deep(t, got, map[string]int{"BILLING": 1, "ORDERS": 2}, "got")
}

func TestInstancesOfAnUnknownApplicationAreNone(t *testing.T) {
	got, err := clientOf(t, fake.Servers{"a": fake.Always(404, "")}, "a").Instances(t.Context(), "nobody")
	expect.That(t, err == nil && len(got) == 0, "got %v, %v, want none and no error", got, err)
}

func TestInstancesReadsOneApplication(t *testing.T) {
	got, err := clientOf(t, fake.Servers{"a": fake.Always(200, fixture(t, "application.json"))}, "a").Instances(t.Context(), "orders")
	expect.That(t, err == nil && len(got) == 2 && got[0].Key() == registry.NewKey("ORDERS", "orders-1.example.internal:orders:8080"),
		"got %v, %v, want the two of the fixture", got, err)
}

func TestAppsReturnsAnErrorForAnUnreadableDocument(t *testing.T) {
	c := clientOf(t, fake.Servers{"a": fake.Always(200, "<html>")}, "a")
	expect.That(t, expect.Err(c.Apps(t.Context())) != nil, "Apps: no error")
	expect.That(t, expect.Err(c.Instances(t.Context(), "orders")) != nil, "Instances: no error")
	expect.That(t, expect.Err(c.Status(t.Context())) != nil, "Status: no error")
}

func TestReadsAskForTheConsistencyThatWasConfigured(t *testing.T) {
	var query string
	transport := fake.Servers{"a": func(r *http.Request) (*http.Response, error) {
		query = r.URL.RawQuery
		return fake.Respond(404, "")
	}}
	c := need.Got(New(Config{Servers: []string{"http://a/"}, HTTPClient: &http.Client{Transport: transport}, Consistency: "stale"}))(t)
	need.Got(c.Instances(t.Context(), "orders"))(t)
	expect.Equal(t, query, "consistency=stale", "query")
}

// kvRequest is what a server of keys was asked.
type kvRequest struct {
	line, body, contentType, once string
}

// oneKey responds to every request alike and records the last one.
func oneKey(sent *kvRequest, status int, body string, header ...string) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		text, _ := io.ReadAll(r.Body)
		*sent = kvRequest{r.Method + " " + r.URL.RequestURI(), string(text), r.Header.Get("Content-Type"), r.Header.Get("Idempotency-Key")}
		return fake.Respond(status, body, header...)
	}
}

func TestKVReadsAnEntryWithItsToken(t *testing.T) {
	var sent kvRequest
	const document = `[{"LockIndex":1,"Key":"a/b","Flags":16210313421097356768,"Value":"Ymx1ZQ==","Session":"s1","CreateIndex":57,"ModifyIndex":58}]`
	c := clientOf(t, fake.Servers{"a": oneKey(&sent, 200, document, "X-Rollcall-Fence", "57")}, "a")
	want := Pair{Key: "a/b", Value: []byte("blue"), Flags: 16210313421097356768, Session: "s1", LockIndex: 1, CreateIndex: 57, ModifyIndex: 58, Fence: 57}
	got, err := c.KV().Get(t.Context(), "a/b")
	expect.That(t, err == nil && reflect.DeepEqual(got, want) && sent.line == "GET /v1/kv/a%2Fb", "%s: got %+v, %v, want %+v", sent.line, got, err, want)
	expect.ErrorIs(t, expect.Err(clientOf(t, fake.Servers{"a": fake.Always(404, "", "X-Consul-Index", "7")}, "a").KV().Get(t.Context(), "a")), ErrNoKey,
		"of no key:")
}

func TestKVReadAsksForItsConsistency(t *testing.T) {
	for consistency, want := range map[string]string{"": "GET /v1/kv/a", "stale": "GET /v1/kv/a?stale=", "linearizable": "GET /v1/kv/a?consistent="} {
		var sent kvRequest
		c := clientOf(t, fake.Servers{"a": oneKey(&sent, 404, "")}, "a")
		c.consistency = consistency
		c.KV().Get(t.Context(), "a")
		expect.That(t, sent.line == want, "consistency %q sent %s, want %s", consistency, sent.line, want)
	}
}

func TestKVListsNoAbsentKeys(t *testing.T) {
	c := clientOf(t, fake.Servers{"a": fake.Always(404, "", "X-Consul-Index", "7")}, "a")
	entries, err := c.KV().List(t.Context(), "a")
	expect.That(t, err == nil && len(entries) == 0, "List: %v, %v, want none", entries, err)
	keys, err := c.KV().Keys(t.Context(), "a", "")
	expect.That(t, err == nil && len(keys) == 0, "Keys: %v, %v, want none", keys, err)
}

func TestKVWriteSaysItsConditions(t *testing.T) {
	index := uint64(0)
	write := func(w Write) func(context.Context, KV) (bool, error) {
		return func(ctx context.Context, k KV) (bool, error) {
			written, err := k.Write(ctx, w)
			return written.OK && (w.Acquire == "" || written.Fence == 57), err
		}
	}
	for _, tc := range []struct {
		name string
		do   func(context.Context, KV) (bool, error)
		want string
		body string
	}{
		{name: "put", do: func(ctx context.Context, k KV) (bool, error) { return true, k.Put(ctx, "a", []byte("x")) }, want: "PUT /v1/kv/a", body: "x"},
		{name: "put nothing", do: func(ctx context.Context, k KV) (bool, error) { return true, k.Put(ctx, "a", nil) }, want: "PUT /v1/kv/a"},
		{name: "check and set", do: func(ctx context.Context, k KV) (bool, error) { return k.CAS(ctx, "a", []byte("x"), 57) }, want: "PUT /v1/kv/a?cas=57", body: "x"},
		{name: "create", do: write(Write{Key: "a", CAS: &index, Flags: 7}), want: "PUT /v1/kv/a?cas=0&flags=7"},
		{name: "acquire", do: write(Write{Key: "a", Acquire: "s1"}), want: "PUT /v1/kv/a?acquire=s1"},
		{name: "release", do: write(Write{Key: "a", Release: "s1"}), want: "PUT /v1/kv/a?release=s1"},
		{name: "the key's own token", do: write(Write{Key: "a", Fence: &kv.Fence{Kind: kv.Key, Name: "a", Index: 57}}),
			want: "PUT /v1/kv/a?fence=57"},
		{name: "another key's token", do: write(Write{Key: "a", Fence: &kv.Fence{Kind: kv.Key, Name: "b", Index: 57}}),
			want: "PUT /v1/kv/a?fence=57&fence-key=b"},
		{name: "a semaphore's token", do: write(Write{Key: "a", Fence: &kv.Fence{Kind: kv.Semaphore, Name: "a", Index: 57}}),
			want: "PUT /v1/kv/a?fence=57&fence-semaphore=a"},
		{name: "delete", do: func(ctx context.Context, k KV) (bool, error) { return true, k.Delete(ctx, "a") }, want: "DELETE /v1/kv/a"},
		{name: "delete if unchanged", do: func(ctx context.Context, k KV) (bool, error) { return k.DeleteCAS(ctx, "a", 57) }, want: "DELETE /v1/kv/a?cas=57"},
		{name: "delete a tree", do: func(ctx context.Context, k KV) (bool, error) { return true, k.DeleteTree(ctx, "") }, want: "DELETE /v1/kv/?recurse="},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var sent kvRequest
			ok, err := tc.do(t.Context(), clientOf(t, fake.Servers{"a": oneKey(&sent, 200, "true", "X-Rollcall-Fence", "57")}, "a").KV())
			expect.That(t, err == nil && ok && sent.line == tc.want && sent.body == tc.body,
				"sent %+v, got %v, %v, want %s with %q", sent, ok, err, tc.want, tc.body)
			expect.That(t, sent.once != "" && (!strings.HasPrefix(tc.want, "PUT") || sent.contentType == "application/octet-stream"),
				"sent %+v, want an Idempotency-Key, and bytes as what they are", sent)
		})
	}
}

func TestKVWriteWithAnUnmetConditionIsNotAnError(t *testing.T) {
	c := clientOf(t, fake.Servers{"a": fake.Always(200, "false", "X-Rollcall-Fence", "60")}, "a")
	w, err := c.KV().Write(t.Context(), Write{Key: "a", Acquire: "s1"})
	expect.That(t, err == nil && !w.OK && w.Fence == 60, "got %+v, %v, want a refusal without an error, and the holder's token", w, err)
	gone, err := c.KV().DeleteCAS(t.Context(), "a", 1)
	expect.That(t, err == nil && !gone, "got %v, %v, want a refusal without an error", gone, err)
}

// The second server responds as the first one did.
func TestKVWriteIsRepeatedUnderItsIdempotencyKey(t *testing.T) {
	var first, second kvRequest
	lost := func(r *http.Request) (*http.Response, error) {
		oneKey(&first, 200, "true")(r)
		return fake.CutOff(r)
	}
	c := clientOf(t, fake.Servers{"a": lost, "b": oneKey(&second, 200, "true")}, "a", "b")
	ok, err := c.KV().CAS(t.Context(), "a", []byte("x"), 57)
	expect.That(t, err == nil && ok, "got %v, %v, want success", ok, err)
	expect.That(t, first == second, "sent %+v, and then %+v, want the same", first, second)
	before := second.once
	_, err = c.KV().CAS(t.Context(), "a", []byte("x"), 57)
	expect.That(t, err == nil && second.once != before, "another write has the same Idempotency-Key %q, %v", second.once, err)
}

func TestKVRefusalIsNotTriedElsewhere(t *testing.T) {
	for _, tc := range []struct {
		name    string
		first   func(*http.Request) (*http.Response, error)
		says    string // "" if the second server does it
		unknown bool
	}{
		{name: "an unknown session", first: fake.Always(500, `raft apply failed: invalid session "s"`), says: `invalid session "s"`},
		{name: "no leader", first: fake.Always(500, "No cluster leader")},
		{name: "a node that shuts down", first: fake.Always(500, "this node is shutting down; ask another one")},
		{name: "an unknown outcome", first: fake.Always(504, "", "X-Rollcall-Outcome", "unknown"), says: "outcome unknown", unknown: true},
		{name: "a page of a proxy", first: fake.Always(200, "<html>"), says: "outcome unknown", unknown: true},
		{name: "no consensus", first: fake.Always(501, "needs consensus"), says: "needs consensus"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := clientOf(t, fake.Servers{"a": tc.first, "b": fake.Always(200, "true")}, "a", "b").KV().Put(t.Context(), "a", nil)
			switch {
			case tc.says == "" && err != nil:
				t.Errorf("got %v, want the second server's success", err)
			case tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)):
				t.Errorf("got %v, want %q", err, tc.says)
			case errors.Is(err, ErrUnknownOutcome) != tc.unknown:
				t.Errorf("got %v, want an unknown outcome: %v", err, tc.unknown)
			}
		})
	}
	gone, err := clientOf(t, fake.Servers{"a": fake.Always(200, "")}, "a").KV().DeleteCAS(t.Context(), "a", 1)
	expect.That(t, !gone && errors.Is(err, ErrUnknownOutcome), "a response that says nothing: %v, %v, want an unknown outcome", gone, err)
	err = clientOf(t, fake.Servers{"a": fake.Always(500, "No cluster leader")}, "a").KV().Put(t.Context(), "a", nil)
	expect.That(t, !errors.Is(err, ErrUnknownOutcome), "without a leader: %v, want an outcome that is known", err)
}

// keyServer is a server of one key whose index grows without writes.
type keyServer struct {
	asked []string
	turns []func(*http.Request) (*http.Response, error)
}

func (s *keyServer) respond(r *http.Request) (*http.Response, error) {
	s.asked = append(s.asked, r.URL.RawQuery)
	turn := s.turns[0]
	if len(s.turns) > 1 {
		s.turns = s.turns[1:]
	}
	return turn(r)
}

// keyAt responds with the value of a key at an index, or with 404 if the value is "".
func keyAt(index, value string) func(*http.Request) (*http.Response, error) {
	if value == "" {
		return fake.Always(404, "", "X-Consul-Index", index)
	}
	return fake.Always(200, `[{"Key":"a","Value":"`+value+`","ModifyIndex":`+index+`}]`, "X-Consul-Index", index)
}

// blocks is a server that waits for a change until its time is up, and a fraction longer.
func blocks(then func(*http.Request) (*http.Response, error)) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		if !wait.For(r.Context(), blockFor+blockFor/16) {
			return nil, r.Context().Err()
		}
		return then(r)
	}
}

func TestKVWatchPassesEachStateOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &keyServer{turns: []func(*http.Request) (*http.Response, error){
			keyAt("5", "YQ=="), blocks(keyAt("5", "YQ==")), keyAt("8", ""), fake.Unreachable, fake.Always(500, "No cluster leader"), keyAt("9", "Yg=="),
			keyAt("3", "Yw=="), // the cluster has lost its data
		}}
		var states []string
		start := time.Now()
		err := clientOf(t, fake.Servers{"a": s.respond}, "a").KV().Watch(t.Context(), "a", func(e *Pair) error {
			if e == nil {
				states = append(states, "-")
				return nil
			}
			states = append(states, string(e.Value))
			if string(e.Value) == "c" {
				return errEnough
			}
			return nil
		})
		want := []string{"a", "-", "b", "c"}
		expect.That(t, errors.Is(err, errEnough) && slices.Equal(states, want), "got %q, %v, want %q", states, err, want)
		expect.Slice(t, s.asked, []string{"", "index=5&wait=1m0s", "index=5&wait=1m0s", "index=8&wait=1m0s", "index=8&wait=1m0s", "index=8&wait=1m0s", "index=9&wait=1m0s"},
			"asked")
		took := time.Since(start)
		expect.That(t, took >= blockFor+blockFor/16, "took %v, want that the server may take its time", took)
	})
}

func TestKVWatchTreeReadsAllOfIt(t *testing.T) {
	var sent kvRequest
	c := clientOf(t, fake.Servers{"a": oneKey(&sent, 200, `[{"Key":"a/1"},{"Key":"a/2"}]`, "X-Consul-Index", "7")}, "a")
	err := c.KV().WatchTree(t.Context(), "a/", func(entries []Pair) error {
		expect.That(t, len(entries) == 2, "got %+v, want two entries", entries)
		return errEnough
	})
	expect.That(t, errors.Is(err, errEnough) && sent.line == "GET /v1/kv/a%2F?recurse=", "sent %s, got %v", sent.line, err)
}

func TestKVWatchEnds(t *testing.T) {
	for _, tc := range []struct {
		name   string
		server func(*http.Request) (*http.Response, error)
		says   string // "" if it ends with its context
	}{
		{name: "with its context while it waits", server: fake.Silent},
		{name: "with its context while no server is there", server: fake.Unreachable},
		{name: "with its context while indexes are missing", server: fake.Always(200, "[]")},
		{name: "when it is refused", server: fake.Always(400, "Invalid index"), says: "Invalid index"},
		{name: "without consensus", server: fake.Always(501, "needs consensus"), says: "needs consensus"},
	} {
		fake.InBubble(t, tc.name, func(t *testing.T) {
			ctx := fake.Within(t, time.Hour)
			err := clientOf(t, fake.Servers{"a": tc.server}, "a").KV().Watch(ctx, "a", func(*Pair) error { return errEnough })
			wantSays(t, err, tc.says)
		})
	}
}
