package rollcallpeer

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/link"
	"github.com/seed-20419f34/rollcall/replication/peertest"
)

// copyWait is how long the nodes in the tests wait for another one.
const copyWait = 3 * time.Second

// starting returns a node of dc1 that has just started, beside others at these URLs.
func starting(t testing.TB, urls ...string) *site {
	t.Helper()
	s := newSite()
	var peers []link.PeerConfig
	for n, u := range urls {
		peers = append(peers, link.PeerConfig{Name: fmt.Sprint("peer-", n), Kind: link.Node, URLs: []string{u}})
	}
	s.become(t, "dc1", "n9", false, peers...)
	return s
}

// running returns a node of dc1 with some contents.
func running(t testing.TB, node string) *site {
	t.Helper()
	s := newSite()
	s.become(t, "dc1", node, false, link.PeerConfig{Name: "dc3", Kind: link.Datacenter, URLs: []string{closed()}})
	registerAll(t, s, 1, "1", "2", "3", "4")
	s.Perform(t, registry.SetOverride{Key: ordersID("1"), Status: registry.OutOfService, By: registry.Act{Author: "ann"}, For: 600_000})
	s.Perform(t, registry.Quarantine{Key: ordersID("2"), For: 600_000})
	cancelAll(t, s, "3")
	registerAll(t, s, 1, "3")
	cancelAll(t, s, "4")
	if _, err := s.Apply(context.Background(), registry.Origin{Kind: registry.RemoteDC, DC: "dc3"},
		registry.Contact{DC: "dc3", Cut: 15_000}, registry.Register{Instance: peertest.Instance("ORDERS", "far", 1)}); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCopyIsEqual(t *testing.T) {
	old := running(t, "n1")
	old.Pass(20 * time.Second)
	node := newSite()
	node.become(t, "dc1", "n9", false, link.PeerConfig{Name: "old", Kind: link.Node, URLs: []string{old.server.URL}},
		link.PeerConfig{Name: "dc3", Kind: link.Datacenter, URLs: []string{closed()}})
	node.Pass(time.Minute)
	// The instances this node has from before it stopped are older, and some were removed since.
	registerAll(t, node, 1, "4")
	need.OK(t, node.Copy(context.Background(), copyWait))
	equal(t, old, node)
	expect.Equal(t, node.lease(t, "far").Owner, "dc3", "owner")
	l := node.lease(t, "1")
	silent := node.Clock() - node.Newest().LastRenewal(l).Lease
	expect.That(t, silent >= 20_000 && silent <= 25_000, "renewed %d ms ago, want 20 s and what the copy took", silent)
	rest := l.Override.Until - node.Clock()
	expect.That(t, rest >= 575_000 && rest <= 580_000, "the override lasts %d ms, want 580 s less what the copy took", rest)
	link, ok := node.Newest().Link("dc3")
	expect.That(t, ok && node.Clock()-link.LastContact >= 20_000, "got link %+v, %v; want that dc3 was heard 20 s ago, or a little more", link, ok)
	need.Got(node.Apply(context.Background(), registry.Origin{Kind: registry.LocalPeer}, registry.Replica{Instance: peertest.Instance("ORDERS", "4", 1), Life: 1}))(t)
	node.without(t, "4")
}

func TestCopyIsOlderByTheTimeItTakes(t *testing.T) {
	old, node := running(t, "n1"), starting(t)
	var state bytes.Buffer
	need.OK(t, old.State(context.Background(), "dc1", &state))
	node.Pass(time.Minute)
	slow := &transfer{Receiver: node.Receiver, from: "n1", frames: bufio.NewReader(&state), started: time.Now().Add(-20 * time.Second)}
	need.OK(t, slow.run(context.Background()))
	silent := node.Clock() - node.Newest().LastRenewal(node.lease(t, "3")).Lease
	expect.That(t, silent >= 20_000 && silent <= 25_000, "renewed %d ms ago, want 20 s or a little more", silent)
}

func TestCopyIsAppliedInChunks(t *testing.T) {
	old := running(t, "n1")
	var ops []registry.Op
	for n := range 3 * copyChunk {
		ops = append(ops, registry.Register{Instance: peertest.Instance("PRICES", fmt.Sprint(n), 1)})
	}
	old.Perform(t, ops...)
	node := starting(t, old.server.URL)
	need.OK(t, node.Copy(context.Background(), copyWait))
	equal(t, old, node)
	node.Set(func(m *fsmtest.Memory) {
		expect.That(t, m.Applies == 4, "%d calls of Apply, want 4", m.Applies)
	})
}

func TestCopyOfANodeAloneIsNothing(t *testing.T) {
	node := starting(t)
	begun := time.Now()
	need.OK(t, node.Copy(context.Background(), copyWait))
	took := time.Since(begun)
	expect.That(t, took <= copyWait, "it took %v", took)
}

// A node that is listed among its own peers does not copy from itself, whatever its address is there.
func TestCopyIsNotFromTheNodeItself(t *testing.T) {
	old := running(t, "n1")
	node := newSite()
	node.become(t, "dc1", "n9", false,
		link.PeerConfig{Name: "self", Kind: link.Node, URLs: []string{node.server.URL}}, link.PeerConfig{Name: "n1", Kind: link.Node, URLs: []string{old.server.URL}})
	need.OK(t, node.Copy(context.Background(), copyWait))
	equal(t, old, node)

	alone := newSite()
	alone.become(t, "dc1", "n9", false, link.PeerConfig{Name: "self", Kind: link.Node, URLs: []string{alone.server.URL}})
	need.OK(t, alone.Copy(context.Background(), copyWait))
	expect.Equal(t, len(alone.received(statePath)), 1, "how often it asked itself:")
}

func TestCopyIsFromTheFirstNodeThatIsReady(t *testing.T) {
	busy, stranger, old := running(t, "n1"), running(t, "n2"), running(t, "n3")
	busy.Set(func(m *fsmtest.Memory) { m.Reported.Ready = false })
	stranger.failWith(peertest.RespondWith(403, "not a peer"))
	registerAll(t, old, 1, "more")
	node := starting(t, closed(), busy.server.URL, stranger.server.URL, old.server.URL)
	need.OK(t, node.Copy(context.Background(), copyWait))
	node.lease(t, "more")
}

// A node that becomes ready while another one looks for it is copied.
func TestCopyWaitsForANode(t *testing.T) {
	old := running(t, "n1")
	old.Set(func(m *fsmtest.Memory) { m.Reported.Ready = false })
	node := starting(t, old.server.URL)
	copied := make(chan error)
	go func() { copied <- node.Copy(context.Background(), copyWait) }()
	peertest.Eventually(t, "it asks twice", func() bool { return len(old.received(statePath)) >= 2 })
	old.Set(func(m *fsmtest.Memory) { m.Reported.Ready = true })
	need.OK(t, <-copied)
	equal(t, old, node)
}

// breaking serves a state that breaks the given number of times.
func breaking(s *site, times int, how func(w http.ResponseWriter, state []byte)) {
	s.failWith(func(w http.ResponseWriter, r *http.Request) bool {
		if len(s.received(statePath)) > times {
			return false
		}
		var state bytes.Buffer
		if err := s.State(r.Context(), "dc1", &state); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return true
		}
		how(w, state.Bytes())
		return true
	})
}

