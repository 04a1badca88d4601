package capacity

import (
	"sync/atomic"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestFullDiskRefusesAdditionsByTheirKind(t *testing.T) {
	write, remove := kv.KeyOp{Verb: kv.Set}, kv.KeyOp{Verb: kv.DeleteTree}
	both, alone := kv.Txn{Ops: []kv.TxnOp{{Key: &remove}, {Key: &write}}}, kv.Txn{Ops: []kv.TxnOp{{Key: &remove}, {Session: "s"}}}
	for _, tt := range []struct {
		op   kv.Op
		want bool
	}{
		{write, true}, {kv.KeyOp{Verb: kv.CAS}, true}, {kv.KeyOp{Verb: kv.Acquire}, true}, {kv.CreateSession{}, true},
		{both, true}, {kv.Once{Op: write}, true},
		{remove, false}, {kv.KeyOp{Verb: kv.Release}, false}, {alone, false},
		{kv.RenewSession{}, false}, {kv.DestroySession{}, false}, {kv.ReleasePermit{}, false}, {kv.Once{Op: remove}, false},
	} {
		expect.Equal(t, addsKeys(tt.op), tt.want, "%+v adds:", tt.op)
	}
	adds := func(op registry.Op) bool { return addsToRegistry(registry.FromClient, op) }
	expect.That(t, !adds(registry.Renew{}) && !adds(registry.Cancel{}) && adds(registry.Register{}), "registrations add, renewals and cancels do not")
	for _, low := range []func(*Disk) *atomic.Bool{
		func(d *Disk) *atomic.Bool { return &d.low }, func(d *Disk) *atomic.Bool { return &d.leaderLow },
	} {
		d := &Disk{Least: 1}
		low(d).Store(true)
		expect.ErrorIs(t, d.check(true), registry.ErrFull, "got")
	}
}

func TestFullDiskAcceptsWhatOtherServersSend(t *testing.T) {
	d := &Disk{Least: 1}
	d.low.Store(true)
	expect.OKf(t, d.check(addsToRegistry(registry.FromEureka, registry.Register{})),
		"a Eureka server's batch with renewals and one registration is refused")
}
