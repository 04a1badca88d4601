package web

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

// Allows decides on an action without a call, such as a check's probe, for the token of an accessor, by the current
// rules. An empty accessor, from a time when nobody was asked for a token, is allowed everything, and so is everybody
// in every mode but on.
func (c AccessConfig) Allows(accessor string, need access.Need) bool {
	if accessor == "" || c.Mode() != access.On {
		return true
	}
	h := c.tables().holder(accessor)
	return h != nil && !h.Expired(c.World.Now().UnixMilli()) && h.Policy.Allows(need)
}

// Needs returns what a route needs, before its endpoint looks at the body.
type Needs func(c *Call) []access.Need

// Open is for routes that everybody may call.
func Open(*Call) []access.Need { return nil }

// Known is for routes that tell every principal the same, or find out themselves what is needed.
func Known(*Call) []access.Need { return []access.Need{} }

// ByOperation is for routes whose changes are operations that name their own needs. Anonymous callers do not get that
// far.
func ByOperation(*Call) []access.Need { return []access.Need{} }

// ToDo is for routes that need a verb on a resource that exists once, or on all of a kind.
func ToDo(verb access.Verbs, on access.Resource) Needs {
	n := []access.Need{{Resource: on, Verb: verb}}
	return func(*Call) []access.Need { return n }
}

// ToRead is for routes that show a resource as a whole.
func ToRead(on access.Resource) Needs { return ToDo(access.Read, on) }

// ToReadNamed is for routes that show what a variable of the path names.
func ToReadNamed(on access.Resource, variable string) Needs {
	return func(c *Call) []access.Need {
		return []access.Need{{Resource: on, Name: canonicalName(on, c.Segment(variable)), Verb: access.Read}}
	}
}

// ToReadRest is ToReadNamed for a variable that takes the rest of the path.
func ToReadRest(on access.Resource) Needs {
	return func(c *Call) []access.Need {
		return []access.Need{{Resource: on, Name: canonicalName(on, c.Rest()), Verb: access.Read}}
	}
}

// ToReadApp is for routes that show the application named by the parameter app, or all.
func ToReadApp(c *Call) []access.Need {
	return []access.Need{{Resource: access.App, Name: canonicalName(access.App, c.Text("app")), Verb: access.Read}}
}

func canonicalName(on access.Resource, name string) string {
	if on == access.App {
		return registry.NewKey(name, "").App
	}
	return name
}

// authorize identifies the caller, and checks that it may do what the route needs.
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
	c.principal, c.needs = principalOf(ctx), wanted
	if c.principal == nil && len(wanted) == 0 {
		return c.node.allow(ctx, anything)
	}
	return c.node.allow(ctx, wanted...)
}

// Principal returns the caller, or nil for an anonymous one.
func (c *Call) Principal() *Principal { return c.principal }

// enter returns the context of a request with its principal, and with the judge of its access.
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
		Mode: a.Mode(), Refuses: func(need access.Need) error { return n.allow(ctx, need) },
		Allows: func(need access.Need) bool { return n.allows(p, need) },
		Records: func(need access.Need, name string) {
			_ = n.did(ctx, deed{operation: need.Verb.String(), needs: []access.Need{need}, name: name}, nil)
		},
	}), nil
}

// errAccessUnknown refuses on a node that has just started: its disk may predate a revocation.
var errAccessUnknown = &Refusal{Status: http.StatusServiceUnavailable, Retry: true, Text: "this node has heard no leader since it started, so it does not know yet who may do what; ask another one"}

// knowsAccess reports whether this node knows the cluster's roles and tokens as of its start, or later.
func (n *Node) knowsAccess() bool {
	if !n.accessKnown.Load() && (n.Coordination == nil || n.Service.Health().Ready) {
		n.accessKnown.Store(true)
	}
	return n.accessKnown.Load()
}

// refuse returns the refusal for a bad credential, or nil if the call may go on anonymously.
func (a *control) refuse(wrong error) error {
	switch a.Mode() {
	case access.On:
		a.denials.WithLabelValues("invalid", "", "").Inc()
		return &Refusal{Status: http.StatusUnauthorized, Text: wrong.Error(), challenge: true, consul: "ACL not found: " + wrong.Error(), Cause: wrong}
	case access.LogOnly:
		a.wouldDeny.WithLabelValues("invalid", "", "").Inc()
	}
	return nil // in mode off nobody asked for a credential, so it need not be right
}

