package rollcallpeer

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/batcher"
	"github.com/seed-20419f34/rollcall/replication/link"
	"github.com/seed-20419f34/rollcall/replication/peertest"
)

// sender returns a datacenter whose peer has these URLs.
func sender(t testing.TB, urls ...string) *site {
	t.Helper()
	s := newSite()
	s.become(t, "dc1", "n1", true, link.PeerConfig{
		Name: "dc2", Kind: link.Datacenter, URLs: urls, Flow: link.Flow{ConnectTimeout: 20 * time.Second, ReadTimeout: 20 * time.Second},
	})
	s.Perform(t, registry.Register{Instance: peertest.Instance("ORDERS", "1", 1)})
	return s
}

// impatient makes a site wait one second for a connection and a response: a busy machine may need it, and a server
// that hangs uses it up.
func impatient(s *site) {
	s.only().calls.peer.ConnectTimeout, s.only().calls.peer.ReadTimeout = time.Second/2, time.Second/2
}

// receiver returns the datacenter to send to.
func receiver(t testing.TB) *site {
	t.Helper()
	s := newSite()
	s.become(t, "dc2", "n4", true, link.PeerConfig{Name: "dc1", Kind: link.Datacenter, URLs: []string{"http://127.0.0.1:1"}})
	return s
}

// closed returns a URL without a listener: no listener of another test is given such a port.
func closed() string { return "http://127.0.0.1:1" }

var aTask = link.Task{Key: ordersID("1"), Facts: link.Registered}

func responds(text string) func(http.ResponseWriter, *http.Request) bool {
	return peertest.RespondWith(http.StatusOK, text)
}

// replies makes a peer reply with these results.
func replies(results ...result) func(http.ResponseWriter, *http.Request) bool {
	return responds(string(Encode(codec.Newest, &Reply{Datacenter: "dc2", Node: "n4", Results: results})))
}

// write returns a message as it is sent.
func write(head Head, ops ...registry.Op) []byte {
	m := Message{Head: head}
	for _, op := range ops {
		m.Items = append(m.Items, ItemOf(codec.Newest, op))
	}
	return Encode(codec.Newest, &m)
}

func TestFaultsOfARollcallServer(t *testing.T) {
	far := receiver(t)
	for _, c := range []struct {
		name string
		fail func(http.ResponseWriter, *http.Request) bool
		want batcher.Result
		says string
	}{
		{"none", nil, batcher.Success, ""},
		{"503", peertest.RespondWith(503, "no leader"), batcher.Congestion, "503 Service Unavailable no leader"},
		{"hangs", peertest.Hang, batcher.Congestion, "no answer in time"},
		{"closes at once", peertest.Drop, batcher.TransientError, "EOF"},
		{"closes in the middle", peertest.CutOff, batcher.TransientError, "EOF"},
		{"400", peertest.RespondWith(400, "version 1 is not known here"), batcher.PermanentError, "version 1 is not known here"},
		{"not a peer there", peertest.RespondWith(403, "not a peer"), batcher.Congestion, "403 Forbidden not a peer"},
		{"unauthorized", peertest.RespondWith(401, ""), batcher.Congestion, "401"},
		{"a version without replication", peertest.RespondWith(404, ""), batcher.Congestion, "404"},
		{"no peers at all", peertest.RespondWith(501, "replicates nothing"), batcher.Congestion, "replicates nothing"},
		{"413", peertest.RespondWith(413, ""), batcher.PermanentError, "413"},
		{"500", peertest.RespondWith(500, ""), batcher.PermanentError, "500"},
		{"a redirect", peertest.RespondWith(302, ""), batcher.PermanentError, "302"},
		{"garbage", responds("<html>"), batcher.PermanentError, "the response cannot be read: malformed message"},
		{"too few results", replies(), batcher.PermanentError, "1 items were answered by 0 results"},
		{"too many results", replies(result{Status: 200}, result{Status: 200}), batcher.PermanentError, "answered by 2 results"},
		{"an item that is refused", replies(result{Status: 400, Error: "life 0"}), batcher.PermanentError, "register of ORDERS/1 was answered 400: life 0"},
		{"a status that does not exist", replies(result{Status: 299}), batcher.PermanentError, "answered 299"},
		{"an endless response", func(w http.ResponseWriter, r *http.Request) bool {
			chunk := bytes.Repeat([]byte(" "), 1<<20)
			for range maxMessage>>20 + 1 {
				w.Write(chunk)
			}
			return true
		}, batcher.PermanentError, "more than 8388608 bytes"},
		{"what is newer, but not valid", replies(result{Status: 409, Stored: ItemOf(codec.Newest, registry.Replica{Instance: peertest.Instance("ORDERS", "1", 2)})}), batcher.Success, ""},
		{"what was not asked for", replies(result{Status: 200, Stored: ItemOf(codec.Newest, registry.Renew{Key: ordersID("1"), Life: 1})}), batcher.Success, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			near := sender(t, far.server.URL)
			if c.name == "hangs" {
				impatient(near)
			}
			far.failWith(c.fail)
			expect.Equal(t, near.only().Process(context.Background(), aTask), c.want, "result")
			failures := fmt.Sprint(near.failed())
			expect.That(t, len(near.failed()) > 0 == (c.want != batcher.Success) && strings.Contains(failures, c.says),
				"failures %s, want one that says %q", failures, c.says)
		})
	}
}

