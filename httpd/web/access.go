package web

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/order"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/world"
)

// AccessConfig is what access control needs of a node.
type AccessConfig struct {
	World *world.World // nil: the machine's; NewNode sets it
	// Floor is the mode of this node at least; the cluster's may be stricter. Unset: off.
	Floor access.Mode
	// TokenInQuery: a token may stand in the URL, as ?token=.
	TokenInQuery bool
	// Cluster is the id that the texts of tokens are checked with; nil: "".
	Cluster func() string
	// Table is the cluster's roles and tokens, as this node knows them; File those of a file. Nil, or a nil
	// table: there are none. What does not change stays the same table: by that, decisions are made again or
	// not. Both are called often.
	Table, File func() *access.Table
	// FileFailure says why the file is not in force as it is now, or returns "". Nil: there is no file.
	FileFailure func() string
	// Lacks says in words which protection the node does without that other machines reach, in a mode. Nil: it
	// lacks nothing.
	Lacks func(access.Mode) []string
}

// Principal is who makes a call. A nil *Principal is a caller without a credential.
type Principal struct {
	Name     string // of the token, for people, the history and the audit
	Accessor string // of the token; "": there is none
	Via      string // by what the principal is known: token, file, admin.sock
	policy   atomic.Pointer[access.Policy]
	judged   order.Index       // the revision of the cluster's table that says so; 0: another one does, or nothing is refused by it
	hash     [sha256.Size]byte // of the token's text
	ends     int64             // when the token, or this secret, expires; ms since the epoch, 0: never
	all      bool              // everything is allowed
}

// Administrator is who comes by the socket in a node's data directory: who owns that owns the data.
var Administrator = &Principal{Name: "admin.sock", Via: "admin.sock", all: true}

func (p *Principal) sender() access.Sender {
	if p.Via == "token" {
		return access.Sender{Accessor: p.Accessor, Name: p.Name, Judged: p.judged}
	}
	return access.Sender{Name: p.Name}
}

// control decides what becomes of a node's calls.
type control struct {
	AccessConfig
	denials   *prometheus.CounterVec
	wouldDeny *prometheus.CounterVec
	failures  failures
}

func newControl(c AccessConfig, reg prometheus.Registerer) *control {
	return &control{
		AccessConfig: c,
		denials:      NewCounters(reg, "rollcall_auth_denied_total", "Calls that were refused for want of permission, by principal, resource and verb.", "principal", "resource", "verb"),
		wouldDeny:    NewCounters(reg, "rollcall_auth_would_deny_total", "Calls that were let pass and would be refused in mode on, by principal, resource and verb.", "principal", "resource", "verb"),
	}
}

// tables are the cluster's roles and tokens, and those of the file; nil: there are none.
func (a *control) tables() (of tables) {
	for i, table := range []func() *access.Table{a.Table, a.File} {
		if table != nil {
			of[i] = table()
		}
	}
	return of
}

// mode is the one in force: the stricter of the node's and the cluster's.
func (a *control) mode() access.Mode {
	m := max(a.Floor, access.Off)
	for _, t := range a.tables() {
		if t != nil {
			m = max(m, t.Mode)
		}
	}
	return m
}

// asks says whether anything is asked of anybody.
func (a *control) asks() bool { return a.mode() != access.Off }

func (a *control) cluster() string {
	if a.Cluster == nil {
		return ""
	}
	return a.Cluster()
}

// Mode is the mode in force.
func (c AccessConfig) Mode() access.Mode { return (&control{AccessConfig: c}).mode() }

// Allows decides on what is done for the token of an accessor without a call, such as a check's probe, as the rules are now.
// Where nobody was asked for one ("") everything is allowed, and in every mode but on.
func (c AccessConfig) Allows(accessor string, need access.Need) bool {
	a := control{AccessConfig: c}
	if accessor == "" || a.mode() != access.On {
		return true
	}
	for _, h := range a.tables().holders(accessor) {
		if h != nil {
			return !h.Expired(c.World.Now().UnixMilli()) && h.Policy.Allows(need)
		}
	}
	return false
}

// identify returns who sent a request, or nil if it has no credential.
func (a *control) identify(r *http.Request) (*Principal, error) {
	if p, _ := r.Context().Value(administratorKey{}).(*Principal); p != nil {
		return p, nil
	}
	text, err := credentialOf(r, a.TokenInQuery)
	if text == "" || err != nil {
		return nil, err
	}
	accessor, hash, err := access.Parse(text, a.cluster())
	if err != nil {
		return nil, &credentialError{err.Error()}
	}
	return a.principal(accessor, hash)
}

