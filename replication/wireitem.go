package replication

import (
	"errors"
	"fmt"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// What an item does.
const (
	doRegister = "register"
	doRenew    = "renew"
	doRemove   = "remove"
	doPreserve = "self-preservation"
)

// Why an instance was removed.
const (
	whyCanceled = "canceled"
	whyEvicted  = "evicted"
)

// wireItem is one fact of a message, as told by Do. Times are spans in ms, so that clocks need not
// agree.
type wireItem struct {
	Do  string `json:"do"`
	App string `json:"app,omitempty"`
	ID  string `json:"id,omitempty"`

	Life  uint32 `json:"life,omitempty"`
	Dirty int64  `json:"dirty,omitempty"` // of a registration it is in the instance
	Owner string `json:"owner,omitempty"`
	Age   int64  `json:"age,omitempty"` // since the last renewal

	Instance   *wireInstance   `json:"instance,omitempty"`
	Edit       uint32          `json:"edit,omitempty"`
	Override   *wireOverride   `json:"override,omitempty"`
	Quarantine *wireQuarantine `json:"quarantine,omitempty"`
	Permanent  bool            `json:"permanent,omitempty"` // it has no lease

	Why string `json:"why,omitempty"` // of a removal

	// A transition of self-preservation.
	To string `json:"to,omitempty"`
	wireAct

	err error // the item could not be read
}

// wireAct is an operator's act and how long it holds from now on; 0: without an end.
type wireAct struct {
	For    int64  `json:"for,omitempty"`
	Author string `json:"author,omitempty"`
	Reason string `json:"reason,omitempty"`
}

type wireOverride struct {
	Status string `json:"status"`
	wireAct
}

type wireQuarantine struct{ wireAct }

func actToWire(by registry.Act, lasts int64) wireAct {
	return wireAct{For: lasts, Author: by.Author, Reason: by.Reason}
}

func (a wireAct) by() registry.Act { return registry.Act{Author: a.Author, Reason: a.Reason} }

// left is what is left of the time of an act that was told so late. An act that has an end keeps one.
func (a wireAct) left(late int64) int64 {
	if a.For == 0 {
		return 0
	}
	return max(1, a.For-late)
}

// replicaItem tells the whole state of an instance.
func replicaItem(r registry.Replica) wireItem {
	item := wireItem{
		Do: doRegister, App: r.Instance.App, ID: r.Instance.ID(), Instance: instanceToWire(r.Instance),
		Life: r.Life, Edit: r.Edit, Owner: r.Owner, Age: ageToWire(r.Age), Permanent: r.Permanent,
	}
	if r.Overridden != registry.Unknown {
		item.Override = &wireOverride{r.Overridden.String(), actToWire(r.OverrideBy, r.OverrideFor)}
	}
	if r.QuarantineFor > 0 {
		item.Quarantine = &wireQuarantine{actToWire(r.QuarantineBy, r.QuarantineFor)}
	}
	return item
}

// renewItem tells that an instance of that version was renewed so long ago.
func renewItem(key registry.Key, version registry.Version, age int64) wireItem {
	return wireItem{Do: doRenew, App: key.App, ID: key.ID, Life: version.Life, Dirty: version.LastDirty, Age: ageToWire(age)}
}

// removeItem tells a removal.
func removeItem(r registry.Remove) wireItem {
	why := whyCanceled
	if r.Kind == registry.Evicted {
		why = whyEvicted
	}
	return wireItem{Do: doRemove, App: r.Key.App, ID: r.Key.ID, Why: why, Life: r.Life, Dirty: r.LastDirty, Owner: r.Owner, Age: ageToWire(r.Age)}
}

// preserveItem tells an operator's act.
func preserveItem(op registry.SelfPreservation) wireItem {
	return wireItem{Do: doPreserve, To: op.To.String(), wireAct: actToWire(op.By, op.For)}
}

// itemContext is what the meaning of an item depends on besides itself.
type itemContext struct {
	late int64  // ms by which the message is older than the newest of its sender
	here string // the own datacenter's name if the sender belongs to another one; "": it does not
}

// owner is Replica.Owner of what an item says of the owner.
func (c itemContext) owner(name string) string {
	if name != "" && name == c.here {
		return registry.Here
	}
	return name
}

// op is the operation that an item asks for. The error says why it is not valid.
func (i *wireItem) op(c itemContext) (registry.Op, error) {
	if i.err != nil {
		return nil, i.err
	}
	switch i.Do {
	case doRegister:
		return i.replica(c)
	case doRenew:
		if err := i.checkVersioned(); err != nil {
			return nil, err
		}
		return registry.Renew{Key: i.key(), Life: i.Life, LastDirty: i.Dirty, Age: later(i.Age, c.late)}, nil
	case doRemove:
		return i.remove(c)
	case doPreserve:
		return i.preserve(c)
	}
	return nil, fmt.Errorf("do %q: it must be %s, %s, %s or %s", clip(i.Do), doRegister, doRenew, doRemove, doPreserve)
}

func (i *wireItem) key() registry.Key { return registry.Key{App: i.App, ID: i.ID} }

func (i *wireItem) replica(c itemContext) (registry.Op, error) {
	if err := i.checkVersioned(); err != nil {
		return nil, err
	}
	if i.Instance == nil {
		return nil, errors.New("a registration lacks its instance")
	}
	instance, err := i.Instance.toInstance(i.App)
	if err != nil {
		return nil, err
	}
	if instance.ID() != i.ID {
		return nil, fmt.Errorf("the instance's id is %q, that of the item %q", clip(instance.ID()), clip(i.ID))
	}
	r := registry.Replica{
		Instance: instance, Life: i.Life, Edit: i.Edit, Owner: c.owner(i.Owner), Age: later(i.Age, c.late), Permanent: i.Permanent,
	}
	if o := i.Override; o != nil {
		if r.Overridden, err = parseOverride(o); err != nil {
			return nil, err
		}
		r.OverrideBy, r.OverrideFor = o.by(), o.left(c.late)
	}
	if q := i.Quarantine; q != nil {
		if q.For == 0 {
			return nil, errors.New("a quarantine must have an end")
		}
		if err := q.check(); err != nil {
			return nil, fmt.Errorf("quarantine: %w", err)
		}
		r.QuarantineBy, r.QuarantineFor = q.by(), q.left(c.late)
	}
	return r, nil
}

func parseOverride(o *wireOverride) (registry.Status, error) {
	status, ok := registry.ParseStatus(o.Status)
	if !ok || status == registry.Unknown {
		return status, fmt.Errorf("override to %q: it must be UP, DOWN, STARTING or OUT_OF_SERVICE", clip(o.Status))
	}
	if err := o.check(); err != nil {
		return status, fmt.Errorf("override: %w", err)
	}
	return status, nil
}

func (i *wireItem) remove(c itemContext) (registry.Op, error) {
	if err := i.checkVersioned(); err != nil {
		return nil, err
	}
	kind := registry.Canceled
	switch i.Why {
	case whyCanceled:
	case whyEvicted:
		kind = registry.Evicted
	default:
		return nil, fmt.Errorf("removed why %q: it must be %s or %s", clip(i.Why), whyCanceled, whyEvicted)
	}
	return registry.Remove{
		Key: i.key(), Kind: kind, Life: i.Life, LastDirty: i.Dirty, Owner: i.Owner, Age: later(i.Age, c.late),
	}, nil
}

// preserve is an operator's act at another node. Without an author it would be taken for a decision
// of this node's own.
func (i *wireItem) preserve(c itemContext) (registry.Op, error) {
	if c.here != "" {
		return nil, errors.New("self-preservation is each datacenter's own business")
	}
	if i.Author == "" {
		return nil, errors.New("an operator's act lacks its author")
	}
	if err := i.check(); err != nil {
		return nil, err
	}
	op := registry.SelfPreservation{To: registry.PreservationReleased, By: i.by(), For: i.left(c.late)}
	switch i.To {
	case registry.PreservationReleased.String():
	case registry.PreservationHeld.String():
		op.To = registry.PreservationHeld
	default:
		return nil, fmt.Errorf("self-preservation to %q: it must be %s or %s", clip(i.To), registry.PreservationReleased, registry.PreservationHeld)
	}
	return op, nil
}