func TestCallThatEndedIsTriedAgain(t *testing.T) {
	far := receiver(t)
	far.failWith(peertest.Hang)
	near := sender(t, far.server.URL)
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan batcher.Result)
	go func() { result <- near.only().Process(ctx, aTask) }()
	peertest.Eventually(t, "the call arrives", func() bool { return len(far.received(messagePath)) == 1 })
	cancel()
	expect.Equal(t, <-result, batcher.TransientError, "result")
}

func TestCallsFailOverAmongURLs(t *testing.T) {
	for _, c := range []struct {
		name  string
		first func(http.ResponseWriter, *http.Request) bool // nil for no listener
		calls int                                           // until it is there
	}{
		{"no listener", nil, 1},
		{"closes", peertest.Drop, 1},
		{"503", peertest.RespondWith(503, ""), 1},
		{"has another configuration", peertest.RespondWith(403, ""), 1},
		{"hangs", peertest.Hang, 2}, // one call has the time of one response
	} {
		t.Run(c.name, func(t *testing.T) {
			bad, far := receiver(t), receiver(t)
			bad.failWith(c.first)
			first := bad.server.URL
			if c.first == nil {
				first = closed()
			}
			near := sender(t, first, far.server.URL)
			if c.name == "hangs" {
				impatient(near)
			}
			got := batcher.TransientError
			for range c.calls {
				got = near.only().Process(context.Background(), aTask)
			}
			need.That(t, got == batcher.Success, "result %d after %d calls: %v", got, c.calls, near.failed())
			far.lease(t, "1")
			expect.Equal(t, near.only().URL(), far.server.URL, "in use is")
			before := len(bad.received(messagePath))
			near.deliver(t, aTask)
			expect.Equal(t, len(bad.received(messagePath)), before, "calls of the bad one:")
		})
	}
}

func TestCallsToBusyAndUnreachableNodesCountAsBusy(t *testing.T) {
	far := receiver(t)
	far.failWith(peertest.RespondWith(503, ""))
	expect.Equal(t, sender(t, closed(), far.server.URL, closed()).only().Process(context.Background(), aTask), batcher.Congestion, "result")
}