// frames returns the frames of a state.
func frames(state []byte) (all [][]byte) {
	for len(state) > 0 {
		n := 4 + binary.BigEndian.Uint32(state)
		all = append(all, state[:n])
		state = state[n:]
	}
	return all
}

func TestCopyThatBrokeIsStartedAgain(t *testing.T) {
	for _, c := range []struct {
		name string
		how  func(w http.ResponseWriter, state []byte)
	}{
		{"closes in the middle", func(w http.ResponseWriter, state []byte) {
			w.Write(state[:len(state)/2])
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}},
		{"without the last item", func(w http.ResponseWriter, state []byte) {
			all := frames(state)
			w.Write(bytes.Join(all[:len(all)-1], nil))
		}},
		{"an item is missing", func(w http.ResponseWriter, state []byte) {
			w.Write(bytes.Join(slices.Delete(frames(state), 2, 3), nil))
		}},
		{"garbage", func(w http.ResponseWriter, state []byte) { io.WriteString(w, "<html>\n") }},
		{"a newer version", func(w http.ResponseWriter, state []byte) {
			state[4]++
			w.Write(state)
		}},
		{"another datacenter", func(w http.ResponseWriter, state []byte) {
			w.Write(bytes.Replace(state, []byte("dc1"), []byte("dc2"), 1))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			old := running(t, "n1")
			breaking(old, 1, c.how)
			node := starting(t, old.server.URL)
			need.OK(t, node.Copy(context.Background(), copyWait))
			expect.Equal(t, len(old.received(statePath)), 2, "tries:")
			equal(t, old, node)
		})
	}
}

