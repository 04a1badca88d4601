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
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/link"
	"github.com/seed-20419f34/rollcall/replication/peertest"
	"github.com/seed-20419f34/rollcall/replication/wire"
)

// copyWait is for how long the nodes of the tests wait for another one.
const copyWait = 3 * time.Second

// starting is a node of dc1 that has just started, beside others at these URLs.
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

// running is a node of dc1 with something in it.
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
	node.Set(func(m *registrytest.Memory) {
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
	busy.Set(func(m *registrytest.Memory) { m.Reported.Ready = false })
	stranger.failWith(peertest.RespondWith(403, "not a peer"))
	registerAll(t, old, 1, "more")
	node := starting(t, closed(), busy.server.URL, stranger.server.URL, old.server.URL)
	need.OK(t, node.Copy(context.Background(), copyWait))
	node.lease(t, "more")
}

// A node that becomes ready while another one looks for it is copied.
func TestCopyWaitsForANode(t *testing.T) {
	old := running(t, "n1")
	old.Set(func(m *registrytest.Memory) { m.Reported.Ready = false })
	node := starting(t, old.server.URL)
	copied := make(chan error)
	go func() { copied <- node.Copy(context.Background(), copyWait) }()
	peertest.Eventually(t, "it asks twice", func() bool { return len(old.received(statePath)) >= 2 })
	old.Set(func(m *registrytest.Memory) { m.Reported.Ready = true })
	need.OK(t, <-copied)
	equal(t, old, node)
}

// breaking serves a state that breaks so many times.
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

// frames are the pieces of a state.
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
		var head wire.State
		expect.OK(t, wire.ReadFrame(bytes.NewReader(all[0]), &head))
		head.Items += 2
		bad := wire.ItemOf(codec.Newest, registry.Replica{Instance: peertest.Instance("ORDERS", "bad", 1)})
		act := wire.ItemOf(codec.Newest, registry.SelfPreservation{To: registry.PreservationHeld, For: 1000, By: registry.Act{Author: "ann"}})
		all[0] = wire.AppendFrame(nil, codec.Newest, &head)
		w.Write(bytes.Join(slices.Insert(all, 2, wire.AppendFrame(nil, codec.Newest, &bad), wire.AppendFrame(nil, codec.Newest, &act)), nil))
	})
	node := starting(t, old.server.URL)
	need.OK(t, node.Copy(context.Background(), copyWait))
	expect.Equal(t, len(old.received(statePath)), 1, "tries:")
	equal(t, old, node)
	expect.Equal(t, node.Newest().Preservation().State, registry.PreservationOff, "self-preservation is")
}

func TestStateIsNotGivenByANodeThatHasNone(t *testing.T) {
	old := running(t, "n1")
	old.Set(func(m *registrytest.Memory) { m.Reported.Ready = false })
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

// FuzzState: whatever comes is refused or taken over.
func FuzzState(f *testing.F) {
	old := running(f, "n1")
	var state bytes.Buffer
	need.OK(f, old.State(context.Background(), "dc1", &state))
	f.Add(state.Bytes())
	node := starting(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		tr := &transfer{Receiver: node.Receiver, from: "n1", frames: bufio.NewReader(bytes.NewReader(text)), started: time.Now()}
		err := tr.run(context.Background())
		if err != nil && !errors.Is(err, wire.ErrMalformed) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, errSelf) {
			t.Fatal(err)
		}
	})
}
