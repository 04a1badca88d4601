package registry

import "github.com/seed-20419f34/rollcall/fsm/codec"

// Operations lists every operation. The rest of an operation is next to its type.
var Operations = codec.TableOf("operation", Op.kind,
	codec.RowOf(1, "renew", Renew.fields),
	codec.RowOf(1, "register", Register.fields),
	codec.RowOf(1, "cancel", Cancel.fields),
	codec.RowOf(1, "status", SetOverride.fields),
	codec.RowOf(1, "status_delete", DeleteOverride.fields),
	codec.RowOf(1, "override_end", EndOverride.fields),
	codec.RowOf(1, "metadata", UpdateMetadata.fields),
	codec.RowOf(1, "quarantine", Quarantine.fields),
	codec.RowOf(1, "quarantine_end", EndQuarantine.fields),
	codec.RowOf(1, "evict", Evict.fields),
	codec.RowOf(1, "self_preservation", SelfPreservation.fields),
	codec.RowOf(1, "replica", Replica.fields),
	codec.RowOf(1, "remove", Remove.fields),
	codec.RowOf(1, "contact", Contact.fields),
	codec.RowOf(1, "peer_ack", AckPeer.fields),
	codec.RowOf(1, "peer_pause", PausePeer.fields),
	codec.RowOf(1, "sender_forget", ForgetSender.fields),
	codec.RowOf(1, "catalog_register", RegisterCatalog.fields),
	codec.RowOf(1, "catalog_deregister", DeregisterCatalog.fields),
	codec.RowOf(1, "check", SetCheck.fields),
	codec.RowOf(1, "check_expire", ExpireCheck.fields),
)

// KeyOf returns the key of the instance that an operation is about; ok is false for other operations and handles.
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
