package access

import (
	"context"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Sender is the sender of an operation, as recorded in the log. It is zero if nobody was asked who they are.
type Sender struct {
	// Accessor names a token of the table, which must still be there when the operation takes effect, or is "".
	Accessor string
	Name     string // of the principal
	// Judged is the revision of the table with which a node allowed the operation: a newer table decides again when
	// it takes effect. 0: no other decision, because access control refused nothing.
	Judged order.Index
}

func (s *Sender) Fields(c *codec.Codec) {
	c.Lasting(&s.Accessor)
	c.BoundedText(&s.Name, MaxName)
	if c.Since(3, false) { // below level 3 the node's decision stands
		codec.Uint(c, &s.Judged)
	}
}

type senderKey struct{}

// As returns a context for a sender's calls.
func As(ctx context.Context, s Sender) context.Context { return context.WithValue(ctx, senderKey{}, s) }

// SenderOf returns who makes the calls of a context.
func SenderOf(ctx context.Context) Sender {
	s, _ := ctx.Value(senderKey{}).(Sender)
	return s
}

type serverKey struct{}

// FromServer returns a context for performing what the named server sent.
func FromServer(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, serverKey{}, name)
}

// ServerOf returns the server whose messages the calls of a context perform, or "" for a client.
func ServerOf(ctx context.Context) string {
	name, _ := ctx.Value(serverKey{}).(string)
	return name
}

type judgeKey struct{}

// Judge decides about the calls of a context.
type Judge struct {
	Mode    Mode               // in force
	Refuses func(Need) error   // refuses a need that is not granted, and counts it
	Allows  func(Need) bool    // only decides
	Records func(Need, string) // writes to the audit what was done: the need's verb, to a named thing
}

// Judged returns a context whose calls j decides about.
func Judged(ctx context.Context, j Judge) context.Context {
	return context.WithValue(ctx, judgeKey{}, j)
}

// JudgeOf returns the judge of the calls of a context. Without one, everything is allowed: mode Off.
func JudgeOf(ctx context.Context) Judge {
	if j, ok := ctx.Value(judgeKey{}).(Judge); ok {
		return j
	}
	return Judge{Mode: Off, Refuses: func(Need) error { return nil }, Allows: func(Need) bool { return true }, Records: func(Need, string) {}}
}

// Allow refuses a need that the calls of a context are not granted.
func Allow(ctx context.Context, n Need) error { return JudgeOf(ctx).Refuses(n) }

// ModeOf returns the mode that applies to the calls of a context.
func ModeOf(ctx context.Context) Mode { return JudgeOf(ctx).Mode }