func TestCopyThatAlwaysBreaksIsAnError(t *testing.T) {
	t.Parallel()
	old := running(t, "n1")
	breaking(old, 100, func(w http.ResponseWriter, state []byte) { w.Write(state[:len(state)-1]) })
	node := starting(t, old.server.URL)
	err := node.Copy(context.Background(), copyWait)
	n := len(old.received(statePath))
	expect.That(t, errors.Is(err, io.ErrUnexpectedEOF) && n == copyTries, "got %v after %d tries, want an unexpected end after %d", err, n, copyTries)
}

func TestCopyFromANodeThatFallsSilentIsStartedAgain(t *testing.T) {
	old := running(t, "n1")
	released := make(chan struct{})
	defer close(released)
	breaking(old, 1, func(w http.ResponseWriter, state []byte) {
		w.Write(state[:len(state)/2])
		http.NewResponseController(w).Flush()
		<-released
	})
	node := newSite()
	node.become(t, "dc1", "n9", false, link.PeerConfig{Name: "n1", Kind: link.Node, URLs: []string{old.server.URL}, Flow: link.Flow{ReadTimeout: time.Second}})
	need.OK(t, node.Copy(context.Background(), copyWait))
	equal(t, old, node)
}

func TestCopyEndsWithItsContext(t *testing.T) {
	old := running(t, "n1")
	old.failWith(peertest.Hang)
	node := starting(t, old.server.URL)
	ctx, cancel := context.WithCancel(context.Background())
	copied := make(chan error)
	go func() { copied <- node.Copy(ctx, copyWait) }()
	peertest.Eventually(t, "it asks", func() bool { return len(old.received(statePath)) == 1 })
	cancel()
	err := <-copied
	expect.That(t, errors.Is(err, context.Canceled), "got %v, want that it was canceled", err)
}

func TestCopyLeavesOutWhatIsNotValid(t *testing.T) {
	old := running(t, "n1")
	breaking(old, 1, func(w http.ResponseWriter, state []byte) {
		all := frames(state)
		var head State
		expect.OK(t, ReadFrame(bytes.NewReader(all[0]), &head))
		head.Items += 2
		bad := ItemOf(codec.Newest, registry.Replica{Instance: peertest.Instance("ORDERS", "bad", 1)})
		act := ItemOf(codec.Newest, registry.SelfPreservation{To: registry.PreservationHeld, For: 1000, By: registry.Act{Author: "ann"}})
		all[0] = appendFrame(nil, codec.Newest, &head)
		w.Write(bytes.Join(slices.Insert(all, 2, appendFrame(nil, codec.Newest, &bad), appendFrame(nil, codec.Newest, &act)), nil))
	})
	node := starting(t, old.server.URL)
	need.OK(t, node.Copy(context.Background(), copyWait))
	expect.Equal(t, len(old.received(statePath)), 1, "tries:")
	equal(t, old, node)
	expect.Equal(t, node.Newest().Preservation().State, registry.PreservationOff, "self-preservation is")
}

func TestStateIsNotGivenByANodeThatHasNone(t *testing.T) {
	old := running(t, "n1")
	old.Set(func(m *fsmtest.Memory) { m.Reported.Ready = false })
	var state bytes.Buffer
	err := old.State(context.Background(), "dc1", &state)
	expect.That(t, errors.Is(err, registry.ErrNoLeader) && state.Len() <= 0, "got %v and %d bytes, want ErrNoLeader and none", err, state.Len())
}

func TestStateThatCannotBeWrittenIsAnError(t *testing.T) {
	old := running(t, "n1")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := old.State(ctx, "dc1", io.Discard)
	expect.That(t, errors.Is(err, context.Canceled), "got %v, want that it was canceled", err)
	r, w := io.Pipe()
	r.Close()
	err = old.State(context.Background(), "dc1", w)
	expect.That(t, errors.Is(err, io.ErrClosedPipe), "got %v, want a closed pipe", err)
}

