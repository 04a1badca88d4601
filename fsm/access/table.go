package access

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Table holds all roles and tokens of a cluster at one moment. It is immutable: a Change makes another one. The zero
// Table belongs to a cluster that has never given rights to anybody.
type Table struct {
	Content
	holders map[string]*Holder // by accessor
	bytes   int
}

// Content is the part of a table that is stored.
type Content struct {
	Revision     order.Index // of the last change
	Mode         Mode        // of the cluster; Unset: it was never set
	Bootstrapped bool        // the first operator was made
	Roles        []*Role     // by name
	Tokens       []*Token    // by accessor
	Revoked      []string    // accessors that are banned for ever, sorted
}

// Holder is a token with what its roles allow it to do.
type Holder struct {
	*Token
	Policy *Policy
}

func (t *Content) Fields(c *codec.Codec) {
	codec.Uint(c, &t.Revision)
	codec.Enum(c, &t.Mode, On, "mode of access control")
	c.Bool(&t.Bootstrapped)
	codec.List(c, &t.Roles, 2, codec.Each((*Role).fields))
	codec.List(c, &t.Tokens, 10, codec.Each((*Token).fields))
	c.Strings(&t.Revoked)
}

// TableOf returns the table for a content that was read. It refuses what no Change leaves behind.
func TableOf(c Content) (*Table, error) {
	if err := c.verify(); err != nil {
		return nil, err
	}
	t := &Table{Content: c}
	t.compile()
	return t, nil
}

func (t *Content) verify() error {
	byName := func(a, b *Role) int { return cmp.Compare(a.Name, b.Name) }
	byAccessor := func(a, b *Token) int { return cmp.Compare(a.Accessor, b.Accessor) }
	switch {
	case !strictly(t.Roles, byName):
		return fmt.Errorf("roles are not in the order of their names")
	case !strictly(t.Tokens, byAccessor):
		return fmt.Errorf("tokens are not in the order of their accessors")
	case !strictly(t.Revoked, cmp.Compare):
		return fmt.Errorf("revoked accessors are not in order")
	}
	for _, r := range t.Roles {
		if err := r.Validate(); err != nil {
			return err
		}
	}
	for _, k := range t.Tokens {
		if err := k.Validate(); err != nil {
			return err
		}
		if t.WasRevoked(k.Accessor) {
			return fmt.Errorf("token %s was revoked, and is there", k.Accessor)
		}
	}
	return nil
}

// strictly reports whether all are in ascending order, without repetitions.
func strictly[T any](all []T, compare func(a, b T) int) bool {
	for i := 1; i < len(all); i++ {
		if compare(all[i-1], all[i]) >= 0 {
			return false
		}
	}
	return true
}

// compile makes the policies of all tokens, and adds up what the table takes. Tokens with the same roles and parameter
// share one.
func (t *Table) compile() {
	t.bytes = len(t.Revoked) * (accessorLen + 16)
	for _, r := range t.Roles {
		t.bytes += r.Weight()
	}
	t.holders = make(map[string]*Holder, len(t.Tokens))
	shared := map[string]*Policy{}
	for _, k := range t.Tokens {
		t.bytes += k.Weight()
		key := fmt.Sprintf("%q %q", k.App, k.Roles)
		if shared[key] == nil {
			var roles []*Role
			for _, name := range k.Roles {
				if role := t.Role(name); role != nil { // a removed role grants nothing
					roles = append(roles, role)
				}
			}
			shared[key] = Compile(k.App, roles...)
		}
		t.holders[k.Accessor] = &Holder{k, shared[key]}
	}
}

// Role returns a role, or nil.
func (t *Content) Role(name string) *Role {
	if i, ok := slices.BinarySearchFunc(t.Roles, name, func(r *Role, name string) int { return cmp.Compare(r.Name, name) }); ok {
		return t.Roles[i]
	}
	return nil
}

// Holder returns the holder of a token, or nil.
func (t *Table) Holder(accessor string) *Holder { return t.holders[accessor] }

// WasRevoked reports whether a token of an accessor was revoked.
func (t *Content) WasRevoked(accessor string) bool {
	_, revoked := slices.BinarySearch(t.Revoked, accessor)
	return revoked
}

// Saved returns the content for a snapshot for people: no secrets, only their hashes.
func (t *Content) Saved() Content {
	saved := *t
	saved.Revision = 0
	return saved
}

// Restoring returns the change that brings back a saved content: revoked tokens stay revoked, whatever exists stays
// as it is, and the mode does not become less strict.
func (t *Content) Restoring(now Mode) Change {
	return Change{Return: true, Sure: true, Bootstrap: t.Bootstrapped, Mode: max(t.Mode, now), PutRoles: t.Roles, Create: t.Tokens, Revoke: t.Revoked}
}

// Add appends a part of what was saved.
func (t *Content) Add(part Content) {
	t.Mode, t.Bootstrapped = max(t.Mode, part.Mode), t.Bootstrapped || part.Bootstrapped
	t.Roles = append(t.Roles, part.Roles...)
	t.Tokens = append(t.Tokens, part.Tokens...)
	t.Revoked = append(t.Revoked, part.Revoked...)
}

// Empty reports whether nobody was ever given anything.
func (t *Content) Empty() bool {
	return t.Mode == Unset && !t.Bootstrapped && len(t.Roles)+len(t.Tokens)+len(t.Revoked) == 0
}

// Digest returns the same text for tables with the same content, whenever they changed.
func (t *Table) Digest() string {
	c := t.Content
	c.Revision = 0
	w := codec.Writer(nil, codec.Newest)
	c.Fields(&w)
	sum := sha256.Sum256(w.Written())
	return hex.EncodeToString(sum[:8])
}

// Bytes returns roughly how many bytes the table takes.
func (t *Table) Bytes() int { return t.bytes }

// eachWeight is roughly how many bytes a role or token takes besides its texts.
const eachWeight = 256

// Weight returns roughly how many bytes a role takes in memory.
func (r *Role) Weight() int {
	bytes := eachWeight + len(r.Rules)*64
	for _, rule := range r.Rules {
		bytes += len(rule.Match)
	}
	return bytes
}

// Weight returns roughly how many bytes a token takes in memory.
func (t *Token) Weight() int {
	return eachWeight + len(t.Name) + len(t.App) + len(t.By) + len(t.Roles)*32 + len(t.Secrets)*48
}

// governed says who may change the table at a moment (ms since the epoch): nobody (0), only tokens that end (1), or
// others (2).
func (t *Table) governed(wall int64) (by int) {
	for _, k := range t.Tokens {
		switch {
		case k.Expired(wall) || !t.holders[k.Accessor].Policy.Allows(Need{Resource: Auth, Verb: Write}):
		case k.Expires == 0:
			return 2
		default:
			by = 1
		}
	}
	return by
}
