package rollcallpeer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/batcher"
	"github.com/seed-20419f34/rollcall/replication/link"
	"github.com/seed-20419f34/rollcall/replication/peertest"
)

// ownerAt returns who owns the instances of one site, seen from the other.
func ownerAt(from, to *site) string {
	if from.side.Datacenter == to.side.Datacenter {
		return ""
	}
	return from.side.Datacenter
}

func TestReceivedHeartbeatRenewsAsLongAgoAsItWas(t *testing.T) {
	a, b := twoDatacenters(t)
	a.Perform(t, registry.Register{Instance: peertest.Instance("ORDERS", "1", 1)})
	a.deliverChanges(t, 0)
	both(a, b, 20*time.Second)
	a.Perform(t, registry.Renew{Key: ordersID("1")})
	a.Pass(5 * time.Second) // for which the task waits
	b.Pass(5 * time.Second)
	index := b.Newest().Index()
	a.deliver(t, link.Task{Key: ordersID("1"), Facts: link.Heartbeat})
	silent := b.Clock() - b.Newest().LastRenewal(b.lease(t, "1")).Lease
	expect.That(t, silent >= 5000 && silent <= 10_000, "renewed %d ms ago, want 5 s or a little more", silent)
	expect.Equal(t, b.Newest().Index(), index, "a renewal took index")
	expect.Equal(t, a.accepted("heartbeat"), 1, "heartbeats counted:")
}

func TestReceivedHeartbeatOfAnUnknownInstanceBringsTheWhole(t *testing.T) {
	for _, c := range []struct {
		name  string
		there int64 // lastDirtyTimestamp of the peer's copy, or 0 without one
	}{{"unknown", 0}, {"older", 1}} {
		t.Run(c.name, func(t *testing.T) {
			a, b := twoDatacenters(t)
			if c.there > 0 {
				a.Perform(t, registry.Register{Instance: peertest.Instance("ORDERS", "1", c.there)})
				a.deliverChanges(t, 0)
			}
			before := a.accepted("register")
			a.Perform(t, registry.Register{Instance: peertest.Instance("ORDERS", "1", 5)})
			a.deliver(t, link.Task{Key: ordersID("1"), Facts: link.Heartbeat})
			expect.Equal(t, b.lease(t, "1").Instance.LastDirty, 5, "timestamp")
			expect.Equal(t, [2]int{a.accepted("heartbeat"), a.accepted("register") - before}, [2]int{0, 1}, "counted:")
		})
	}
}

func TestReplyThatAnInstanceIsMissingIsFollowedAFewTimesOnly(t *testing.T) {
	a, b := twoDatacenters(t)
	a.Perform(t, registry.Register{Instance: peertest.Instance("ORDERS", "1", 5)})
	a.deliver(t, link.Task{Key: ordersID("1"), Facts: link.Heartbeat, Tries: link.MaxTries})
	b.without(t, "1")
}

func TestReplyReturnsWhatThePeerHasNewer(t *testing.T) {
	eachKind(t, func(t *testing.T, a, b *site) {
		a.Perform(t, registry.Register{Instance: peertest.Instance("ORDERS", "1", 1)}, registry.Register{Instance: peertest.Instance("ORDERS", "2", 1)})
		a.deliverChanges(t, 0)
		// Meanwhile each side has changed a half that the other one does not know of.
		b.Perform(t, registry.SetOverride{Key: ordersID("1"), Status: registry.OutOfService})
		a.Perform(t, registry.Register{Instance: peertest.Instance("ORDERS", "1", 7)})
		b.Perform(t, registry.Register{Instance: peertest.Instance("ORDERS", "2", 7)})
		a.deliver(t, link.Task{Key: ordersID("1"), Facts: link.Registered}, link.Task{Key: ordersID("2"), Facts: link.Heartbeat})
		l := a.lease(t, "1")
		expect.That(t, l.Instance.LastDirty == 7 && l.Instance.Overridden == registry.OutOfService && l.Owner == "",
			"got %+v of %+v, want both halves, and the owner that it had", l, l.Instance)
		m := a.lease(t, "2")
		expect.That(t, m.Instance.LastDirty == 7 && m.Owner == ownerAt(b, a), "got %+v of %+v, want the newer one, and its owner", m, m.Instance)
		equal(t, a, b)
	})
}