// principal is who has a token.
func (a *control) principal(accessor string, hash [sha256.Size]byte) (*Principal, error) {
	now := a.World.Now().UnixMilli()
	wrong := unknownCredential
	by := a.tables()
	for i, h := range by.holders(accessor) {
		switch {
		case h == nil:
		case h.Good(hash, now):
			p := &Principal{Name: h.Name, Accessor: accessor, Via: []string{"token", "file"}[i], hash: hash, ends: endOf(h.Token, hash)}
			if p.policy.Store(h.Policy); a.mode() == access.On {
				p.judged = by[i].Revision
			}
			return p, nil
		case h.Expired(now) && h.Has(hash, now):
			wrong = &credentialError{"the token has expired"}
		}
	}
	return nil, wrong
}

type administratorKey struct{}

// AsAdministrator is the context of connections by the socket in the data directory.
func AsAdministrator(ctx context.Context) context.Context {
	return context.WithValue(ctx, administratorKey{}, Administrator)
}

// Needs is what a route needs, before its endpoint looks at the body.
type Needs func(c *Call) []access.Need

// Open is of the routes that everybody may call.
func Open(*Call) []access.Need { return nil }

// Known is of routes that tell every principal the same, or find out for themselves what is needed.
func Known(*Call) []access.Need { return []access.Need{} }

// ByOperation is for routes that change something by operations that name their own needs. Callers without a
// name do not get that far.
func ByOperation(*Call) []access.Need { return []access.Need{} }

// ToDo is for routes that need a verb on a resource that exists once, or on all of it.
func ToDo(verb access.Verbs, on access.Resource) Needs {
	n := []access.Need{{Resource: on, Verb: verb}}
	return func(*Call) []access.Need { return n }
}

// ToRead is of routes that show a resource as a whole.
func ToRead(on access.Resource) Needs { return ToDo(access.Read, on) }

// ToReadNamed is of routes that show what a variable of the path names.
func ToReadNamed(on access.Resource, variable string) Needs {
	return func(c *Call) []access.Need {
		return []access.Need{{Resource: on, Name: canonicalName(on, c.Segment(variable)), Verb: access.Read}}
	}
}

// ToReadRest is ToReadNamed of a variable that takes all that is left of the path.
func ToReadRest(on access.Resource) Needs {
	return func(c *Call) []access.Need {
		return []access.Need{{Resource: on, Name: canonicalName(on, c.Rest()), Verb: access.Read}}
	}
}

// ToReadApp is of routes that show the application that the parameter app names, or all.
func ToReadApp(c *Call) []access.Need {
	return []access.Need{{Resource: access.App, Name: canonicalName(access.App, c.Text("app")), Verb: access.Read}}
}

func canonicalName(on access.Resource, name string) string {
	if on == access.App {
		return registry.NewKey(name, "").App
	}
	return name
}

// Principal is who makes the call, nil for nobody.
func (c *Call) Principal() *Principal { return c.principal }

// PrincipalOf is who makes the call of a context, nil for nobody.
func PrincipalOf(ctx context.Context) *Principal {
	p, _ := ctx.Value(principalKey{}).(*Principal)
	return p
}

// authorize finds out who makes a call, and whether what the route needs is allowed.
func (c *Call) authorize(needs Needs) error {
	c.by = c.node.access.tables()
	wanted := needs(c)
	if wanted == nil || c.Err != nil {
		return c.Err
	}
	c.noteAsker(wanted)
	ctx, err := c.node.enter(c.R)
	if err != nil {
		return err
	}
	if ctx != c.R.Context() {
		c.R = c.R.WithContext(context.WithValue(ctx, readerKey{}, c))
	}
	c.principal, c.needs = PrincipalOf(ctx), wanted
	if c.principal == nil && len(wanted) == 0 {
		return c.node.allow(ctx, anything)
	}
	return c.node.allow(ctx, wanted...)
}

// LogIn finds out whether a token is good, for a login. A token that is not is refused in every mode, counts
// as a failed try, and is recorded.
func (c *Call) LogIn(token string) error {
	r := c.R.Clone(c.R.Context())
	r.Header = http.Header{"X-Consul-Token": {token}}
	c.noteAsker([]access.Need{})
	p, wrong := c.node.access.identify(r)
	if wrong == nil && p != nil {
		return nil
	}
	if wrong == nil {
		return BadRequest("no token was given")
	}
	c.node.recordFailure(c.R.Context(), r, api.AuditUnauthenticated, wrong)
	if !c.node.access.failures.admit(addressOf(r)) {
		return errTooManyTries
	}
	return &Refusal{Status: http.StatusUnauthorized, Text: wrong.Error()}
}

