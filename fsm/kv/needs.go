package kv

import (
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Needs returns what a client must be allowed to do to send an operation. v is the registry, see registry.Needs. A
// need for a session is met by its creator or an operator, see View.Owner.
func Needs(op Op, v *registry.View) []access.Need { return op.needs(v) }

// operating is the need of cluster operators. The leader's decisions, which no client sends, have it too.
func operating() []access.Need { return []access.Need{{Resource: access.Operator, Verb: access.Write}} }

// sessionNeed is the need to act for a session, or to create one if id is "".
func sessionNeed(id string) access.Need {
	return access.Need{Resource: access.Session, Name: id, Verb: access.Write}
}

func permitNeeds(name, session string) []access.Need {
	return []access.Need{{Resource: access.Lock, Name: name, Verb: access.Write}, sessionNeed(session)}
}

func (op KeyOp) needs(*registry.View) []access.Need {
	n := access.Need{Resource: access.KV, Name: op.Key, Below: op.Verb == GetTree || op.Verb == DeleteTree, Verb: access.Read}
	if op.Verb.Writes() {
		n.Verb = access.Write
	}
	if op.Session != "" && op.Verb.Writes() {
		return []access.Need{n, sessionNeed(op.Session)}
	}
	return []access.Need{n}
}

func (op Txn) needs(v *registry.View) (all []access.Need) {
	for _, o := range op.Ops {
		switch {
		case o.Key != nil:
			all = append(all, o.Key.needs(v)...)
		case o.Catalog != nil:
			all = append(all, o.Catalog.Needs(v)...)
		default:
			all = append(all, sessionNeed(o.Session))
		}
	}
	return all
}

func (CreateSession) needs(*registry.View) []access.Need { return []access.Need{sessionNeed("")} }

func (op RenewSession) needs(*registry.View) []access.Need {
	return []access.Need{sessionNeed(op.ID)}
}

func (op DestroySession) needs(*registry.View) []access.Need {
	return []access.Need{sessionNeed(op.ID)}
}

func (op AcquirePermit) needs(*registry.View) []access.Need { return permitNeeds(op.Name, op.Session) }
func (op ReleasePermit) needs(*registry.View) []access.Need { return permitNeeds(op.Name, op.Session) }
func (op LeaveQueue) needs(*registry.View) []access.Need    { return permitNeeds(op.Name, op.Session) }

func (ExpireSession) needs(*registry.View) []access.Need { return operating() }
func (EndDelay) needs(*registry.View) []access.Need      { return operating() }
func (StagePart) needs(*registry.View) []access.Need     { return operating() }

func (op Restore) needs(*registry.View) []access.Need {
	if op.WithAuth {
		return append(operating(), access.Need{Resource: access.Auth, Verb: access.Write})
	}
	return operating()
}

func (DropStaged) needs(*registry.View) []access.Need { return operating() }

func (Access) needs(*registry.View) []access.Need {
	return []access.Need{{Resource: access.Auth, Verb: access.Write}}
}
