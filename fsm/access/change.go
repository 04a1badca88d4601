package access

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Change changes a table completely, or is refused completely.
type Change struct {
	Bootstrap bool // refused if the first operator exists already
	// Sure allows that nobody is left who may change the table. The administrator's socket remains.
	Sure      bool
	Mode      Mode // Unset: no change
	PutRoles  []*Role
	DropRoles []string
	Create    []*Token // refused if a token has the accessor, or a revoked one had it
	// Return marks a restore. It leaves out the tokens of Create that would otherwise be refused and the roles of
	// PutRoles that exist already, and Revoke also bans accessors without a token for ever.
	Return bool
	Rotate []Rotation
	Revoke []string // accessors
}

// Rotation gives a token a new secret.
type Rotation struct {
	Accessor string
	Hash     [sha256.Size]byte
	Until    int64 // how long its other secrets stay good, ms since the epoch
}

// GrantTakeover returns the names of the changed roles, and a table whose rules grant Takeover wherever they grant
// Exchange, which covered both before that right existed.
func (t *Table) GrantTakeover(index order.Index) (next *Table, roles []string) {
	n := &Table{Content: t.Content}
	n.Roles = slices.Clone(t.Roles)
	for i, r := range n.Roles {
		rules := slices.Clone(r.Rules)
		for k := range rules {
			if rules[k].Verbs&Exchange != 0 {
				rules[k].Verbs |= Takeover
			}
		}
		if !slices.Equal(rules, r.Rules) {
			n.Roles[i] = &Role{Name: r.Name, Rules: rules}
			roles = append(roles, r.Name)
		}
	}
	if roles == nil {
		return t, nil
	}
	n.Revision = index
	n.compile()
	return n, roles
}

// OperatorRole is the role of the first operator.
const OperatorRole = "operator"

// Founding returns the change that makes k the first operator: it gets the role, and a name if it lacks one.
func Founding(k *Token) Change {
	k.Name, k.Roles = cmp.Or(k.Name, OperatorRole), append(k.Roles, OperatorRole)
	return Change{Bootstrap: true, PutRoles: []*Role{{Name: OperatorRole, Rules: Everything()}}, Create: []*Token{k}}
}

func (op *Change) Fields(c *codec.Codec) {
	c.Bool(&op.Bootstrap)
	c.Bool(&op.Sure)
	codec.Enum(c, &op.Mode, On, "mode of access control")
	codec.List(c, &op.PutRoles, 2, codec.Each((*Role).fields))
	c.Strings(&op.DropRoles)
	codec.List(c, &op.Create, 10, codec.Each((*Token).fields))
	c.Bool(&op.Return)
	codec.List(c, &op.Rotate, 35, (*Rotation).fields)
	c.Strings(&op.Revoke)
}

func (r *Rotation) fields(c *codec.Codec) {
	c.Lasting(&r.Accessor)
	s := Secret{r.Hash, r.Until}
	s.fields(c)
	r.Hash, r.Until = s.Hash, s.Until
}

// Apply returns the table after a change at a moment (ms since the epoch); index becomes its revision. refusal says
// why nothing was done, or is "".
func (t *Table) Apply(op *Change, index order.Index, wall int64) (next *Table, refusal string) {
	if op.Bootstrap && t.Bootstrapped && !op.Return {
		return t, "the first operator was made already: use that token, or make another one by the socket in a node's data directory (rollcall auth, on the node's machine)"
	}
	n := &Table{Content: t.Content}
	n.Revision, n.Bootstrapped, n.Mode = index, t.Bootstrapped || op.Bootstrap, cmp.Or(op.Mode, t.Mode)
	n.Roles, n.Tokens, n.Revoked = slices.Clone(t.Roles), slices.Clone(t.Tokens), slices.Clone(t.Revoked)
	for _, step := range []func(*Change, int64) error{n.changeRoles, n.create, n.rotate, n.revoke} {
		if err := step(op, wall); err != nil {
			return t, err.Error()
		}
	}
	n.compile()
	switch before, after := t.governed(wall), n.governed(wall); {
	case op.Sure || before <= after:
	case after == 0:
		return t, "nobody would be left who may change roles and tokens (auth write); say it with force, and the socket in a node's data directory remains"
	default:
		return t, "only tokens that end would be left of those that may change roles and tokens (auth write); say it with force, and the socket in a node's data directory remains"
	}
	return n, ""
}