var errTooManyTries = &Refusal{Status: http.StatusTooManyRequests, Text: "too many failed tries from this address; wait a second", Retry: true}

type principalKey struct{}

// anything is what every principal may do, but not a caller without a name.
var anything = access.Need{}

// labelOf returns the label of a need in metrics; "": anything.
func labelOf(need access.Need) string {
	if need == anything {
		return ""
	}
	return need.Resource.String()
}

// enter is the context of a request of which it is known who sends it.
func (n *Node) enter(r *http.Request) (context.Context, error) {
	a, ctx := n.access, r.Context()
	if a.asks() && !n.knowsAccess() && r.Context().Value(administratorKey{}) == nil {
		return nil, errAccessUnknown
	}
	p, err := a.identify(r)
	if err != nil {
		refused := a.refuse(err)
		if refused != nil {
			n.recordFailure(ctx, r, api.AuditUnauthenticated, err)
			if !a.failures.admit(addressOf(r)) {
				return nil, errTooManyTries
			}
			return nil, refused
		}
		if a.asks() {
			n.recordFailure(ctx, r, api.AuditWouldDeny, err)
		}
	}
	if p == nil && !a.asks() {
		return ctx, nil
	}
	if p != nil {
		ctx = context.WithValue(access.As(ctx, p.sender()), principalKey{}, p)
	}
	return access.Judged(ctx, access.Judge{
		Mode: a.mode(), Refuses: func(need access.Need) error { return n.allow(ctx, need) },
		Allows:  func(need access.Need) bool { return n.allows(p, need) },
		Records: func(need access.Need, name string) { n.recordExchange(ctx, need, name) },
	}), nil
}

// errAccessUnknown refuses on a node that has just started: what its disk has may be from before a revocation.
var errAccessUnknown = &Refusal{Status: http.StatusServiceUnavailable, Retry: true, Text: "this node has heard no leader since it started, so it does not know yet who may do what; ask another one"}

// knowsAccess says whether this node knows the cluster's roles and tokens as they were when it started, or later.
func (n *Node) knowsAccess() bool {
	if !n.accessKnown.Load() && (n.Coordination == nil || n.Service.Health().Ready) {
		n.accessKnown.Store(true)
	}
	return n.accessKnown.Load()
}

// refuse returns the refusal for a bad credential, or nil if the call may go on anonymously.
func (a *control) refuse(wrong error) error {
	switch a.mode() {
	case access.On:
		a.denials.WithLabelValues("invalid", "", "").Inc()
		return &Refusal{Status: http.StatusUnauthorized, Text: wrong.Error(), challenge: true, consul: "ACL not found: " + wrong.Error(), Cause: wrong}
	case access.LogOnly:
		a.wouldDeny.WithLabelValues("invalid", "", "").Inc()
	}
	return nil // in mode off: what nobody asked for need not be right
}

// AccessMode is the mode in force.
func (n *Node) AccessMode() access.Mode { return n.access.mode() }

// Lacks says in words which protection the node does without, as the mode is now.
func (n *Node) Lacks() []string {
	if n.access.AccessConfig.Lacks == nil {
		return nil
	}
	return n.access.AccessConfig.Lacks(n.AccessMode())
}

// IsKnown says whether a request comes from somebody, where only those are served.
func (n *Node) IsKnown(r *http.Request) bool {
	if n.AccessMode() != access.On {
		return true
	}
	p, err := n.access.identify(r)
	return p != nil && err == nil
}

// AccessTable is the cluster's roles and tokens, as this node knows them; nil: there are none.
func (n *Node) AccessTable() *access.Table { return n.access.tables()[0] }

// ClusterID is what the texts of tokens are checked with.
func (n *Node) ClusterID() string { return n.access.cluster() }

// NewSecret is the text of a new secret, of a token or (accessor "") of a new token.
func (n *Node) NewSecret(accessor string) string {
	var random [access.RandomBytes]byte
	_, _ = rand.Read(random[:]) // it never fails
	return access.NewText(random, accessor, n.ClusterID())
}

// Token returns the token that a principal came with, as it is now, or nil if there was none or it is gone.
func (n *Node) Token(p *Principal) *access.Token {
	if p == nil {
		return nil
	}
	if h := n.Holder(p.Accessor); h != nil {
		return h.Token
	}
	return nil
}

// Holder returns who has the token with an accessor, by the cluster or by the file, or nil.
func (n *Node) Holder(accessor string) *access.Holder {
	for _, h := range n.access.tables().holders(accessor) {
		if h != nil {
			return h
		}
	}
	return nil
}

