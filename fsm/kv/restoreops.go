package kv

import (
	"fmt"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// A restore comes through the log in parts, each of which is only staged: readers do not see it. A last operation
// applies them all. So every entry has a bounded size, and the restore is one change (docs/adr/0026).

// StagePart brings the next part of a restore. Only one restore can be in progress: Refusal says so, or that the
// content cannot be read. A repeated part is accepted again. It takes no Index.
type StagePart struct {
	ID      string // drawn by the proposer; not ""
	By      registry.Act
	Part    uint64 // from 0, which begins the restore
	Content []byte // see Unpack
}

func (StagePart) kind() byte { return 12 }

func (op StagePart) fields(c *codec.Codec) StagePart {
	c.String(&op.ID)
	op.By.Fields(c)
	c.Uint64(&op.Part)
	c.Bytes(&op.Content)
	return op
}

func (op StagePart) refusal(staged *Staged) string {
	switch same := staged.ID == op.ID; {
	case op.ID == "":
		return "a restore needs an id"
	case !same && staged.ID != "":
		return fmt.Sprintf("another restore, by %s, is under way: wait for its end; if its sender fell silent, it is given up after %d s", staged.By.Author, stagedFor/1000)
	case op.Part > 0 && !same:
		return givenUp
	case op.Part > staged.Parts:
		return fmt.Sprintf("part %d of the restore came, and part %d is missing", op.Part, staged.Parts)
	}
	return ""
}

const givenUp = "the restore was given up, because its parts stayed away for too long: nothing was changed; restore again"

// DropStaged drops a restore. OK is true even if nothing is staged under that id. It takes no Index.
type DropStaged struct{ ID string }

func (DropStaged) kind() byte { return 14 }

func (op DropStaged) fields(c *codec.Codec) DropStaged {
	c.String(&op.ID)
	return op
}

// Restore applies what was staged, in one step. docs/run/back-up.md says what becomes of which record. It begins a
// new incarnation (Registry.Raise), except that a restore of keys alone does so only if the state that they come from
// was ahead of this one. Result.Refusal says why it cannot be done; then this restore is not, or no longer, staged.
type Restore struct {
	ID    string
	Parts uint64 // how many there are
	By    registry.Act
	// Newest is the highest index in the state that was saved.
	Newest Index
	// KeysOnly restricts the restore to the keys that begin with Prefix.
	KeysOnly bool
	Prefix   string
	// KeepSessions lets sessions go on, with what they hold.
	KeepSessions bool
	// Founding means that the cluster is new. Whatever it already has is newer and stays. It is refused after any
	// other restore.
	Founding bool
	// WithAuth also brings back roles, tokens and the mode, see access.Content.Restoring. Without it they stay as
	// they are.
	WithAuth bool
}

func (Restore) kind() byte { return 13 }

func (op Restore) fields(c *codec.Codec) Restore {
	c.String(&op.ID)
	c.Uint64(&op.Parts)
	op.By.Fields(c)
	codec.Uint(c, &op.Newest)
	c.Bool(&op.KeysOnly)
	c.String(&op.Prefix)
	c.Bool(&op.KeepSessions)
	c.Bool(&op.Founding)
	c.Bool(&op.WithAuth)
	return op
}
