package kv

import "fmt"

// digest is an FNV-1a hash of an operation's fields, each with its length or of a fixed size, so that
// no two operations are written alike. It is in snapshots: what it is made of must not change.
type digest uint64

// The parameters of 64-bit FNV-1a.
const (
	digestOffset digest = 14695981039346656037
	digestPrime  digest = 1099511628211
)

// The first number of each kind of operation. Never renumber one.
const (
	digestKeyOp = iota + 1
	digestTxn
	digestCreateSession
	digestRenewSession
	digestDestroySession
	digestExpireSession
	digestEndDelay
	digestAcquirePermit
	digestReleasePermit
	digestLeaveQueue
)

// digestOf tells whether two operations ask for the same. The id of a new session is left out: it is
// drawn anew when the caller tries again.
func digestOf(op Op) uint64 {
	d := digestOffset
	switch op := op.(type) {
	case KeyOp:
		d.numbers(digestKeyOp)
		d.keyOp(op)
	case Txn:
		d.numbers(digestTxn, uint64(len(op.Ops)))
		for _, o := range op.Ops {
			d.keyOp(o)
		}
	case CreateSession:
		d.numbers(digestCreateSession, uint64(op.TTL), uint64(op.LockDelay), uint64(op.Behavior))
		d.strings(op.Name, op.Node, op.TTLText)
		d.lists(op.Checks, op.NodeChecks, op.ServiceChecks)
	case RenewSession:
		d.numbers(digestRenewSession)
		d.strings(op.ID)
	case DestroySession:
		d.numbers(digestDestroySession)
		d.strings(op.ID)
	case ExpireSession:
		d.numbers(digestExpireSession, op.Epoch.Term, op.Epoch.Index, uint64(op.Created), uint64(op.RenewedAt))
		d.strings(op.ID)
	case EndDelay:
		d.numbers(digestEndDelay, op.Epoch.Term, op.Epoch.Index, uint64(op.Kind), uint64(op.Until))
		d.strings(op.Name)
	case AcquirePermit:
		d.numbers(digestAcquirePermit, uint64(op.Kind), uint64(op.Limit), uint64(op.Wait))
		d.strings(op.Name, op.Session, string(op.Value))
	case ReleasePermit:
		d.numbers(digestReleasePermit, uint64(op.Kind), uint64(op.Index))
		d.strings(op.Name, op.Session)
	case LeaveQueue:
		d.numbers(digestLeaveQueue, uint64(op.Kind), truth(op.Release))
		d.strings(op.Name, op.Session)
	default:
		panic(fmt.Sprintf("kv: no digest of %T", op))
	}
	return uint64(d)
}

func (d *digest) keyOp(op KeyOp) {
	d.numbers(uint64(op.Verb), op.Flags, uint64(op.Index))
	d.strings(op.Key, op.Session)
	d.bytes(op.Value)
	if op.Fence == nil {
		d.numbers(0)
		return
	}
	d.numbers(1, uint64(op.Fence.Kind), uint64(op.Fence.Index))
	d.strings(op.Fence.Name)
}

func (d *digest) lists(lists ...[]string) {
	for _, list := range lists {
		d.numbers(uint64(len(list)))
		d.strings(list...)
	}
}

func (d *digest) strings(texts ...string) {
	for _, s := range texts {
		d.numbers(uint64(len(s)))
		for i := range len(s) {
			d.byte(s[i])
		}
	}
}

func (d *digest) bytes(b []byte) {
	d.numbers(uint64(len(b)))
	for _, c := range b {
		d.byte(c)
	}
}

func (d *digest) numbers(numbers ...uint64) {
	for _, n := range numbers {
		for shift := 0; shift < 64; shift += 8 {
			d.byte(byte(n >> shift))
		}
	}
}

func (d *digest) byte(c byte) { *d = (*d ^ digest(c)) * digestPrime }

func truth(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