// Grantee is the principals whose tokens have the same roles and parameter.
type Grantee struct {
	*access.Policy
	Names []string // of the principals
	holds *access.Token
	table *access.Table
}

// RolesThat names the roles of a grantee that allow something by themselves.
func (g *Grantee) RolesThat(allow access.Need) []string {
	return slices.DeleteFunc(slices.Clone(g.holds.Roles), func(name string) bool {
		role := g.table.Role(name)
		return role == nil || !access.Compile(g.holds.App, role).Allows(allow)
	})
}

// Grantees returns those whose tokens are good now, the cluster's before the file's.
func (n *Node) Grantees() (all []*Grantee) {
	known, now := map[*access.Policy]*Grantee{}, n.World.Now().UnixMilli()
	for _, t := range n.access.tables() {
		if t == nil {
			continue
		}
		for _, k := range t.Tokens {
			h := n.Holder(k.Accessor)
			if h == nil || h.Token != k || h.Expired(now) {
				continue
			}
			if known[h.Policy] == nil {
				known[h.Policy] = &Grantee{Policy: h.Policy, holds: k, table: t}
				all = append(all, known[h.Policy])
			}
			known[h.Policy].Names = append(known[h.Policy].Names, h.Name)
		}
	}
	return all
}

// ProbeJudge says in words why a check's probe of a service (both nil: of a node) may not be registered; "": it may, and then needs
// is what its token must be allowed, Counted of what is only counted below level 3 of the formats.
type ProbeJudge func(p *catalog.Probe, s *catalog.Service, i *registry.Instance) (why string, needs []access.Need)

// fileFails is why the file is not in force as it is now, for those who may not read of roles and tokens.
const fileFails = "the file is not in force as it is now; why is shown to those who have auth read, and in the node's log"

// AccessStatus says to a caller what is in force on this node.
func (n *Node) AccessStatus(p *Principal) api.AuthStatus {
	s := api.AuthStatus{Mode: n.access.mode().String(), NodeMode: n.access.Floor.String(), Age: n.Service.Health().Age.Seconds()}
	tables := n.access.tables()
	if t := tables[0]; t != nil {
		s.ClusterMode, s.Bootstrapped, s.Revision, s.Roles, s.Tokens = t.Mode.String(), t.Bootstrapped, uint64(t.Revision), len(t.Roles), len(t.Tokens)
	}
	if t := tables[1]; t != nil {
		s.FileRevision, s.FileDigest = uint64(t.Revision), t.Digest()
		s.Roles, s.Tokens = s.Roles+len(t.Roles), s.Tokens+len(t.Tokens)
		s.FileError = n.access.FileFailure()
		if s.FileError != "" && n.access.asks() && !n.allows(p, access.Need{Resource: access.Auth, Verb: access.Read}) {
			s.FileError = fileFails
		}
	}
	return s
}

// exchanging is what a server needs that replicates.
func exchanging(origin registry.Origin) access.Need {
	return access.Need{Resource: access.Peer, Name: origin.DC, Verb: access.Exchange}
}

// Allow refuses what the caller may not do.
func (c *Call) Allow(needs ...access.Need) error {
	c.remember(needs)
	return c.node.allow(c.R.Context(), needs...)
}

// CredentialOf returns the text of the credential of a call, or "". It is for calls that a page makes in its
// reader's name.
func (c *Call) CredentialOf() string {
	text, _ := credentialOf(c.R, c.node.access.TokenInQuery)
	return text
}

// May says whether the caller may do something, for pages that show also what their reader may not do: it
// refuses nothing, and nothing is recorded.
func (c *Call) May(needs ...access.Need) bool {
	for _, need := range needs {
		asked := c.node.AccessMode() == access.On || need.Resource == access.Auth
		if asked && !c.node.allows(c.principal, need) {
			return false
		}
	}
	return true
}

// Everything names all applications to ShowsAnswers.
const Everything = "*"

// ShowsAnswers reports whether the caller may see what services of an application (in capitals; "": nodes) answered to HTTP checks:
// from level 3 on who may register it.
func (c *Call) ShowsAnswers(v *registry.View, app string) bool {
	n := registering(app)
	switch app {
	case "":
		n = access.Need{Resource: access.Node, Verb: access.Write}
	case Everything:
		n.Name = ""
	}
	return v != nil && v.CountsNewRights() || c.May(n)
}

