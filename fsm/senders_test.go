package fsm

import (
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// writeItems applies items as the next batch.
func (n *node) writeItems(items ...Item) BatchResult {
	n.t.Helper()
	n.id.Seq++
	return n.apply(AppendBatch(nil, codec.Newest, n.id, items)).Batches[0]
}

var (
	anna = access.Sender{Accessor: "aaaaaaaaaaaaaaaa", Name: "anna"}
	bob  = access.Sender{Accessor: "bbbbbbbbbbbbbbbb", Name: "bob"}
)

func newGovernedNode(t *testing.T) *node {
	t.Helper()
	n := newNode(t)
	n.establish()
	made := n.writeItems(Item{KV: kv.Access{Change: access.Change{
		PutRoles: []*access.Role{{Name: "all", Rules: access.Everything()}},
		Create: []*access.Token{
			{Accessor: anna.Accessor, Name: anna.Name, Roles: []string{"all"}, Secrets: []access.Secret{{}}},
			{Accessor: bob.Accessor, Name: bob.Name, Roles: []string{"all"}, Secrets: []access.Secret{{}}},
		},
	}}})
	if made.KV[0].Refusal != "" {
		t.Fatal(made.KV[0].Refusal)
	}
	return n
}

func TestOperationOfARevokedTokenIsRefusedWhenItIsApplied(t *testing.T) {
	n := newGovernedNode(t)
	register := registry.Register{Instance: instance("A", "i1")}
	put := kv.KeyOp{Verb: kv.Set, Key: "k", Value: []byte("v")}
	n.writeItems(Item{KV: kv.Access{Change: access.Change{Revoke: []string{anna.Accessor}}}})
	before := n.m.View().Index()
	got := n.writeItems(Item{Op: register, Origin: registry.FromClient, By: anna}, Item{KV: put, By: anna})
	expect.That(t, got.Results[0].Outcome == registry.Revoked && got.KV[1].Revoked && !got.KV[1].OK, "of the revoked token: %+v", got)
	expect.That(t, n.m.View().Index() == before && n.m.View().Len() == 0, "it changed the state")
	got = n.writeItems(Item{Op: register, Origin: registry.FromClient, By: bob}, Item{KV: put, By: bob})
	expect.That(t, got.Results[0].Outcome == registry.Done && got.KV[1].OK, "of the other token: %+v", got)
}

func TestIdempotencyKeyIsThatOfOnePrincipal(t *testing.T) {
	n := newGovernedNode(t)
	add := func(by access.Sender, value string) kv.Result {
		return n.writeItems(Item{KV: kv.Once{Key: "key", Op: kv.KeyOp{Verb: kv.Set, Key: by.Name, Value: []byte(value)}}, By: by}).KV[0]
	}
	expect.That(t, add(anna, "1").OK, "the first is not done")
	expect.That(t, add(anna, "2").Refusal != "", "another operation under the same key is done")
	expect.That(t, add(bob, "3").OK, "the same key of another principal is refused")
}

func TestSessionBelongsToThePrincipalThatMadeIt(t *testing.T) {
	n := newGovernedNode(t)
	const ofAnna, ofEveryone = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"
	n.writeItems(Item{KV: kv.CreateSession{ID: ofAnna}, By: anna}, Item{KV: kv.CreateSession{ID: ofEveryone}})
	v := n.m.KV()
	expect.That(t, v.Owner(ofAnna) == "anna" && v.Owner(ofEveryone) == "" && v.Owner("x") == "", "owners are %q, %q and %q",
		v.Owner(ofAnna), v.Owner(ofEveryone), v.Owner("x"))
}

// What a principal adds to an operation is the token's accessor and its name.
func TestPrincipalOfAnOperationTakesItsBytes(t *testing.T) {
	written := func(by access.Sender) int {
		cancel := registry.Cancel{Key: registry.NewKey("A", "i1")}
		return len(AppendBatch(nil, codec.Newest, BatchID{Node: "n1"}, []Item{{Op: cancel, Origin: registry.FromClient, By: by}}))
	}
	more := written(anna) - written(access.Sender{})
	expect.That(t, more > 0 && more <= len(anna.Accessor)+len(anna.Name)+2, "an operation has %d bytes more", more)
}
