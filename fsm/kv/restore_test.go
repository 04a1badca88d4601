package kv

import (
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// part is a part of a restore with an image.
func part(t testing.TB, id string, number uint64, m Image) StagePart {
	packer := need.Got(zstd.NewWriter(nil))(t)
	return StagePart{ID: id, Part: number, Content: packer.EncodeAll(m.Encode(codec.Newest), nil)}
}

func keys(names ...string) (m Image) {
	for _, name := range names {
		m.Pairs = append(m.Pairs, &Pair{Key: name, Value: []byte("saved"), CreateIndex: 1, ModifyIndex: 1})
	}
	return m
}

// saysNo performs an operation that must be refused in words with these among them.
func (r *rig) saysNo(op Op, words string) {
	r.t.Helper()
	res := r.do(op)
	expect.That(r.t, !res.OK && strings.Contains(res.Refusal, words), "%T: %+v, want it refused: %s", op, res, words)
}

// restore performs the last operation of a restore, whose index is the catalog's.
func (r *rig) restore(op Restore) {
	r.t.Helper()
	res := r.Apply(r.at(), op)
	need.That(r.t, res.OK, "%+v: %+v, want it done", op, res)
}

// stored is a key's pair after a restore; nil: there is none.
func (r *rig) stored(key string) *Pair {
	p, _ := r.View().Get(key)
	return p
}

func TestOneRestoreAtATimeIsUnderWay(t *testing.T) {
	r := newRig(t)
	r.yes(part(t, "first", 0, keys("a")))
	r.saysNo(part(t, "second", 0, keys("b")), "another restore")
	r.saysNo(Restore{ID: "second", Parts: 1}, "given up")
	r.saysNo(part(t, "first", 2, keys("c")), "part 1 is missing")
	r.yes(part(t, "first", 1, keys("b")))
	r.yes(part(t, "first", 0, keys("a"))) // repetitions
	r.yes(part(t, "first", 1, keys("b")))
	expect.That(t, r.stored("a") == nil, "key %q is there", "a") // nothing has happened yet
	r.restore(Restore{ID: "first", Parts: 2})
	r.restore(Restore{ID: "first", Parts: 2})
	expect.That(t, r.stored("a") != nil && r.stored("b") != nil, "the keys are %v and %v", r.stored("a"), r.stored("b"))
	r.yes(part(t, "second", 0, keys("c")))
	r.yes(DropStaged{ID: "second"})
	r.yes(part(t, "third", 0, keys("c")))
}

// A sender that falls silent keeps others from restoring for a minute.
func TestRestoreWhoseSenderFellSilentIsGivenUp(t *testing.T) {
	r := newRig(t)
	r.yes(part(t, "first", 0, keys("a")))
	r.pass(StagedFor - 1)
	r.saysNo(part(t, "second", 0, keys("b")), "given up after 60 s")
	r.pass(1)
	r.yes(part(t, "second", 0, keys("b")))
	r.saysNo(Restore{ID: "first", Parts: 1}, "given up")
	r.restore(Restore{ID: "second", Parts: 1})
	expect.That(t, r.stored("a") == nil, "key %q is there", "a")
}

// A key that ends with its session does not come back without the session.
func TestRestoreLeavesKeysAwayThatEndedWithTheirSession(t *testing.T) {
	r := newRig(t)
	m := keys("ephemeral", "lasting", "plain")
	m.Sessions = []*Session{{ID: s1, Behavior: DeleteKeys, CreateIndex: 1, ModifyIndex: 1}, {ID: s2, CreateIndex: 1, ModifyIndex: 1}}
	m.Pairs[0].Session, m.Pairs[1].Session = s1, s2
	m.Sessions[0].LockDelay = 5_000_000_000
	r.session(s3, deleteKeys)
	r.yes(acquire("now", s3))
	r.yes(part(t, "r", 0, m))
	r.restore(Restore{ID: "r", Parts: 1})
	expect.That(t, r.stored("ephemeral") == nil, "key %q is there", "ephemeral")
	expect.That(t, r.stored("now") == nil, "key %q is there", "now") // its session has ended by the restore
	expect.That(t, r.stored("lasting").Session == "" && r.stored("plain") != nil, "the key of a session that releases is %+v", r.stored("lasting"))
	expect.That(t, r.View().Delayed("ephemeral") > 0, "no lock-delay keeps back the key whose holder may believe that it holds it")
	last := r.View().LastRestoration()
	expect.That(t, last.Keys == 2 && last.KeysDeleted == 1 && last.SessionsEnded == 1, "restored: %+v", last)
}

func TestRestoreBringsPermissionsBackOnlyIfAskedTo(t *testing.T) {
	token := &access.Token{Accessor: strings.Repeat("a", 16), Name: "saved", Roles: []string{"all"}, Secrets: []access.Secret{{}}}
	roles := []*access.Role{{Name: "all", Rules: access.Everything()}}
	m := keys("a")
	m.Access = access.Content{Mode: access.On, Bootstrapped: true, Roles: roles, Tokens: []*access.Token{token}}
	r := newRig(t)
	r.yes(part(t, "without", 0, m))
	r.restore(Restore{ID: "without", Parts: 1})
	got := r.Access()
	expect.That(t, r.stored("a") != nil && got.Empty(), "without asking for it: %+v", got.Content)

	for _, op := range []Restore{{KeysOnly: true, WithAuth: true}, {Founding: true, WithAuth: true}} {
		r.yes(part(t, "r", 0, m))
		op.ID, op.Parts = "r", 1
		r.saysNo(op, "roles and tokens come back with a restore of everything")
	}
	bad := m
	bad.Access.Roles = []*access.Role{{Name: "a b"}}
	r.yes(part(t, "bad", 0, bad))
	r.saysNo(Restore{ID: "bad", Parts: 1, WithAuth: true}, "its roles and tokens: role \"a b\"")

	r.yes(part(t, "with", 0, m))
	r.restore(Restore{ID: "with", Parts: 1, WithAuth: true})
	got = r.Access()
	last := r.View().LastRestoration()
	expect.That(t, got.Mode == access.On && got.Holder(token.Accessor) != nil && got.Revision > 0 && last.Roles == 1 && last.Tokens == 1, "when asked for it: %+v, %+v", got.Content, last)

	r.yes(Access{access.Change{Revoke: []string{token.Accessor}, Sure: true}})
	r.yes(part(t, "again", 0, m))
	r.restore(Restore{ID: "again", Parts: 1, WithAuth: true})
	expect.That(t, r.Access().Holder(token.Accessor) == nil, "a revoked token is back")
}