// LogIn checks a token for a login. A bad one is refused in every mode, counts as a failed try, and is recorded.
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

// CredentialOf returns the text of a call's credential, or "". It is for calls that a page makes in its reader's name.
func (c *Call) CredentialOf() string {
	text, _ := credentialOf(c.R, c.node.access.TokenInQuery)
	return text
}

// labelOf returns a need's label in metrics, which is empty for the need anything.
func labelOf(need access.Need) string {
	if need == anything {
		return ""
	}
	return need.Resource.String()
}

// AccessMode returns the mode in force.
func (n *Node) AccessMode() access.Mode { return n.access.Mode() }

// Lacks says in words which protection the node does without in the current mode.
func (n *Node) Lacks() []string {
	if n.access.AccessConfig.Lacks == nil {
		return nil
	}
	return n.access.AccessConfig.Lacks(n.AccessMode())
}

// AccessTable returns the cluster's roles and tokens as this node knows them, or nil if there are none.
func (n *Node) AccessTable() *access.Table { return n.access.tables()[0] }

// ProbeJudge says in words why a check's probe of a service (both nil: of a node) may not be registered. If why is
// empty, it may, and then needs is what its token must be allowed; needs with Counted are only counted below level 3
// of the formats.
type ProbeJudge func(p *catalog.Probe, s *catalog.Service, i *registry.Instance) (why string, needs []access.Need)

// fileFails tells readers without auth read that the file is not in force in its current form.
const fileFails = "the file is not in force as it is now; why is shown to those who have auth read, and in the node's log"

// AccessStatus tells a caller what is in force on this node.
func (n *Node) AccessStatus(p *Principal) api.AuthStatus {
	s := api.AuthStatus{Mode: n.access.Mode().String(), NodeMode: n.access.Floor.String(), Age: n.Service.Health().Age.Seconds()}
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

// exchanging returns what a server needs for replicating.
func exchanging(origin registry.Origin) access.Need {
	return access.Need{Resource: access.Peer, Name: origin.DC, Verb: access.Exchange}
}

// Allow refuses what the caller may not do.
func (c *Call) Allow(needs ...access.Need) error {
	c.needs = append(slices.Clip(c.needs), needs...) // for judging the call again later
	return c.node.allow(c.R.Context(), needs...)
}

// May reports whether the caller may do something, for pages that also show actions their reader may not take: it
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

// ShowsAnswers reports whether the caller may see what services of an application (in capitals; empty for nodes)
// answered to HTTP checks: from level 3 on, only a caller that may register the application.
func (c *Call) ShowsAnswers(v *registry.View, app string) bool {
	n := registry.ToRegister(app)
	switch app {
	case "":
		n = access.Need{Resource: access.Node, Verb: access.Write}
	case Everything:
		n.Name = ""
	}
	return v != nil && v.CountsNewRights() || c.May(n)
}

// AllowSome refuses a caller that may do nothing of a kind, whatever the rest of the call says.
func (c *Call) AllowSome(on access.Resource, verb access.Verbs) error {
	if p := c.Principal(); c.node.AccessMode() != access.On || p != nil && (p.all || p.policy.Load().AllowsSome(on, verb)) {
		return nil
	}
	return c.node.allow(c.R.Context(), access.Need{Resource: on, Verb: verb})
}

// allow refuses what a context's principal may not do.
func (n *Node) allow(ctx context.Context, needs ...access.Need) error {
	if len(needs) == 0 {
		return nil
	}
	a := n.access
	mode := a.Mode()
	p := principalOf(ctx)
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

// allows reports whether a principal's roles meet a need.
func (n *Node) allows(p *Principal, need access.Need) bool {
	switch {
	case p == nil:
		return false
	case p.all:
		return true
	}
	return p.policy.Load().AllowsAs(p.Name, need, n.ownerOf)
}

// ownerOf returns the name of the principal that owns a session, or "" if everybody may use it or it does not exist.
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

// denial returns the refusal of what a principal may not do, in Consul's words where its clients see them.
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
