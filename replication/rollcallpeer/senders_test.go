package rollcallpeer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/link"
	"github.com/seed-20419f34/rollcall/replication/wire"
)

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