// AllowSome refuses a caller who may do nothing of a kind, whatever the rest of the call says.
func (c *Call) AllowSome(on access.Resource, verb access.Verbs) error {
	if p := c.Principal(); c.node.AccessMode() != access.On || p != nil && (p.all || p.policy.Load().AllowsSome(on, verb)) {
		return nil
	}
	return c.node.allow(c.R.Context(), access.Need{Resource: on, Verb: verb})
}

// allow refuses what the principal of a context may not do.
func (n *Node) allow(ctx context.Context, needs ...access.Need) error {
	if len(needs) == 0 {
		return nil
	}
	a := n.access
	mode := a.mode()
	p := PrincipalOf(ctx)
	for _, need := range needs {
		if mode == access.Off && need.Resource != access.Auth || n.allows(p, need) {
			continue
		}
		who := "nobody"
		if p != nil {
			who = p.Name
		}
		if (mode == access.LogOnly || need.Counted) && need.Resource != access.Auth {
			a.wouldDeny.WithLabelValues(who, labelOf(need), need.Verb.String()).Inc()
			n.recordDenial(ctx, need, api.AuditWouldDeny)
			continue
		}
		a.denials.WithLabelValues(who, labelOf(need), need.Verb.String()).Inc()
		outcome := api.AuditDenied
		if p == nil {
			outcome = api.AuditUnauthenticated
		}
		n.recordDenial(ctx, need, outcome)
		return denial(p, need)
	}
	return nil
}

// allows decides.
func (n *Node) allows(p *Principal, need access.Need) bool {
	switch {
	case p == nil:
		return false
	case p.all:
		return true
	}
	return p.policy.Load().AllowsAs(p.Name, need, n.ownerOf)
}

// ownerOf is the name of the principal that a session belongs to; "": it is everybody's, or not there.
func (n *Node) ownerOf(session string) string {
	if n.Coordination == nil {
		return ""
	}
	v, err := n.Coordination.View(context.Background(), registry.Stale)
	if err != nil {
		return ""
	}
	return v.Owner(session)
}

// denial is the refusal of what a principal may not do, in Consul's words where its clients see them.
func denial(p *Principal, need access.Need) error {
	const send = ": send it as X-Consul-Token, as a bearer token, or as the password in the URL"
	if need == anything {
		return &Refusal{Status: http.StatusUnauthorized, challenge: true, consul: "Permission denied: this needs a token, and none was sent", Text: "this needs a token" + send}
	}
	what := fmt.Sprintf("permission '%s:%s'", need.Resource, need.Verb)
	if need.Name != "" {
		what += fmt.Sprintf(" on %q", need.Name)
	}
	if p == nil {
		return &Refusal{Status: http.StatusUnauthorized, challenge: true, consul: "Permission denied: anonymous token lacks " + what,
			Text: "this needs a token with " + what + send}
	}
	text := fmt.Sprintf("Permission denied: token with AccessorID '%s' lacks %s", p.Accessor, what)
	return &Refusal{Status: http.StatusForbidden, Text: text, consul: text, denial: true}
}

// addressOf is the address that a request comes from.
func addressOf(r *http.Request) netip.Addr { return addressIn(r.RemoteAddr) }

func addressIn(remote string) netip.Addr {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	addr, _ := netip.ParseAddr(host)
	return addr.Unmap()
}

// tables are the cluster's roles and tokens, and those of the file, as one decision was made by them.
type tables [2]*access.Table

// holders returns who has a token by each of them, or nil. A token that the cluster has revoked is not good by
// the file either.
func (t tables) holders(accessor string) (all [2]*access.Holder) {
	for i, table := range t {
		if table != nil {
			all[i] = table.Holder(accessor)
		}
	}
	if t[0] != nil && t[0].WasRevoked(accessor) {
		all[1] = nil
	}
	return all
}

// endOf returns when the secret with a hash expires, in ms since the epoch; 0: never.
func endOf(t *access.Token, hash [sha256.Size]byte) (ends int64) {
	for _, s := range t.Secrets {
		if s.Hash == hash {
			ends = s.Until
		}
	}
	return sooner(ends, t.Expires)
}

// remember adds what a call needs, for when it is judged again.
func (c *Call) remember(needs []access.Need) { c.needs = append(slices.Clip(c.needs), needs...) }

// NetworkOf returns the network that an address counts for: of IPv6 a /64, within which machines choose their
// own addresses.
func NetworkOf(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := 32
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits)
	return p
}

// sooner returns the earlier of two times; 0 means never.
func sooner(a, b int64) int64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// registering is what a client needs that registers an application, or renews it.
func registering(app string) access.Need {
	return access.Need{Resource: access.App, Name: app, Verb: access.Register}
}
