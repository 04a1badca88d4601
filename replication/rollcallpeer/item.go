package rollcallpeer

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/order"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// Bounds of what a message may hold, besides those of a registration.
const (
	maxName  = order.MaxName // bytes of a datacenter's, node's or sender's name
	maxHeard = 1000          // datacenters that a node reports
	maxAge   = registry.MaxSpan
)

// Item is one fact of a message: an operation that its receiver performs if it is valid. Times are durations in ms,
// so that clocks need not agree.
type Item struct {
	Op      registry.Op // may be nil
	err     error       // why it could not be read
	encoded []byte      // if it will be sent
}

// ItemOf returns an item for messages of a level. It carries the whole state of an instance (Replica), the renewal
// (Renew, by name) or removal (Remove) of a version, or an operator's act (SelfPreservation).
func ItemOf(level byte, op registry.Op) Item {
	switch of := op.(type) {
	case registry.Replica:
		of.Age = age(of.Age)
		op = of
	case registry.Renew:
		of.Age = age(of.Age)
		op = of
	case registry.Remove:
		of.Age = age(of.Age)
		op = of
	}
	const renewal = 128 // bytes, more than most need
	c := codec.Writer(make([]byte, 0, renewal), level)
	registry.Operations.Fields(&c, &op)
	return Item{Op: op, encoded: c.Written()}
}

// Size returns about how many bytes of a message an item takes.
func (i *Item) Size() int { return len(i.encoded) + 4 }

func (i *Item) fields(c *codec.Codec) {
	if !c.Reading() {
		c.Bytes(&i.encoded)
		return
	}
	part := c.Part()
	if part.Left() == 0 {
		return
	}
	registry.Operations.Fields(&part, &i.Op)
	i.err = part.End()
}

// check accepts any item that could be read: Check judges its operation.
func (i *Item) check() error { return nil }

// Context is what the meaning of an item depends on besides itself.
type Context struct {
	Late int64  // by how many ms the message is older than the newest of its sender
	Here string // this datacenter's name if the sender belongs to another one, otherwise ""
}

// Check returns the operation that an item asks for here. The error says why it is not valid.
func (i *Item) Check(c Context) (registry.Op, error) {
	if i.err != nil {
		return nil, i.err
	}
	switch op := i.Op.(type) {
	case nil:
		return nil, errors.New("an item without an operation")
	case registry.Replica:
		return c.replica(op)
	case registry.Renew:
		if err := checkVersioned(op.Key, op.Life, op.Age, ""); err != nil {
			return nil, err
		}
		return registry.Renew{Key: op.Key, Life: op.Life, LastDirty: op.LastDirty, Age: later(op.Age, c.Late)}, nil
	case registry.Remove:
		if err := checkVersioned(op.Key, op.Life, op.Age, op.Owner); err != nil {
			return nil, err
		}
		op.Age = later(op.Age, c.Late)
		return op, nil
	case registry.SelfPreservation:
		return c.preserve(op)
	}
	return nil, fmt.Errorf("operation %s, which servers do not send each other", registry.Operations.Name(i.Op))
}

func (c Context) replica(op registry.Replica) (registry.Op, error) {
	i := op.Instance
	if err := cmp.Or(checkVersioned(i.Key(), op.Life, op.Age, op.Owner), op.Check()); err != nil {
		return nil, err
	}
	switch {
	case i.LastDirty < 0:
		return nil, fmt.Errorf("lastDirty %d is negative", i.LastDirty)
	case i.Overridden != registry.Unknown:
		return nil, errors.New("an instance contains its override, which belongs in a field of its own")
	}
	if op.Overridden == registry.Unknown {
		op.OverrideBy, op.OverrideFor = registry.Act{}, 0
	}
	if op.QuarantineFor == 0 {
		op.QuarantineBy = registry.Act{}
	}
	err := errors.Join(eureka.CheckMetadata(i.Metadata), eureka.CheckMetadata(i.DataCenter.Metadata), checkAct(op.OverrideBy), checkAct(op.QuarantineBy))
	if err != nil {
		return nil, err
	}
	if op.Owner != "" && op.Owner == c.Here {
		op.Owner = registry.Here
	}
	op.Age, op.OverrideFor, op.QuarantineFor = later(op.Age, c.Late), c.left(op.OverrideFor), c.left(op.QuarantineFor)
	return op, nil
}

// preserve returns an operator's act at another node. Without an author it would count as a decision of this node.
func (c Context) preserve(op registry.SelfPreservation) (registry.Op, error) {
	switch {
	case c.Here != "":
		return nil, errors.New("an act on self-preservation from another datacenter")
	case op.By.Author == "":
		return nil, errors.New("an operator's act lacks its author")
	case op.For < 0 || op.For > maxAge:
		return nil, fmt.Errorf("%d ms are not in 0 to %d", op.For, int64(maxAge))
	case op.To != registry.PreservationReleased && op.To != registry.PreservationHeld:
		return nil, fmt.Errorf("self-preservation to %q: it must be %s or %s", op.To, registry.PreservationReleased, registry.PreservationHeld)
	}
	return registry.SelfPreservation{To: op.To, By: op.By, For: c.left(op.For)}, checkAct(op.By)
}

// left returns what remains of the time of an act that arrived late. An act with an end keeps one.
func (c Context) left(lasts int64) int64 {
	if lasts == 0 {
		return 0
	}
	return max(1, lasts-c.Late)
}

// checkVersioned checks what all items about an instance have.
func checkVersioned(key registry.Key, life uint32, age int64, owner string) error {
	if err := eureka.CheckApp(key.App); err != nil {
		return err
	}
	if err := eureka.CheckID(key.ID); err != nil {
		return err
	}
	switch {
	case key.App != strings.ToUpper(key.App):
		return fmt.Errorf("app %q must be in upper case", clip(key.App))
	case life == 0 || life > registry.MaxCount:
		return fmt.Errorf("life %d must be 1 to %d", life, registry.MaxCount)
	case !validAge(age):
		return fmt.Errorf("an age of %d ms is not in 0 to %d", age, int64(maxAge))
	case owner != "" && !validName(owner):
		return fmt.Errorf("owner %q must be a name of 1 to %d bytes", clip(owner), maxName)
	}
	return nil
}

// checkAct checks what an operator said, which is shown to people. The formats bound its length.
func checkAct(by registry.Act) error {
	if !order.PlainText(strings.ToValidUTF8(by.Author+by.Reason+by.Says, "")) {
		return errors.New("author and reason must not contain control characters")
	}
	return nil
}

// validName reports whether a datacenter, a node or a sender may have a name.
func validName(name string) bool {
	return name != "" && len(name) <= maxName && order.PlainText(name)
}

func validAge(age int64) bool { return 0 <= age && age <= maxAge }

// age bounds an age to what receivers accept.
func age(age int64) int64 { return min(max(age, 0), maxAge) }

// later returns an age that has grown by the time a message is late.
func later(age, late int64) int64 { return min(age+late, maxAge) }

// Name returns the operation's name in metrics, or "unreadable".
func (i *Item) Name() string {
	if i.Op == nil {
		return "unreadable"
	}
	return registry.Operations.Name(i.Op)
}

// clip shortens a text for an error.
func clip(text string) string { return order.CutText(text, 64) }