func TestReceiveDoesNotReviveWhatWasCanceled(t *testing.T) {
	a, b := twoNodes(t)
	a.Perform(t, registry.Register{Instance: peertest.Instance("ORDERS", "1", 1)}, registry.Register{Instance: peertest.Instance("ORDERS", "2", 1)})
	a.deliverChanges(t, 0)
	b.Perform(t, registry.Cancel{Key: ordersID("1")}, registry.Cancel{Key: ordersID("2")})
	a.deliver(t, link.Task{Key: ordersID("1"), Facts: link.Registered}, link.Task{Key: ordersID("2"), Facts: link.Heartbeat})
	for _, id := range []string{"1", "2"} {
		a.without(t, id)
		b.without(t, id)
	}
}

func TestReceiveDoesNotRegisterALeaseThatEnded(t *testing.T) {
	a, b := twoDatacenters(t)
	a.Perform(t, registry.Register{Instance: peertest.Instance("ORDERS", "1", 1)})
	a.Pass(5 * time.Minute)
	a.deliverChanges(t, 0)
	b.without(t, "1")
	a.lease(t, "1") // nothing came home: this side ends it without help
}

func TestReceivePerformsAnOperatorsActOnce(t *testing.T) {
	a, b := twoNodes(t)
	a.Perform(t, registry.Register{Instance: peertest.Instance("ORDERS", "1", 1)})
	by := registry.Act{Author: "ann", Reason: "cut"}
	hold := registry.SelfPreservation{To: registry.PreservationHeld, For: 60_000, By: by}
	send := func(op registry.SelfPreservation) {
		t.Helper()
		need.Equal(t, a.only().Act(context.Background(), op), 0, "failures %v: result", a.failed())
	}
	send(hold)
	send(hold)
	p := b.Newest().Preservation()
	need.That(t, p.State == registry.PreservationHeld && p.By == by, "got %+v, want held by ann", p)
	expect.Equal(t, len(b.Newest().Transitions()), 1, "transitions:")
	held := b.received(messagePath)[0]
	longer := hold
	longer.For = 120_000
	send(longer)
	release := registry.SelfPreservation{To: registry.PreservationReleased, By: by}
	send(release)
	p = b.Newest().Preservation()
	need.That(t, p.State == registry.PreservationReleased, "got %+v, want released", p)
	both(a, b, 30*time.Second)
	a.deliver(t, link.Task{Key: ordersID("1"), Facts: link.Heartbeat})
	transitions := len(b.Newest().Transitions())
	expect.That(t, transitions == 3, "%d transitions, want held, longer and released", transitions)
	need.Got(b.Receive(context.Background(), held.body))(t)
	expect.That(t, len(b.Newest().Transitions()) == transitions, "a message of half a minute ago brought %+v", b.Newest().Preservation())
}

func TestReceiveAppliesTheOthersBesideABadItem(t *testing.T) {
	a, b := twoDatacenters(t)
	head := a.only().head()
	good := func(id string) registry.Replica {
		return registry.Replica{Instance: peertest.Instance("ORDERS", id, 1), Life: 1}
	}
	bad := good("2")
	bad.Life = 0
	body := write(head, good("1"), bad, good("3"))
	text := need.Got(b.Receive(context.Background(), body))(t)
	var got Reply
	need.OK(t, Decode(text, &got))
	var statuses []int
	for _, r := range got.Results {
		statuses = append(statuses, r.Status)
	}
	expect.That(t, reflect.DeepEqual(statuses, []int{200, 400, 200}) && strings.Contains(got.Results[1].Error, "life 0"), "got %+v", got)
	b.lease(t, "1")
	b.without(t, "2")
	b.lease(t, "3")
}