// FuzzState checks that any input is refused or taken over.
func FuzzState(f *testing.F) {
	old := running(f, "n1")
	var state bytes.Buffer
	need.OK(f, old.State(context.Background(), "dc1", &state))
	f.Add(state.Bytes())
	node := starting(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		tr := &transfer{Receiver: node.Receiver, from: "n1", frames: bufio.NewReader(bytes.NewReader(text)), started: time.Now()}
		err := tr.run(context.Background())
		if err != nil && !errors.Is(err, ErrMalformed) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, errSelf) {
			t.Fatal(err)
		}
	})
}

// refound gives one of two datacenters an empty registry, as in a cluster whose data was lost.
func refound(t testing.TB, a, b *site) *site {
	t.Helper()
	a.server.Close()
	anew := newSite()
	anew.become(t, "dc1", "n1", true, link.PeerConfig{Name: "dc2", Kind: link.Datacenter, URLs: []string{b.server.URL}})
	return anew
}

// The instances of dc1 live on at dc2 until their leases end there, and are found at both once their clients come
// back.
func TestDatacenterFoundedAnewEmptiesNoOther(t *testing.T) {
	a, b := twoDatacenters(t)
	ids := []string{"1", "2", "3", "4", "5"}
	registerAll(t, a, 1, ids...)
	a.Perform(t, peertest.Web("web-1"))
	a.deliverChanges(t, 0)
	ageChanges(a, b)

	a = refound(t, a, b)
	ageChanges(a, b)
	for range 3 {
		d, tasks := a.diff(t, true)
		need.That(t, d.Extra == 6 && len(tasks) == 0, "%d too many, and %d tasks; want 6, and none of them removed", d.Extra, len(tasks))
		a.repair(t)
	}
	need.Equal(t, b.Newest().Total(), 6, "left at dc2:")
	registerAll(t, a, 1, ids[:3]...)
	a.Perform(t, peertest.Web("web-1"))
	a.deliverChanges(t, 0)
	ageChanges(a, b)
	a.repair(t)
	for _, id := range ids[:3] {
		a.lease(t, id)
		b.lease(t, id)
	}
	both(a, b, 60*time.Second)
	b.Perform(t, registry.Renew{Key: ordersID("5")}) // its client talks to dc2 by now
	for _, s := range []*site{a, b} {
		for _, id := range ids[:3] {
			need.Got(s.Apply(context.Background(), registry.FromClient, registry.Renew{Key: ordersID(id)}))(t)
		}
	}
	both(a, b, 60*time.Second)
	b.Evict()
	b.without(t, "4")
	b.lease(t, "5")
	_, ok := b.Newest().Find(registry.NewKey("WEB", "web-1"))
	expect.That(t, ok, "the service of Consul's API is not at dc2 any more")
}

// dc2 knows of lives at the former dc1, canceled and not, that seem newer than those at the current one.
func TestDatacenterFoundedAnewKeepsWhatRegistersThere(t *testing.T) {
	for _, reduced := range []bool{false, true} {
		a, b := twoDatacenters(t)
		again := func(s *site, id string, dirty int64) { registerAll(t, s, dirty, id) }
		for _, id := range []string{"canceled", "lives"} {
			for range 2 { // the second life
				again(a, id, 9)
				cancelAll(t, a, id)
			}
			again(a, id, 9)
		}
		for range 3 {
			a.Perform(t, peertest.Web("web-1"), registry.DeregisterCatalog{Service: "web-1"}, peertest.Web("web-2"), registry.DeregisterCatalog{Service: "web-2"})
		}
		a.Perform(t, peertest.Web("web-1"), peertest.Web("web-2"))
		a.Perform(t, registry.SetOverride{Key: ordersID("lives"), Status: registry.OutOfService})
		a.deliverChanges(t, 0)
		ageChanges(a, b)
		last := a.Newest().Index()
		cancelAll(t, a, "canceled")
		a.Perform(t, registry.DeregisterCatalog{Service: "web-1"})
		a.deliverChanges(t, last)
		b.without(t, "canceled")
		ageChanges(a, b)
		if reduced {
			both(a, b, 5*time.Minute)
		}

		a = refound(t, a, b)
		a.Pass(time.Second)
		for _, id := range []string{"canceled", "lives"} {
			again(a, id, 9)
		}
		a.Perform(t, peertest.Web("web-1"), peertest.Web("web-2"))
		a.deliverChanges(t, 0)
		a.deliverChanges(t, 0)
		ageChanges(a, b)
		a.repair(t)
		for _, s := range []*site{a, b} {
			s.lease(t, "canceled")
			if l := s.lease(t, "lives"); l.Instance.Overridden != registry.OutOfService {
				t.Errorf("at %s it has lost what the operator decided: %+v", s.side.Node, l.Instance)
			}
			for _, id := range []string{"web-1", "web-2"} {
				l, ok := s.Newest().Find(registry.NewKey("WEB", id))
				expect.That(t, ok && (s != a || l.Service != nil), "reduced %t: %s at %s: %+v, want it as it registered", reduced, id, s.side.Node, l)
			}
		}
		equal(t, a, b)
	}
}