// Passwords are sent, and shown nowhere.
func TestCallsSendUserInfoAndDoNotShowIt(t *testing.T) {
	far := receiver(t)
	var user, password string
	far.failWith(func(_ http.ResponseWriter, r *http.Request) bool {
		user, password, _ = r.BasicAuth()
		return false
	})
	near := sender(t, strings.Replace(far.server.URL, "http://", "http://ann:secret@", 1))
	near.deliver(t, aTask)
	expect.That(t, user == "ann" && password == "secret", "sent %q and %q", user, password)
	far.server.Close()
	near.only().Process(context.Background(), aTask)
	shown := near.only().URL() + fmt.Sprint(near.failed())
	expect.That(t, len(near.failed()) != 0 && !strings.Contains(shown, "secret") && !strings.Contains(shown, "ann"), "shown: %s", shown)
}

func TestPartsOfTasksLackRemovedInstances(t *testing.T) {
	far := receiver(t)
	near := sender(t, far.server.URL)
	removed := ordersID("removed")
	for _, f := range []link.Facts{link.Registered, link.Overridden, link.Heartbeat} {
		near.deliver(t, link.Task{Key: removed, Facts: f})
	}
	expect.Equal(t, len(far.received(messagePath)), 0, "messages:")
	near.deliver(t, link.Task{Key: removed, Facts: link.Registered}, aTask)
	expect.Equal(t, len(far.received(messagePath)), 1, "messages:")
}

func TestFactsAreCountedWhenThePeerAcceptedThem(t *testing.T) {
	far := receiver(t)
	near := sender(t, far.server.URL)
	near.Perform(t, registry.Register{Instance: peertest.Instance("ORDERS", "2", 1)})
	remove := registry.Remove{Key: ordersID("3"), Kind: registry.Canceled, Life: 1}
	near.deliver(t, aTask, link.Task{Key: ordersID("2"), Facts: link.Overridden}, link.Task{Key: ordersID("3"), Facts: link.Canceled, Remove: remove})
	near.deliver(t, link.Task{Key: ordersID("1"), Facts: link.Heartbeat})
	for _, fact := range []string{"register", "override", "cancel", "heartbeat"} {
		expect.Equal(t, near.accepted(fact), 1, "%s accepted:", fact)
	}
}

func TestBatchThatIsLargeIsCut(t *testing.T) {
	far := receiver(t)
	near := sender(t, far.server.URL)
	var tasks []link.Task
	for n := range 9 {
		i := peertest.Instance("ORDERS", fmt.Sprint("big-", n), 1)
		i.HomePageURL = strings.Repeat("<", 1<<20)
		near.Perform(t, registry.Register{Instance: i})
		tasks = append(tasks, link.Task{Key: i.Key(), Facts: link.Registered})
	}
	near.deliver(t, tasks...)
	came := far.received(messagePath)
	for _, r := range came {
		expect.That(t, len(r.body) <= maxMessage, "a message of %d bytes", len(r.body))
	}
	n := far.Newest().Total()
	expect.That(t, len(came) == 2 && n == 9, "%d messages brought %d instances, want 2 and 9", len(came), n)
}

func TestMessagesAreCutWhereTheyGetTooLarge(t *testing.T) {
	const large = 1 << 20
	for _, c := range []struct {
		name  string
		sizes []int
		want  []int // items per message
	}{
		{"none", nil, nil},
		{"all fit", []int{large, large, large}, []int{3}},
		{"nine of a MiB", []int{large, large, large, large, large, large, large, large, large}, []int{7, 2}},
		{"one too large alone", []int{5, 9 * large, 5}, []int{1, 1, 1}},
		{"as many as a message has, and one", make([]int, maxItems+1), []int{maxItems, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var parts []part
			for _, size := range c.sizes {
				parts = append(parts, part{item: ItemOf(codec.Newest, registry.Remove{Owner: strings.Repeat("x", size)})})
			}
			var got []int
			for _, part := range cutParts(parts) {
				got = append(got, len(part))
				m := Message{Items: make([]Item, len(part))}
				for n := range part {
					m.Items[n] = part[n].item
				}
				size := len(Encode(codec.Newest, &m))
				expect.That(t, len(part) <= 1 || size <= maxMessage, "a message of %d bytes", size)
			}
			expect.Slice(t, got, c.want, "got")
		})
	}
}

