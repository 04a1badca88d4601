package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// Token lets its holder do what its roles grant. Only the holder knows the secret: the token has its hash. A secret
// has 256 random bits, so a fast hash is as good as a slow one.
type Token struct {
	Accessor string // names the token; not secret
	Name     string // of the principal, for people: the audit shows it
	Roles    []string
	App      string   // replaces {app} in the rules of the roles; "": nothing does
	Secrets  []Secret // one, or two during a rotation, the newer one last
	Expires  int64    // ms since the epoch; 0: never
	By       string   // the principal that created it
	Created  int64    // ms since the epoch
}

// Secret is the hash of a secret that is good for a token.
type Secret struct {
	Hash  [sha256.Size]byte
	Until int64 // ms since the epoch; 0: as long as the token
}

// maxSecrets is the most secrets of a token: the one in use and its successor.
const maxSecrets = 2

// Bounds of a token, and of a role.
const (
	MaxName       = 128 // bytes of a name
	maxTokenRoles = 32
	maxRules      = 256
)

func (s *Secret) fields(c *codec.Codec) {
	hash := s.Hash[:]
	if c.Bytes(&hash); c.Reading() {
		if len(hash) != len(s.Hash) {
			c.Fail("a hash of %d bytes", len(hash))
			return
		}
		s.Hash = [sha256.Size]byte(hash)
	}
	c.Int64(&s.Until)
}

func (t *Token) fields(c *codec.Codec) {
	c.Lasting(&t.Accessor)
	c.Lasting(&t.Name)
	c.Strings(&t.Roles)
	c.Lasting(&t.App)
	codec.List(c, &t.Secrets, 34, (*Secret).fields)
	c.Int64(&t.Expires)
	c.Lasting(&t.By)
	c.Int64(&t.Created)
}

// IsAccessor reports whether a text has the form of an accessor.
func IsAccessor(text string) bool {
	return len(text) == accessorLen && strings.Trim(text, alphabet) == ""
}

// ownNames are used in the audit and metrics for callers without a good token.
var ownNames = []string{"admin.sock", "nobody", "invalid"}

// clone returns a copy that may be changed.
func (t *Token) clone() *Token {
	c := *t
	c.Roles, c.Secrets = slices.Clone(t.Roles), slices.Clone(t.Secrets)
	return &c
}

// Validate returns an error that says why a token cannot be stored.
func (t *Token) Validate() error {
	switch {
	case !IsAccessor(t.Accessor):
		return fmt.Errorf("accessor %q: want %d of the characters %s", t.Accessor, accessorLen, alphabet)
	case len(t.Secrets) == 0 || len(t.Secrets) > maxSecrets:
		return fmt.Errorf("token %s has %d secrets, want 1 to %d", t.Accessor, len(t.Secrets), maxSecrets)
	case len(t.Roles) > maxTokenRoles:
		return fmt.Errorf("token %s has %d roles; at most %d are kept", t.Accessor, len(t.Roles), maxTokenRoles)
	case strings.ContainsAny(t.App, "{}*"):
		return fmt.Errorf("token %s: application %q must not have { } or *", t.Accessor, t.App)
	}
	if err := validName("token", t.Name); err != nil {
		return err
	}
	if slices.Contains(ownNames, t.Name) {
		return fmt.Errorf("token %s: the name %q is of callers without a token (%s); choose another", t.Accessor, t.Name, strings.Join(ownNames, ", "))
	}
	return validText("the application of token "+t.Accessor, t.App)
}

// Good reports whether a secret with this hash is good at a moment (ms since the epoch).
func (t *Token) Good(hash [sha256.Size]byte, wall int64) bool {
	return t.Has(hash, wall) && !t.Expired(wall)
}

// Has reports whether a secret with this hash is the token's at a moment (ms since the epoch), even if the token has
// ended. It takes equally long for each hash.
func (t *Token) Has(hash [sha256.Size]byte, wall int64) bool {
	good := 0
	for _, s := range t.Secrets {
		if s.Until == 0 || wall < s.Until {
			good |= subtle.ConstantTimeCompare(hash[:], s.Hash[:])
		}
	}
	return good == 1
}

// Expired reports whether the token's time has passed at a moment (ms since the epoch).
func (t *Token) Expired(wall int64) bool { return t.Expires != 0 && wall >= t.Expires }

// The text of a token is rct_ACCESSOR_SECRET_CHECK. The check covers the rest and the cluster's id. It tells a
// truncated text, or another cluster's, from a wrong one, and plays no part in the proof. A text that is made before
// its cluster is known has the check of the id "", and is good for every cluster that has its hash.
const (
	textPrefix  = "rct_"
	alphabet    = "abcdefghijklmnopqrstuvwxyz234567"
	accessorLen = 16 // 80 bits
	secretLen   = 52 // 256 bits
	checkLen    = 7  // 32 bits
	textLen     = len(textPrefix) + accessorLen + 1 + secretLen + 1 + checkLen
)

// RandomBytes is how many random bytes NewText needs.
const RandomBytes = accessorLen*5/8 + sha256.Size

var letters = base32.NewEncoding(alphabet).WithPadding(base32.NoPadding)

// NewText makes the text of a token from random bytes. accessor names the token; if it is "", they also make a new
// one.
func NewText(random [RandomBytes]byte, accessor, cluster string) (text string) {
	const own = accessorLen * 5 / 8
	if accessor == "" {
		accessor = letters.EncodeToString(random[:own])
	}
	body := textPrefix + accessor + "_" + letters.EncodeToString(random[own:])
	return body + "_" + check(body, cluster)
}

func check(body, cluster string) string {
	sum := crc32.ChecksumIEEE([]byte(body + "@" + cluster))
	return letters.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
}

// Looks reports whether a text is meant as the text of a token.
func Looks(text string) bool { return strings.HasPrefix(text, textPrefix) }

// Parse reads the text of a token of a cluster. Its errors do not repeat the secret.
func Parse(text, cluster string) (accessor string, hash [sha256.Size]byte, err error) {
	switch {
	case !Looks(text):
		return "", hash, fmt.Errorf("the credential is no token: a token begins with %s", textPrefix)
	case len(text) != textLen:
		return "", hash, fmt.Errorf("the token has %d characters, not %d: it was cut off, or something was added", len(text), textLen)
	}
	body, sum := text[:textLen-checkLen-1], text[textLen-checkLen:]
	accessor = body[len(textPrefix) : len(textPrefix)+accessorLen]
	if text[len(body)] != '_' || check(body, cluster) != sum && check(body, "") != sum || !IsAccessor(accessor) {
		return "", hash, fmt.Errorf("the token is another cluster's, or a part of it was changed: its last %d characters do not fit", checkLen)
	}
	return accessor, HashOf(text), nil
}

// HashOf returns the hash that identifies the text of a token.
func HashOf(text string) [sha256.Size]byte { return sha256.Sum256([]byte(text)) }
