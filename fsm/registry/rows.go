package registry

import "github.com/seed-20419f34/rollcall/fsm/codec"

// Row is an operation as the formats, the metrics and their pages know it.
type Row = codec.Row[Op]

// operations are all that there are. The rest of an operation stands beside its type.
var operations = codec.Rows[Op]{}.With(
	row(1, "renew", Renew.fields),
	row(1, "register", Register.fields),
	row(1, "cancel", Cancel.fields),
	row(1, "status", SetOverride.fields),
	row(1, "status_delete", DeleteOverride.fields),
	row(1, "override_end", EndOverride.fields),
	row(1, "metadata", UpdateMetadata.fields),
	row(1, "quarantine", Quarantine.fields),
	row(1, "quarantine_end", EndQuarantine.fields),
	row(1, "evict", Evict.fields),
	row(1, "self_preservation", SelfPreservation.fields),
	row(1, "replica", Replica.fields),
	row(1, "remove", Remove.fields),
	row(1, "contact", Contact.fields),
	row(1, "peer_ack", AckPeer.fields),
	row(1, "peer_pause", PausePeer.fields),
	row(1, "sender_forget", ForgetSender.fields),
	row(1, "catalog_register", RegisterCatalog.fields),
	row(1, "catalog_deregister", DeregisterCatalog.fields),
	row(1, "check", SetCheck.fields),
	row(1, "check_expire", ExpireCheck.fields),
)

func row[T Op](level byte, name string, fields func(T, *codec.Codec) T) Row {
	var zero T
	return codec.RowOf[Op](byte(zero.kind()), level, name, fields)
}

// Rows are the operations, by kind.
func Rows() []Row { return operations.All() }

// KindOf is the kind of an operation.
func KindOf(op Op) Kind { return op.kind() }

// NameOf is what metrics call an operation.
func NameOf(op Op) string { return operations[op.kind()].Name }

// KeyOf returns the key of the instance that an operation is about; ok is false for other operations, and for handles.
func KeyOf(op Op) (key Key, ok bool) {
	switch op := op.(type) {
	case Register:
		return op.Instance.Key(), true
	case Replica:
		return op.Instance.Key(), true
	case Renew:
		return op.Key, op.Key != Key{}
	case Cancel:
		return op.Key, true
	case Remove:
		return op.Key, true
	case SetOverride:
		return op.Key, true
	case DeleteOverride:
		return op.Key, true
	case Quarantine:
		return op.Key, true
	case UpdateMetadata:
		return op.Key, true
	}
	return Key{}, false
}

// Walk walks an operation of a kind; where it is read, op is set.
func Walk(c *codec.Codec, kind Kind, op *Op) {
	if !operations.Walk(c, byte(kind), op) {
		c.Fail("operation of unknown kind %d", kind)
	}
}
