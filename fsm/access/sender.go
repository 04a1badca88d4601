package access

import (
	"context"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Sender is who sends an operation, as the log has it. The zero Sender: nobody was asked who they are.
type Sender struct {
	Accessor string // of the token, which must still be there when the operation takes effect; "": it is no token of the table
	Name     string // of the principal
	// Judged is the revision of the table by which a node allowed the operation: a newer one decides again when it
	// takes effect. 0: it does not, because access control refused nothing.
	Judged order.Index
}

// Fields walks a sender.
func (s *Sender) Fields(c *codec.Codec) {
	c.Lasting(&s.Accessor)
	c.BoundedText(&s.Name, MaxName)
	if c.Since(3, false) { // below level 3 the node's decision stands
		codec.Uint(c, &s.Judged)
	}
}

type senderKey struct{}

// As is a context of calls that a sender makes.
func As(ctx context.Context, s Sender) context.Context { return context.WithValue(ctx, senderKey{}, s) }

// SenderOf is who makes the calls of a context.
func SenderOf(ctx context.Context) Sender {
	s, _ := ctx.Value(senderKey{}).(Sender)
	return s
}

type serverKey struct{}

// FromServer returns a context for performing what the named server sent.
func FromServer(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, serverKey{}, name)
}

// ServerOf returns the server that sent what the calls of a context perform, or "" for a client.
func ServerOf(ctx context.Context) string {
	name, _ := ctx.Value(serverKey{}).(string)
	return name
}

type judgeKey struct{}

// Judge decides on the calls of a context.
type Judge struct {
	Mode    Mode               // in force
	Refuses func(Need) error   // refuses what may not be done, and counts it
	Allows  func(Need) bool    // decides alone
	Records func(Need, string) // writes to the audit what was done, by the verb of the need, to what has a name
}

// Judged returns a context of calls that j decides on.
func Judged(ctx context.Context, j Judge) context.Context {
	return context.WithValue(ctx, judgeKey{}, j)
}

// JudgeOf returns who decides on the calls of a context. Where nobody does, everything may be done: mode Off.
func JudgeOf(ctx context.Context) Judge {
	if j, ok := ctx.Value(judgeKey{}).(Judge); ok {
		return j
	}
	return Judge{Mode: Off, Refuses: func(Need) error { return nil }, Allows: func(Need) bool { return true }, Records: func(Need, string) {}}
}

// Allow refuses what may not be done in the calls of a context.
func Allow(ctx context.Context, n Need) error { return JudgeOf(ctx).Refuses(n) }

// ModeOf is the mode in which the calls of a context are judged.
func ModeOf(ctx context.Context) Mode { return JudgeOf(ctx).Mode }