func (t *Content) changeRoles(op *Change, _ int64) error {
	for _, r := range op.PutRoles {
		if err := r.Validate(); err != nil {
			return err
		}
		at, there := slices.BinarySearchFunc(t.Roles, r.Name, func(r *Role, name string) int { return cmp.Compare(r.Name, name) })
		switch {
		case there && op.Return:
		case there:
			t.Roles[at] = r
		default:
			t.Roles = slices.Insert(t.Roles, at, r)
		}
	}
	for _, name := range op.DropRoles {
		if t.Role(name) == nil {
			return fmt.Errorf("there is no role %q", name)
		}
		t.Roles = slices.DeleteFunc(t.Roles, func(r *Role) bool { return r.Name == name })
	}
	return nil
}

// find returns where the token of an accessor is, or would be.
func (t *Content) find(accessor string) (at int, there bool) {
	return slices.BinarySearchFunc(t.Tokens, accessor, func(k *Token, accessor string) int { return cmp.Compare(k.Accessor, accessor) })
}

func (t *Content) create(op *Change, wall int64) error {
	for _, k := range op.Create {
		if err := k.Validate(); err != nil {
			return err
		}
		at, there := t.find(k.Accessor)
		switch {
		case op.Return && (there || t.WasRevoked(k.Accessor)):
			continue
		case there:
			return fmt.Errorf("there is a token %s already", k.Accessor)
		case t.WasRevoked(k.Accessor):
			return fmt.Errorf("token %s was revoked, and is never good again", k.Accessor)
		}
		for _, name := range k.Roles {
			if t.Role(name) == nil && !op.Return {
				return fmt.Errorf("there is no role %q; make it first", name)
			}
		}
		k = k.clone()
		if !op.Return {
			k.Created = wall
		}
		t.Tokens = slices.Insert(t.Tokens, at, k)
	}
	return nil
}

func (t *Content) rotate(op *Change, wall int64) error {
	for _, r := range op.Rotate {
		at, there := t.find(r.Accessor)
		if !there {
			return fmt.Errorf("there is no token %q", r.Accessor)
		}
		k := t.Tokens[at].clone()
		if first := k.Secrets[0]; !op.Sure && len(k.Secrets) == maxSecrets && first.Until > wall && r.Until > wall {
			return fmt.Errorf("token %s has two secrets until %s, and a third would end the first one at once; wait, or say it with force", r.Accessor, time.UnixMilli(first.Until).UTC().Format(time.RFC3339))
		}
		newest := k.Secrets[len(k.Secrets)-1]
		newest.Until = r.Until
		k.Secrets = []Secret{newest, {Hash: r.Hash}}
		if r.Until <= wall {
			k.Secrets = k.Secrets[1:]
		}
		t.Tokens[at] = k
	}
	return nil
}

func (t *Content) revoke(op *Change, _ int64) error {
	for _, accessor := range op.Revoke {
		at, there := t.find(accessor)
		switch {
		case there:
			t.Tokens = slices.Delete(t.Tokens, at, at+1)
		case op.Return && IsAccessor(accessor) && !t.WasRevoked(accessor):
		case op.Return:
			continue
		default:
			return fmt.Errorf("there is no token %q", accessor)
		}
		i, _ := slices.BinarySearch(t.Revoked, accessor)
		t.Revoked = slices.Insert(t.Revoked, i, accessor)
	}
	return nil
}