// restart does what a node does after it was down: its lease clock goes on where it stopped.
func restart(t testing.TB, m *fsmtest.Memory) {
	t.Helper()
	m.Set(func(m *fsmtest.Memory) {
		m.Registry = need.Got(registry.Thaw(m.Registry.Freeze()))(t)
		m.Registry.Doubt()
	})
}

// ORDERS/dead and ORDERS/canceled are at both nodes when b goes down. Then one is evicted at a, and the other
// canceled; b comes back after a time when its own clock stood still.
func afterTheDead(t *testing.T, forgotten bool) (a, b *site) {
	a, b = twoNodes(t)
	registerAll(t, a, 1, "dead", "canceled", "alive")
	a.deliverChanges(t, 0)
	equal(t, a, b)
	b.Pass(10 * time.Second)
	cancelAll(t, a, "canceled")
	for range 4 {
		a.Pass(30 * time.Second)
		a.Perform(t, registry.Renew{Key: ordersID("alive"), LastDirty: 1})
	}
	a.Evict()
	if forgotten { // the records of both are pruned
		for range 100 {
			a.Pass(25 * time.Minute)
			a.Perform(t, registry.Renew{Key: ordersID("alive"), LastDirty: 1})
		}
	}
	a.without(t, "dead")
	a.without(t, "canceled")
	restart(t, b.Memory)
	return a, b
}

func TestNodeThatWasDownDropsTheDeadWithItsCopy(t *testing.T) {
	a, b := afterTheDead(t, false)
	need.OK(t, b.Copy(context.Background(), copyWait))
	b.without(t, "dead")
	b.without(t, "canceled")
	b.lease(t, "alive")
	b.deliverChanges(t, 0)
	equal(t, a, b)
}

func TestNodeThatWasDownBringsNoInstanceBackElsewhere(t *testing.T) {
	for name, forgotten := range map[string]bool{"with records of the removals": false, "after they were pruned": true} {
		t.Run(name, func(t *testing.T) {
			a, b := afterTheDead(t, forgotten)
			b.Pass(20 * time.Second) // what has settled is compared
			b.compareAndRepair(t)
			a.without(t, "dead")
			a.without(t, "canceled")
			if !forgotten {
				b.without(t, "dead")
				b.without(t, "canceled")
			}
			b.lease(t, "alive")
			a.lease(t, "alive")
		})
	}
}

// compareAndRepair runs a site's comparison with its one peer.
func (s *site) compareAndRepair(t testing.TB) {
	t.Helper()
	_, tasks, err := s.only().Compare(context.Background(), true)
	need.OK(t, err)
	s.deliver(t, tasks...)
}

func TestSenderThatWasNeverHeardCannotBeForgotten(t *testing.T) {
	_, b := twoNodes(t)
	for _, e := range []struct {
		sender string
		want   error
		says   string
	}{
		{"n9", ErrUnknownSender, `no such sender: nothing was heard from "n9"`},
		{"", ErrMalformed, "1 to 255 bytes"},
		{strings.Repeat("n", 256), ErrMalformed, "1 to 255 bytes"},
		{"n9\n", ErrMalformed, "control characters"},
	} {
		err := b.Forget(context.Background(), e.sender, registry.Act{})
		expect.That(t, errors.Is(err, e.want) && strings.Contains(err.Error(), e.says), "%.20q: got %v, want %v that says %q", e.sender, err, e.want, e.says)
	}
}

// The records of senders are bounded, whatever names a message makes up.
func TestSenderClockRecordsAreBounded(t *testing.T) {
	a, b := twoNodes(t)
	head := a.only().head()
	for n := range maxClockRecords + 500 {
		for _, clock := range []int64{1_000_000, 1} {
			head.Sender, head.Clock = fmt.Sprint("made-up-", n), clock
			need.Got(b.Receive(context.Background(), write(head)))(t)
		}
		b.Pass(time.Millisecond)
	}
	n := len(b.clockRecords.of)
	expect.That(t, n <= maxClockRecords, "%d senders' messages are counted, want at most %d", n, maxClockRecords)
	found := b.clockRecords.get(senderName{"", head.Sender})
	expect.That(t, found.lates == 1, "the last sender: %+v, want one late message", found)
}

