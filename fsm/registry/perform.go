package registry

import "fmt"

// perform performs an operation of whatever type. A test walks Rows, so that none is without its case.
func (r *Registry) perform(term uint64, origin Origin, op Op) Result {
	switch op := op.(type) {
	case Renew:
		return r.renew(origin, op)
	case Register:
		return r.register(origin, op.Instance)
	case Cancel:
		return r.cancel(origin, op.Key)
	case SetOverride:
		return r.setOverride(origin, op)
	case DeleteOverride:
		return r.deleteOverride(origin, op)
	case EndOverride:
		return r.endOverride(term, origin, op)
	case UpdateMetadata:
		return r.updateMetadata(origin, op)
	case Quarantine:
		return r.quarantine(origin, op)
	case EndQuarantine:
		return r.endQuarantine(term, origin, op)
	case Evict:
		return r.evict(term, origin, op)
	case SelfPreservation:
		return r.preserve(term, op)
	case Replica:
		return r.replica(origin, op)
	case Remove:
		return r.removeVersion(origin, op)
	}
	return r.performOther(term, origin, op)
}

// performOther performs an operation of the catalog, or one that tells of another server.
func (r *Registry) performOther(term uint64, origin Origin, op Op) Result {
	switch op := op.(type) {
	case Contact:
		return r.contact(op)
	case AckPeer:
		return r.ackPeer(op)
	case PausePeer:
		return r.pausePeer(op)
	case ForgetSender:
		return r.forgetSender(op)
	case RegisterCatalog:
		return r.registerCatalog(origin, op)
	case DeregisterCatalog:
		return r.deregisterCatalog(term, origin, op)
	case SetCheck:
		return r.setCheck(term, origin, op)
	case ExpireCheck:
		return r.expireCheck(term, origin, op)
	}
	panic(fmt.Sprintf("registry: no rule for an operation %T", op))
}
