package web

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/order"
	"github.com/seed-20419f34/rollcall/internal/world"
)

// Principal is the identified sender of a call. A nil *Principal is a caller without a credential.
type Principal struct {
	Name     string // the token's name, for people, the history and the audit
	Accessor string // the token's; empty without a token
	Via      string // how the principal is known: token, file, admin.sock
	policy   atomic.Pointer[access.Policy]
	judged   order.Index       // revision of the cluster's table; 0 if another table decides, or nothing is refused
	hash     [sha256.Size]byte // of the token's text
	ends     int64             // when the token, or this secret, expires; ms since the epoch, 0 for never
	all      bool              // everything is allowed
}

// administrator is the caller over the socket in a node's data directory: whoever owns that directory owns the data.
var administrator = &Principal{Name: "admin.sock", Via: "admin.sock", all: true}

func (p *Principal) sender() access.Sender {
	if p.Via == "token" {
		return access.Sender{Accessor: p.Accessor, Name: p.Name, Judged: p.judged}
	}
	return access.Sender{Name: p.Name}
}

// AccessConfig is what access control needs of a node.
type AccessConfig struct {
	World *world.World // nil means the machine's; NewNode sets it
	// Floor is the minimum mode of this node; the cluster's may be stricter. Unset means off.
	Floor access.Mode
	// TokenInQuery allows a token in the URL, as ?token=.
	TokenInQuery bool
	// Cluster returns the id that the texts of tokens are checked with; nil means "".
	Cluster func() string
	// Table returns the cluster's roles and tokens as this node knows them; File those of a file. Both may be nil, or
	// return nil, for none. An unchanged table must be the same pointer: that is how decisions know whether to be made
	// again. Both are called often.
	Table, File func() *access.Table
	// FileFailure says why the file is not in force in its current form, or returns "". Nil without a file.
	FileFailure func() string
	// Lacks says in words which protection the node lacks in a mode although other machines can reach it. Nil if it
	// lacks nothing.
	Lacks func(access.Mode) []string
}

// control decides which of a node's calls are allowed.
type control struct {
	AccessConfig
	denials   *prometheus.CounterVec
	wouldDeny *prometheus.CounterVec
	failures  failures
}

// tables returns the cluster's roles and tokens, and those of the file; each may be nil.
func (c AccessConfig) tables() (of tables) {
	for i, table := range []func() *access.Table{c.Table, c.File} {
		if table != nil {
			of[i] = table()
		}
	}
	return of
}

// Mode returns the mode in force: the stricter of the node's and the cluster's.
func (c AccessConfig) Mode() access.Mode {
	m := max(c.Floor, access.Off)
	for _, t := range c.tables() {
		if t != nil {
			m = max(m, t.Mode)
		}
	}
	return m
}

// asks reports whether callers are asked for anything.
func (c AccessConfig) asks() bool { return c.Mode() != access.Off }

func (a *control) cluster() string {
	if a.Cluster == nil {
		return ""
	}
	return a.Cluster()
}

// identify returns the sender of a request, or nil if it has no credential.
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
		return nil, err
	}
	return a.principal(accessor, hash)
}

// principal returns the holder of a token.
func (a *control) principal(accessor string, hash [sha256.Size]byte) (*Principal, error) {
	now := a.World.Now().UnixMilli()
	wrong := errUnknownCredential
	by := a.tables()
	for i, h := range by.holders(accessor) {
		switch {
		case h == nil:
		case h.Good(hash, now):
			p := &Principal{Name: h.Name, Accessor: accessor, Via: []string{"token", "file"}[i], hash: hash, ends: h.Token.Expires}
			for _, s := range h.Token.Secrets {
				if s.Hash == hash {
					p.ends = sooner(p.ends, s.Until)
				}
			}
			if p.policy.Store(h.Policy); a.Mode() == access.On {
				p.judged = by[i].Revision
			}
			return p, nil
		case h.Expired(now) && h.Has(hash, now):
			wrong = errors.New("the token has expired")
		}
	}
	return nil, wrong
}

// tables are the cluster's roles and tokens, and the file's, that one decision was based on.
type tables [2]*access.Table

// holders returns the holder of a token by each table, or nil. A token that the cluster has revoked is not good by the
// file either.
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

// holder returns the holder of a token by the first table that has one, or nil.
func (t tables) holder(accessor string) *access.Holder {
	all := t.holders(accessor)
	return cmp.Or(all[:]...)
}

// sooner returns the earlier of two times; 0 means never.
func sooner(a, b int64) int64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

type administratorKey struct{}

// AsAdministrator returns the context of connections over the socket in the data directory.
func AsAdministrator(ctx context.Context) context.Context {
	return context.WithValue(ctx, administratorKey{}, administrator)
}

// principalOf returns the caller of a context, or nil if anonymous.
func principalOf(ctx context.Context) *Principal {
	p, _ := ctx.Value(principalKey{}).(*Principal)
	return p
}

type principalKey struct{}

// IsKnown reports whether a request comes from a known caller, where only those are served.
func (n *Node) IsKnown(r *http.Request) bool {
	if n.AccessMode() != access.On {
		return true
	}
	p, err := n.access.identify(r)
	return p != nil && err == nil
}

// Token returns the current state of the token that a principal came with, or nil if there was none or it is gone.
func (n *Node) Token(p *Principal) *access.Token {
	if p == nil {
		return nil
	}
	if h := n.Holder(p.Accessor); h != nil {
		return h.Token
	}
	return nil
}

// Holder returns the holder of the token with an accessor, by the cluster or by the file, or nil.
func (n *Node) Holder(accessor string) *access.Holder { return n.access.tables().holder(accessor) }

// grantee groups the principals whose tokens have the same roles and parameter.
type grantee struct {
	*access.Policy
	Names []string // of the principals
	holds *access.Token
	table *access.Table
}

// RolesThat names the roles of a grantee that each suffice to allow something.
func (g *grantee) RolesThat(allow access.Need) []string {
	return slices.DeleteFunc(slices.Clone(g.holds.Roles), func(name string) bool {
		role := g.table.Role(name)
		return role == nil || !access.Compile(g.holds.App, role).Allows(allow)
	})
}

// Grantees returns the holders of tokens that are good now, the cluster's before the file's.
func (n *Node) Grantees() (all []*grantee) {
	known, now := map[*access.Policy]*grantee{}, n.World.Now().UnixMilli()
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
				known[h.Policy] = &grantee{Policy: h.Policy, holds: k, table: t}
				all = append(all, known[h.Policy])
			}
			known[h.Policy].Names = append(known[h.Policy].Names, h.Name)
		}
	}
	return all
}

// ClusterID returns the id that the texts of tokens are checked with.
func (n *Node) ClusterID() string { return n.access.cluster() }

// NewSecret returns the text of a new secret, for a token or (accessor "") for a new token.
func (n *Node) NewSecret(accessor string) string {
	var random [access.RandomBytes]byte
	_, _ = rand.Read(random[:]) // never fails
	return access.NewText(random, accessor, n.ClusterID())
}

// addressOf returns the address that a request comes from.
func addressOf(r *http.Request) netip.Addr { return addressIn(r.RemoteAddr) }

func addressIn(remote string) netip.Addr {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	addr, _ := netip.ParseAddr(host)
	return addr.Unmap()
}

// NetworkOf returns the network that an address counts towards: for IPv6 a /64, within which machines choose their own
// addresses.
func NetworkOf(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := 32
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits)
	return p
}

// anything is allowed to every principal, but not to an anonymous caller.
var anything = access.Need{}
