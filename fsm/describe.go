package fsm

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Describe names an operation and what it is about, for people: "register of ORDERS/orders-1".
func Describe(it Item) string {
	name, subject := "", ""
	if op := it.KV; op != nil {
		name, subject = kv.NameOf(op), aboutKV(op)
	} else {
		name, subject = registry.NameOf(it.Op), about(it.Op)
	}
	if subject == "" {
		return name
	}
	return name + " of " + subject
}

// about is what an operation of the registry is about; "": it names nothing.
func about(op registry.Op) string {
	if key, ok := registry.KeyOf(op); ok {
		return key.String()
	}
	switch op := op.(type) {
	case registry.Renew:
		return fmt.Sprintf("the lease in slot %d, generation %d", op.Handle.Slot, op.Handle.Gen)
	case registry.Evict:
		return fmt.Sprintf("%d leases", len(op.Items))
	case registry.Contact:
		return cmp.Or(op.Sender, op.DC)
	case registry.ForgetSender:
		return op.Sender
	case registry.AckPeer:
		return op.Peer
	case registry.PausePeer:
		return op.Peer
	case registry.RegisterCatalog:
		if op.Service != nil {
			return on(op.On(), op.Service.ID)
		}
		return on(op.On(), "")
	case registry.DeregisterCatalog:
		return on(op.Node, cmp.Or(op.Service, op.Check))
	case registry.SetCheck:
		return on(op.Node, op.Check)
	case registry.ExpireCheck:
		return on(op.Node, op.Check)
	}
	return ""
}

// on names a service or a check on a node of the catalog, whose logical node has no name.
func on(node, id string) string { return strings.Trim(node+"/"+id, "/") }

// aboutKV is what an operation of coordination is about; "": it names nothing.
func aboutKV(op kv.Op) string {
	switch op := op.(type) {
	case kv.Once:
		return aboutKV(op.Op)
	case kv.KeyOp:
		return op.Key
	case kv.Txn:
		for _, part := range op.Ops {
			if part.Key != nil {
				return fmt.Sprintf("%d operations, %s among them", len(op.Ops), part.Key.Key)
			}
		}
		return fmt.Sprintf("%d operations", len(op.Ops))
	case kv.CreateSession:
		return op.ID
	case kv.RenewSession:
		return op.ID
	case kv.DestroySession:
		return op.ID
	case kv.ExpireSession:
		return op.ID
	case kv.AcquirePermit:
		return op.Name
	case kv.ReleasePermit:
		return op.Name
	case kv.LeaveQueue:
		return op.Name
	case kv.EndDelay:
		return op.Name
	}
	return ""
}
