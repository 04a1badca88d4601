package rollcallpeer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/link"
	"github.com/seed-20419f34/rollcall/replication/wire"
)

// A sender whose clock goes back and that begins no other incarnation, as one of Rollcall would, is late for as
// long as its clock needs to catch up, unless an operator has it forgotten.
func TestSenderWhoseClockWentBackIsShownAndHeardAfterItIsForgotten(t *testing.T) {
	for name, from := range map[string]func(testing.TB) (a, b *site){"a node": twoNodes, "a cluster": twoDatacenters} {
		t.Run(name, func(t *testing.T) {
			a, b := from(t)
			ctx := context.Background()
			head := a.only().head()
			send := func(clock int64, want error) {
				t.Helper()
				head.Clock = clock
				need.ErrorIs(t, expect.Err(b.Receive(ctx, write(head))), want, "a message of clock %d:", clock)
			}
			shown := func(want api.PeerSender) {
				t.Helper()
				want.Sender, want.Datacenter = head.Sender, head.Datacenter
				got := b.Senders()
				if len(got) == 1 && got[0].HeardMS > want.HeardMS { // the test takes time, too
					want.HeardMS = min(got[0].HeardMS, want.HeardMS+60_000)
				}
				expect.That(t, slices.Equal(got, []api.PeerSender{want}), "shown %+v, want %+v", got, want)
			}
			if got := b.Senders(); len(got) != 0 {
				t.Errorf("before the first message: %+v", got)
			}
			const hours = 3_600_000
			send(10*hours, nil)
			shown(api.PeerSender{})
			send(20*hours, ErrAhead)
			shown(api.PeerSender{Refused: 1})
			b.Pass(time.Second)
			send(hours, nil)
			send(hours+1, nil)
			shown(api.PeerSender{HeardMS: 1000, LateMS: 9*hours - 1, Late: 2, Refused: 1})
			need.OK(t, b.Forget(ctx, head.Sender, registry.Act{Author: "amy"}))
			if got := b.Senders(); len(got) != 0 {
				t.Errorf("forgotten: %+v", got)
			}
			send(hours+2, nil)
			shown(api.PeerSender{})
		})
	}
}

func TestSenderThatWasNeverHeardCannotBeForgotten(t *testing.T) {
	_, b := twoNodes(t)
	for _, e := range []struct {
		sender string
		want   error
		says   string
	}{
		{"n9", ErrUnknownSender, `no such sender: nothing was heard of "n9"`},
		{"", wire.ErrMalformed, "1 to 255 bytes"},
		{strings.Repeat("n", 256), wire.ErrMalformed, "1 to 255 bytes"},
		{"n9\n", wire.ErrMalformed, "control characters"},
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
	if n := len(b.clockRecords.of); n > maxClockRecords {
		t.Errorf("%d senders' messages are counted, want at most %d", n, maxClockRecords)
	}
	found := b.clockRecords.get(senderName{"", head.Sender})
	expect.That(t, found.lates == 1, "the last sender: %+v, want one late message", found)
}

// Links are kept of peers, which the configuration names; a node could make up others without end.
func TestContactsWithStrangersAreNotRecordedAndTheReplySaysSo(t *testing.T) {
	_, b := twoNodes(t)
	b.become(t, "dc1", "n2", false, link.PeerConfig{Name: "a", Kind: link.Node, URLs: []string{"http://a"}}, link.PeerConfig{Name: "dc2", Kind: link.Datacenter, URLs: []string{"http://c"}})
	for round := range 3 {
		heard := map[string]int64{"dc1": 5, "dc2": 500}
		for n := range 900 {
			heard[fmt.Sprintf("made-up-%d-%03d", round, n)] = 5
		}
		got, err := b.Receive(context.Background(), write(wire.Head{
			Datacenter: "dc1", Node: "n9", Sender: "s", Clock: int64(round+1) * contactEvery, Heard: heard,
		}))
		var a wire.Reply
		if err == nil {
			err = wire.Decode(got, &a)
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

// A message in another server's name says whatever it likes of its clock. The server itself is heard as before.
func TestSenderIsHeardAfterAMessageInItsName(t *testing.T) {
	tests := []struct {
		name  string
		forge func(*wire.Head)
		want  error // nil: it is taken
	}{
		{"a clock of 2^63-1", func(h *wire.Head) { h.Clock = 1<<63 - 1 }, wire.ErrMalformed},
		{"years ahead, of an incarnation of its own", func(h *wire.Head) { h.Clock, h.Incarnation = 9*365*24*3600*1000, 77 }, nil},
		{"years ahead, of the incarnation itself", func(h *wire.Head) { h.Clock = 9 * 365 * 24 * 3600 * 1000 }, ErrAhead},
		{"as far ahead as is believed", func(h *wire.Head) { h.Clock += 9 * 60 * 1000 }, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, b := twoNodes(t)
			registerAll(t, a, 1, "before")
			a.deliverChanges(t, 0)
			forged := a.only().head()
			tt.forge(&forged)
			need.ErrorIs(t, expect.Err(b.Receive(context.Background(), write(forged))), tt.want, "the forged message:")
			after := a.Newest().Index()
			a.only().send(context.Background(), codec.Newest, nil) // it may still count as late
			for range 3 {
				both(a, b, 20*time.Second)
				a.Perform(t, registry.Renew{Key: ordersID("before"), LastDirty: 1})
				a.deliver(t, link.Task{Key: ordersID("before"), Facts: link.Heartbeat})
			}
			b.Evict()
			b.lease(t, "before")
			registerAll(t, a, 1, "after")
			a.deliverChanges(t, after)
			b.lease(t, "after")
		})
	}
}

// A sender that goes on with an older copy of its data has a clock that went back.
func TestSenderThatWasRestoredIsHeardAtOnce(t *testing.T) {
	for name, from := range map[string]func(testing.TB) (a, b *site){"a node": twoNodes, "a cluster": twoDatacenters} {
		t.Run(name, func(t *testing.T) {
			a, b := from(t)
			copied := a.Registry.Freeze()
			a.Pass(2 * time.Hour)
			b.Pass(2 * time.Hour)
			registerAll(t, a, 1, "before")
			a.deliverChanges(t, 0)
			a.Set(func(m *registrytest.Memory) {
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

// Who could speak in the name of another server could make its clients' instances end. An operator can free the name.
func TestMessageOfAnotherPrincipalInASendersNameIsRefused(t *testing.T) {
	for name, from := range map[string]func(testing.TB) (a, b *site){"a node": twoNodes, "a cluster": twoDatacenters} {
		t.Run(name, func(t *testing.T) {
			a, b := from(t)
			head := a.only().head()
			send := func(principal string, mode access.Mode, want error) {
				t.Helper()
				head.Clock++
				ctx := access.Judged(access.As(context.Background(), access.Sender{Name: principal}), mode, func(access.Need) error { return nil })
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