func TestReceiveIsOneApply(t *testing.T) {
	a, b := twoDatacenters(t)
	for n := range 20 {
		a.Perform(t, registry.Register{Instance: peertest.Instance("ORDERS", fmt.Sprint(n), 1)})
	}
	a.deliverChanges(t, 0)
	var applies int
	var first registry.Op
	b.Set(func(m *fsmtest.Memory) { applies, first = m.Applies, m.Applied[0] })
	contact, ok := first.(registry.Contact)
	expect.That(t, applies == 1 && ok && contact.DC == "dc1" && contact.Cut == link.DatacenterCut.Milliseconds(),
		"%d calls of Apply, the first operation %+v; want one that begins with a contact of dc1", applies, first)
}

func TestContactsAreRecordedOncePerSecond(t *testing.T) {
	a, b := twoNodes(t)
	contacts := func() (n int) {
		b.Set(func(m *fsmtest.Memory) {
			for _, op := range m.Applied {
				if _, ok := op.(registry.Contact); ok {
					n++
				}
			}
		})
		return n
	}
	for range 3 {
		a.only().send(context.Background(), codec.Newest, nil)
	}
	n := contacts()
	expect.That(t, n == 1, "%d contacts of three messages at once, want 1", n)
	a.Pass(time.Second)
	a.only().send(context.Background(), codec.Newest, nil)
	expect.Equal(t, contacts(), 2, "contacts after a second:")
}

// Contacts of another node count, but never as younger than they can be: otherwise two nodes would keep a dead link
// alive.
func TestContactsAreReportedBetweenNodes(t *testing.T) {
	a, b := newSite(), newSite()
	far := link.PeerConfig{Name: "dc9", Kind: link.Datacenter, URLs: []string{"http://127.0.0.1:1"}}
	a.become(t, "dc1", "n1", false, link.PeerConfig{Name: "b", Kind: link.Node, URLs: []string{b.server.URL}}, far)
	b.become(t, "dc1", "n2", false, link.PeerConfig{Name: "a", Kind: link.Node, URLs: []string{a.server.URL}}, far)
	a.Pass(time.Minute)
	b.Pass(time.Minute)
	a.Perform(t, registry.Contact{DC: "dc9", Cut: 15_000})
	silent := func(s *site) time.Duration {
		l, ok := s.Newest().Link("dc9")
		need.That(t, ok, "%s has not heard of dc9", s.side.Node)
		return time.Duration(s.Clock()-l.LastContact) * time.Millisecond
	}
	for range 20 {
		for _, way := range []struct {
			link *Link
			to   *site
		}{{a.links["b"], b}, {b.links["a"], a}} {
			body := write(way.link.head())
			both(a, b, 500*time.Millisecond) // in transit
			need.Got(way.to.Receive(context.Background(), body))(t)
		}
	}
	for _, s := range []*site{a, b} {
		d := silent(s)
		expect.That(t, d >= 20*time.Second && d <= 25*time.Second, "at %s dc9 is silent for %v, want 20 s or a little more", s.side.Node, d)
	}
}

func TestContactsNeedASignOfLife(t *testing.T) {
	a, b := twoDatacenters(t)
	old := a.only().head()
	newer := old
	newer.Clock += 5000
	receive := func(s *site, h Head) {
		t.Helper()
		need.Got(s.Receive(context.Background(), write(h)))(t)
	}
	receive(b, newer)
	before, _ := b.Newest().Link("dc1")
	b.Pass(5 * time.Second)
	receive(b, old)
	after, _ := b.Newest().Link("dc1")
	expect.That(t, after == before, "a message of before the newest: got %+v, want %+v", after, before)

	n, _ := twoNodes(t)
	receive(n, Head{Datacenter: "dc1", Node: "n2", Sender: "s", Heard: map[string]int64{"dc1": 5}})
	l, ok := n.Newest().Link("dc1")
	expect.That(t, !ok, "this datacenter was heard: %+v", l)
}