// A link says at once that it is there, and then whenever nothing else was sent for a while.
func TestLinkIsKeptAlive(t *testing.T) {
	far := receiver(t)
	near := sender(t, far.server.URL)
	near.only().every = time.Hour
	stop := peertest.Run(t, near.only().Run)
	peertest.Eventually(t, "the far side hears of the link", func() bool {
		_, ok := far.Newest().Link("dc1")
		return ok
	})
	stop()
	near.only().every = 20 * time.Millisecond
	defer peertest.Run(t, near.only().Run)()
	peertest.Eventually(t, "another message", func() bool { return len(far.received(messagePath)) >= 2 })
	for _, r := range far.received(messagePath) {
		var m Message
		err := Decode(r.body, &m)
		expect.That(t, err == nil && len(m.Items) == 0, "got %+v, %v; want no items", m, err)
	}
}

func TestMessagesAreNumbered(t *testing.T) {
	far := receiver(t)
	near := sender(t, far.server.URL)
	for range 3 {
		near.deliver(t, aTask)
	}
	for n, r := range far.received(messagePath) {
		var m Message
		err := Decode(r.body, &m)
		expect.That(t, err == nil && m.Sequence == uint64(n+1) && m.Sender == "of n1" && m.Incarnation != 0 && m.Clock != 0,
			"message %d: got %+v, %v", n, m.Head, err)
	}
}

// Instances that come back while this side has no leader are sent again with their tasks.
func TestReturnedInstancesAreNotLost(t *testing.T) {
	a, b := twoDatacenters(t)
	b.Perform(t, registry.Register{Instance: peertest.Instance("ORDERS", "1", 9)})
	a.Perform(t, registry.Register{Instance: peertest.Instance("ORDERS", "1", 1)})
	a.Set(func(m *fsmtest.Memory) { m.ApplyErr = registry.ErrNoLeader })
	expect.Equal(t, a.only().Process(context.Background(), aTask), batcher.TransientError, "result")
	a.Set(func(m *fsmtest.Memory) { m.ApplyErr = nil })
	a.deliver(t, aTask)
	expect.Equal(t, a.lease(t, "1").Instance.LastDirty, 9, "timestamp:")
}

func TestPermanentInstanceIsSentToOtherDatacenters(t *testing.T) {
	a, b := twoDatacenters(t)
	web := registry.NewKey("WEB", "web-1")
	send := func(ops ...registry.Op) *registry.Lease {
		before := a.Newest().Index()
		a.Perform(t, ops...)
		a.deliverChanges(t, before)
		equal(t, a, b)
		l, _ := b.Newest().Find(web)
		return l
	}
	l := send(peertest.Web("web-1"), registry.SetOverride{Key: web, Status: registry.OutOfService})
	expect.That(t, l != nil && l.Permanent && l.Service == nil && l.Owner == "dc1" && l.Instance.Status == registry.OutOfService,
		"sent as %+v, want one of dc1 without a lease", l)
	l = send(registry.DeleteOverride{Key: web}, registry.SetCheck{Check: "check-web-1", Status: catalog.Critical})
	expect.That(t, l != nil && l.Instance.Status == registry.Down, "its check's state is not sent: %+v", l)
	both(a, b, 24*time.Hour)
	a.Evict()
	b.Evict()
	expect.That(t, a.Newest().Total() == 1 && b.Newest().Total() == 1, "after a day %d and %d are left, want it on both sides", a.Newest().Total(), b.Newest().Total())
	d, _, err := a.only().Compare(t.Context(), true)
	expect.That(t, err == nil && d.Apps == 0, "compared: %+v, %v; want no difference", d, err)
	l = send(registry.DeregisterCatalog{Service: "web-1"})
	expect.That(t, l == nil, "it is not removed there: %+v", l)
}