// Links are kept for peers, which the configuration names; a node could make up endless others.
func TestContactsWithStrangersAreNotRecordedAndTheReplySaysSo(t *testing.T) {
	_, b := twoNodes(t)
	b.become(t, "dc1", "n2", false, link.PeerConfig{Name: "a", Kind: link.Node, URLs: []string{"http://a"}}, link.PeerConfig{Name: "dc2", Kind: link.Datacenter, URLs: []string{"http://c"}})
	for round := range 3 {
		heard := map[string]int64{"dc1": 5, "dc2": 500}
		for n := range 900 {
			heard[fmt.Sprintf("made-up-%d-%03d", round, n)] = 5
		}
		got, err := b.Receive(context.Background(), write(Head{
			Datacenter: "dc1", Node: "n9", Sender: "s", Clock: int64(round+1) * contactEvery, Heard: heard,
		}))
		var a Reply
		if err == nil {
			err = Decode(got, &a)
		}
		want := fmt.Sprintf("900 datacenters that are no peers of this node is not noted: made-up-%d-000, ", round)
		expect.That(t, err == nil && strings.Contains(a.Ignored, want) && len(a.Ignored) <= 500,
			"replied %q, %v, want a short text with %q", a.Ignored, err, want)
	}
	_, ok := b.Newest().Link("dc2")
	expect.That(t, ok, "what was overheard of a peer is not noted")
	links := b.Registry.Freeze().Links
	expect.That(t, len(links) == 1, "%d links are kept, want that of the peer only", len(links))
}

// The clock of a sender that goes on with an older copy of its data went back.
func TestSenderThatWasRestoredIsHeardAtOnce(t *testing.T) {
	for name, from := range map[string]func(testing.TB) (a, b *site){"a node": twoNodes, "a cluster": twoDatacenters} {
		t.Run(name, func(t *testing.T) {
			a, b := from(t)
			copied := a.Registry.Freeze()
			a.Pass(2 * time.Hour)
			b.Pass(2 * time.Hour)
			registerAll(t, a, 1, "before")
			a.deliverChanges(t, 0)
			a.Set(func(m *fsmtest.Memory) {
				restored := need.Got(registry.Thaw(copied))(t)
				m.Registry, m.Passed = restored, 0
			})
			a.side.Incarnation.Draw() // its process began anew
			registerAll(t, a, 1, "after")
			a.deliverChanges(t, 0)
			b.lease(t, "after")
			both(a, b, 20*time.Second)
			l, ok := b.Newest().Link("dc1")
			expect.That(t, !ok || b.Clock()-l.LastContact <= 60_000, "the link is as old as %d ms", b.Clock()-l.LastContact)
		})
	}
}

// Whoever could speak in the name of another server could end the instances of its clients. An operator can free the
// name.
func TestMessageOfAnotherPrincipalInASendersNameIsRefused(t *testing.T) {
	for name, from := range map[string]func(testing.TB) (a, b *site){"a node": twoNodes, "a cluster": twoDatacenters} {
		t.Run(name, func(t *testing.T) {
			a, b := from(t)
			head := a.only().head()
			send := func(principal string, mode access.Mode, want error) {
				t.Helper()
				head.Clock++
				ctx := access.Judged(access.As(context.Background(), access.Sender{Name: principal}), judging(mode, true, nil, nil))
				need.ErrorIs(t, expect.Err(b.Receive(ctx, write(head))), want, "a message of %q:", principal)
			}
			send("first", access.On, nil)
			send("first", access.On, nil)
			send("second", access.On, ErrOtherPrincipal)
			expect.Equal(t, b.Senders()[0].Principal, "first", "the name belongs to")
			head.Incarnation++
			send("second", access.On, ErrOtherPrincipal)
			send("second", access.LogOnly, nil) // nothing is refused in mode log-only
			send("", access.LogOnly, nil)
			send("first", access.On, nil)

			need.OK(t, b.Forget(context.Background(), head.Sender, registry.Act{}))
			send("second", access.On, nil)
			send("first", access.On, ErrOtherPrincipal)
		})
	}
}