func TestReceiveRefusesStrangers(t *testing.T) {
	a, b := twoNodes(t)
	c, d := twoDatacenters(t)
	message := func(datacenter, node string) []byte {
		return write(Head{Datacenter: datacenter, Node: node, Sender: "s"})
	}
	for _, e := range []struct {
		name             string
		at               *site
		datacenter, node string
		stranger         bool
	}{
		{"another datacenter", a, "dc7", "n9", true},
		{"a node", a, "dc1", "n9", false},
		{"the node itself", b, "dc1", "n2", true},
		{"a peer datacenter", d, "dc1", "n1", false},
		{"a node where nodes agree by consensus", c, "dc1", "n2", true},
	} {
		t.Run(e.name, func(t *testing.T) {
			_, err := e.at.Receive(context.Background(), message(e.datacenter, e.node))
			expect.That(t, errors.Is(err, ErrStranger) == e.stranger, "a message: got %v, want ErrStranger: %v", err, e.stranger)
			q := Digests{Datacenter: e.datacenter, Node: e.node}
			if e.datacenter != e.at.side.Datacenter {
				q.Owner = e.datacenter
			}
			_, err = e.at.Compare(context.Background(), Encode(codec.Newest, &q))
			expect.That(t, errors.Is(err, ErrStranger) == e.stranger, "a comparison: got %v, want ErrStranger: %v", err, e.stranger)
		})
	}
	for name, err := range map[string]error{
		"a datacenter that is a peer": d.State(context.Background(), "dc1", nil),
		"this one, by consensus":      d.State(context.Background(), "dc2", nil),
		"another one":                 a.State(context.Background(), "dc7", nil),
	} {
		expect.ErrorIs(t, err, ErrStranger, "the state for %s: got", name)
	}
}

// The datacenter that counts is the one that the message names, in each of the three ways to ask.
func TestReceiverAsksWhetherTheCallerMaySpeakForTheDatacenter(t *testing.T) {
	_, d := twoDatacenters(t)
	refused := errors.New("refused")
	var asked []access.Need
	ctx := access.Judged(t.Context(), access.Judge{Mode: access.On, Refuses: func(n access.Need) error {
		asked = append(asked, n)
		return refused
	}})
	before := d.Count()
	_, err := d.Receive(ctx, write(Head{Datacenter: "dc1", Node: "n1", Sender: "s"}))
	expect.ErrorIs(t, err, refused, "a message: got")
	_, err = d.Compare(ctx, Encode(codec.Newest, &Digests{Datacenter: "dc1", Node: "n1", Owner: "dc1"}))
	expect.ErrorIs(t, err, refused, "a comparison: got")
	expect.ErrorIs(t, d.State(ctx, "dc1", nil), refused, "the state: got")
	want := access.Need{Resource: access.Peer, Name: "dc1", Verb: access.Exchange}
	expect.Slice(t, asked, []access.Need{want, want, want}, "asked for")
	expect.Equal(t, d.Count(), before, "operations")
}

func TestReceiveReturnsErrorsOfTheRegistry(t *testing.T) {
	a, b := twoDatacenters(t)
	b.Set(func(m *fsmtest.Memory) { m.ApplyErr = registry.ErrUnknownOutcome })
	expect.ErrorIs(t, expect.Err(b.Receive(context.Background(), write(a.only().head()))), registry.ErrUnknownOutcome, "got")
}

// pickyService refuses an instance with a long address, as one that no log entry can hold or the leader cannot read.
type pickyService struct {
	*fsmtest.Memory
	most int
	err  error
}

func (c pickyService) Apply(ctx context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	for _, op := range ops {
		if r, ok := op.(registry.Replica); ok && len(r.Instance.HomePageURL) > c.most {
			return nil, c.err
		}
	}
	return c.Memory.Apply(ctx, origin, ops...)
}

func TestReceiveLeavesOutAnItemTooLargeOrUnknownToTheLeader(t *testing.T) {
	for _, cause := range []error{registry.ErrTooLarge, registry.ErrUnreadable} {
		t.Run(cause.Error(), func(t *testing.T) { oneItemIsLeftOut(t, cause) })
	}
}

func oneItemIsLeftOut(t *testing.T, cause error) {
	t.Helper()
	a, b := twoDatacenters(t)
	b.side.Service = pickyService{b.Memory, 1000, cause}
	var items []registry.Op
	for n := range 7 {
		i := peertest.Instance("ORDERS", fmt.Sprint(n), 1)
		if n == 4 {
			i.HomePageURL = strings.Repeat("x", 1001)
		}
		items = append(items, registry.Replica{Instance: i, Life: 1})
	}
	text := need.Got(b.Receive(context.Background(), write(a.only().head(), items...)))(t)
	var got Reply
	need.OK(t, Decode(text, &got))
	for n, r := range got.Results {
		want := 200
		if n == 4 {
			want = 400
		}
		expect.That(t, r.Status == want, "item %d: got %+v, want %d", n, r, want)
	}
	expect.Equal(t, b.Newest().Total(), 6, "stored:")
}

// A reply stays within what senders read, however much is newer here.
func TestReplyIsBounded(t *testing.T) {
	a, b := twoDatacenters(t)
	var items []registry.Op
	for n := range 12 {
		i := peertest.Instance("ORDERS", fmt.Sprint(n), 9)
		i.HomePageURL = strings.Repeat("x", 900_000)
		b.Perform(t, registry.Register{Instance: i})
		items = append(items, registry.Renew{Key: i.Key(), Life: 1, LastDirty: 1})
	}
	text := need.Got(b.Receive(context.Background(), write(a.only().head(), items...)))(t)
	var got Reply
	need.OK(t, Decode(text, &got))
	returned := 0
	for n, r := range got.Results {
		expect.Equal(t, r.Status, 409, "item %d: got", n)
		if r.Stored.Op != nil {
			returned++
		}
	}
	expect.That(t, len(text) <= maxMessage && returned != 0 && returned != len(items), "%d bytes with %d of %d instances", len(text), returned, len(items))
}

func TestItemThatIsRefusedIsNamedOnBothSides(t *testing.T) {
	eachKind(t, func(t *testing.T, a, b *site) {
		b.Receiver.side.Service = pickyService{b.Memory, 1000, registry.ErrTooLarge}
		b.Receiver.side.Refusals = link.NewRefusals(nil, slog.New(slog.DiscardHandler))
		i := peertest.Instance("ORDERS", "1", 1)
		i.HomePageURL = strings.Repeat("x", 1001)
		a.Perform(t, registry.Register{Instance: i}, registry.Register{Instance: peertest.Instance("ORDERS", "2", 1)})
		first, second := link.Task{Key: ordersID("1"), Facts: link.Registered}, link.Task{Key: ordersID("2"), Facts: link.Registered}
		for _, tasks := range [][]link.Task{{first, second}, {first}} { // as the dispatcher does
			expect.Equal(t, a.only().ProcessBatch(t.Context(), tasks), batcher.PermanentError, "result")
		}
		a.deliver(t, second)
		expect.Slice(t, a.refused, []string{"register ORDERS/1", "-register ORDERS/2"}, "refused and accepted")
		from := "dc1"
		if a.side.Datacenter == b.side.Datacenter {
			from = "n1"
		}
		all := b.side.Refusals.List()
		expect.That(t, len(all) == 1 && all[0].ID == "1" && all[0].From == from && all[0].Times == 2 && all[0].Text == "larger than an operation may be", "refused here: %+v", all)

		b.Receiver.side.Service = b.Memory
		a.deliver(t, first)
		expect.Equal(t, a.refused[len(a.refused)-1], "-register ORDERS/1", "said last")
		expect.Equal(t, len(b.side.Refusals.List()), 0, "refused here after it was accepted")
	})
}
