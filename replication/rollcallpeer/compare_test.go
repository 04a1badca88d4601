package rollcallpeer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/link"
	"github.com/seed-20419f34/rollcall/replication/peertest"
)

// ageChanges lets changes become old enough to be compared.
func ageChanges(a, b *site) { both(a, b, 11*time.Second) }

func (s *site) diff(t testing.TB, repair bool) (api.PeerDiff, []link.Task) {
	t.Helper()
	d, tasks, err := s.only().Compare(context.Background(), repair)
	need.OK(t, err)
	return d, tasks
}

// repair compares, and sends what is lacking.
func (s *site) repair(t testing.TB) {
	t.Helper()
	_, tasks := s.diff(t, true)
	s.deliver(t, tasks...)
}

func wantDiff(t testing.TB, got api.PeerDiff, missing, extra int, want ...string) {
	t.Helper()
	var all []string
	for _, i := range got.Items {
		all = append(all, i.ID+" "+i.What)
	}
	slices.Sort(all)
	slices.Sort(want)
	expect.That(t, slices.Equal(all, want) && got.Missing == missing && got.Extra == extra && got.Apps == min(len(want), 1),
		"got %q in %d applications, missing %d, extra %d; want %q, %d and %d", all, got.Apps, got.Missing, got.Extra, want, missing, extra)
}

func registerAll(t testing.TB, s *site, dirty int64, ids ...string) {
	t.Helper()
	for _, id := range ids {
		s.Perform(t, registry.Register{Instance: peertest.Instance("ORDERS", id, dirty)})
	}
}

func cancelAll(t testing.TB, s *site, ids ...string) {
	t.Helper()
	for _, id := range ids {
		s.Perform(t, registry.Cancel{Key: ordersID(id)})
	}
}

// dropRecords prunes all records of removals.
func dropRecords(t testing.TB, s *site) {
	t.Helper()
	s.Set(func(m *fsmtest.Memory) {
		frozen := m.Registry.Freeze()
		for _, rec := range frozen.Removals {
			frozen.Pruned = rec.Lease.Changed
		}
		frozen.Removals = nil
		pruned := need.Got(registry.Thaw(frozen))(t)
		m.Registry = pruned
	})
}

// Each datacenter repairs what is its own, whatever its records still say.
func TestCompareRepairsADatacentersOwnInstances(t *testing.T) {
	a, b := twoDatacenters(t)
	both(a, b, 10*time.Minute) // a young leadership concludes nothing from an absence
	registerAll(t, a, 1, "same", "older", "overridden", "newer", "canceled", "pruned", "kept")
	a.deliverChanges(t, 0)
	registerAll(t, b, 1, "theirs")
	b.deliverChanges(t, 0)
	b.Perform(t, registry.Renew{Key: ordersID("kept")}) // its client is there now
	cancelAll(t, a, "pruned", "kept")
	dropRecords(t, a)
	cancelAll(t, a, "canceled")
	registerAll(t, a, 1, "missing")
	registerAll(t, a, 5, "older")
	a.Perform(t, registry.SetOverride{Key: ordersID("overridden"), Status: registry.OutOfService})
	b.Perform(t, registry.SetOverride{Key: ordersID("newer"), Status: registry.OutOfService})
	ageChanges(a, b)

	d, tasks := a.diff(t, false)
	wantDiff(t, d, 3, 3, "missing missing", "older older", "overridden older", "newer newer", "canceled extra", "pruned extra", "kept extra")
	expect.That(t, len(tasks) == 0, "%d tasks without repair", len(tasks))
	d, _ = b.diff(t, false)
	wantDiff(t, d, 0, 0)

	a.repair(t)
	b.without(t, "canceled")
	b.without(t, "pruned")
	l := b.lease(t, "kept")
	expect.That(t, l.Owner == "", "owner %q of what was renewed by its client there", l.Owner)
	equal(t, a, b)
	ageChanges(a, b)
	d, _ = a.diff(t, true)
	wantDiff(t, d, 0, 0)
}

// A node may not have heard what another one in its datacenter sends.
func TestCompareByANodeAloneRemovesOnlyWhatWasCanceled(t *testing.T) {
	a, b := newSite(), newSite()
	a.become(t, "dc1", "n1", false, link.PeerConfig{Name: "dc2", Kind: link.Datacenter, URLs: []string{b.server.URL}})
	b.become(t, "dc2", "n4", true, link.PeerConfig{Name: "dc1", Kind: link.Datacenter, URLs: []string{a.server.URL}})
	registerAll(t, a, 1, "canceled", "pruned", "evicted")
	a.deliverChanges(t, 0)
	cancelAll(t, a, "pruned")
	dropRecords(t, a)
	cancelAll(t, a, "canceled")
	both(a, b, 95*time.Second)
	a.Evict()
	ageChanges(a, b) // it lasts slightly longer elsewhere
	d, _ := a.diff(t, false)
	wantDiff(t, d, 0, 3, "canceled extra", "pruned extra", "evicted extra")
	a.repair(t)
	b.without(t, "canceled")
	b.lease(t, "pruned")
	b.lease(t, "evicted")
}

func TestCompareMakesNodesEqual(t *testing.T) {
	a, b := twoNodes(t)
	registerAll(t, a, 1, "same", "older", "both", "tie", "canceled", "canceled there", "back", "evicted")
	a.deliverChanges(t, 0)
	registerAll(t, a, 1, "missing")
	registerAll(t, b, 1, "there")
	registerAll(t, a, 5, "older", "both")
	b.Perform(t, registry.Quarantine{Key: ordersID("both"), For: 600_000})
	tie := *peertest.Instance("ORDERS", "tie", 3)
	a.Perform(t, registry.Register{Instance: &tie})
	other := tie
	other.VIP = "other"
	b.Perform(t, registry.Register{Instance: &other})
	cancelAll(t, a, "canceled", "back")
	cancelAll(t, b, "canceled there")
	registerAll(t, b, 9, "back")
	ageChanges(a, b)

	d, tasks := a.diff(t, false)
	wantDiff(t, d, 5, 1, "missing missing", "older older", "both different", "tie different", "canceled extra", "canceled there missing", "there newer", "back newer")
	expect.That(t, len(tasks) == 0, "%d tasks without repair", len(tasks))
	a.repair(t)
	b.repair(t)
	for _, s := range []*site{a, b} {
		s.without(t, "canceled")
		s.without(t, "canceled there")
		l := s.lease(t, "both")
		expect.That(t, l.Quarantine != nil && l.Instance.LastDirty == 5, "got %+v of %+v, want both halves", l, l.Instance)
		l = s.lease(t, "back")
		expect.That(t, l.Instance.LastDirty == 9, "got %+v, want what came back", l.Instance)
	}
	equal(t, a, b)
	ageChanges(a, b)
	d, _ = a.diff(t, true)
	wantDiff(t, d, 0, 0)
}

// Every node ends leases on its own, so a peer that still hears the client is right.
func TestCompareBringsBackWhatANodeEvicted(t *testing.T) {
	a, b := twoNodes(t)
	registerAll(t, a, 1, "1")
	a.deliverChanges(t, 0)
	both(a, b, 50*time.Second)
	b.Perform(t, registry.Renew{Key: ordersID("1")})
	both(a, b, 50*time.Second)
	a.Evict()
	ageChanges(a, b)
	a.without(t, "1")
	a.repair(t)
	b.lease(t, "1")
	b.repair(t)
	a.lease(t, "1")
}

// An operator hides an instance, and its client leaves, while the other datacenter hears of neither and changes it:
// it comes back, hidden, at both.
func TestCompareRestoresAQuarantineFromAnotherDatacenter(t *testing.T) {
	a, b := twoDatacenters(t)
	registerAll(t, b, 1, "1")
	b.deliverChanges(t, 0)
	a.Perform(t, registry.UpdateMetadata{Key: ordersID("1"), Pairs: []registry.Pair{{Key: "a", Value: "1"}}})
	b.Perform(t, registry.Quarantine{Key: ordersID("1"), For: 600_000})
	cancelAll(t, b, "1")
	for range 2 {
		ageChanges(a, b)
		a.repair(t)
		b.repair(t)
	}
	equal(t, a, b)
	expect.That(t, a.lease(t, "1").Quarantine != nil, "the quarantine is lost")
}

// After a restore, each of two datacenters may take the other for the owner; the same can happen after a renewal that
// only one of them counts. Neither compares such an instance as its own.
func TestCompareGivesWhatEachDatacenterTakesForTheOthersToOne(t *testing.T) {
	for level, owner := range map[byte]string{1: "dc1", 2: "dc1", 3: ""} {
		a, b := twoDatacenters(t)
		take := func(s *site, from string, overrides ...registry.Status) {
			s.Set(func(m *fsmtest.Memory) { m.Registry.SetLevel(level) })
			for n, status := range overrides {
				need.Got(s.Apply(context.Background(), registry.Origin{Kind: registry.RemoteDC, DC: from}, registry.Replica{
					Instance: peertest.Instance("ORDERS", fmt.Sprint(n), 1), Life: 1, Edit: 1, Overridden: status, Permanent: n > 0,
				}))(t)
			}
		}
		take(a, "dc2", registry.Down, registry.OutOfService, registry.Down)
		take(b, "dc1", registry.OutOfService, registry.Down, registry.Down)
		ageChanges(a, b)
		_, tasks := b.diff(t, true)
		expect.That(t, len(tasks) == 0, "%d tasks of the other one, which would cede, too", len(tasks))
		d, tasks := a.diff(t, true)
		wantDiff(t, d, 2, 0, "0 different", "1 different")
		a.deliver(t, tasks...)
		ageChanges(a, b)
		b.repair(t)
		b.deliverChanges(t, 0)
		equal(t, a, b)
		for n := range 3 {
			here, there := a.lease(t, fmt.Sprint(n)).Owner, b.lease(t, fmt.Sprint(n)).Owner
			expect.That(t, here == "dc2" && there == owner, "level %d: %d belongs to %q and %q, want dc2 and %q", level, n, here, there, owner)
		}
		ageChanges(a, b)
		for _, s := range []*site{a, b} {
			d, tasks = s.diff(t, true)
			wantDiff(t, d, 0, 0)
			expect.That(t, (len(tasks) > 0) == (s == a && level < 3), "level %d: %d tasks of %s where nothing differs", level, len(tasks), s.side.Node)
		}
	}
}

func TestCompareFindsNoDifferenceInWhatIsOnItsWay(t *testing.T) {
	a, b := twoDatacenters(t)
	registerAll(t, a, 1, "1", "2")
	a.deliverChanges(t, 0)
	ageChanges(a, b)
	registerAll(t, a, 1, "3")
	registerAll(t, a, 2, "1")
	cancelAll(t, a, "2")
	d, _ := a.diff(t, true)
	wantDiff(t, d, 0, 0)
	ageChanges(a, b)
	d, _ = a.diff(t, true)
	wantDiff(t, d, 2, 1, "1 older", "2 extra", "3 missing")
}

// Differences are listed in parts, so that neither side holds more.
func TestCompareGetsLargeDifferencesInParts(t *testing.T) {
	a, b := twoDatacenters(t)
	const apps, each = 30, 1000
	var ops []registry.Op
	for app := range apps {
		for n := range each {
			ops = append(ops, registry.Register{Instance: peertest.Instance(fmt.Sprintf("APP-%02d", app), fmt.Sprint(n), 1)})
		}
	}
	a.Perform(t, ops...)
	need.Got(b.Apply(context.Background(), registry.Origin{Kind: registry.RemoteDC, DC: "dc1"}, ops...))(t)
	for app := range apps {
		a.Perform(t, registry.Cancel{Key: registry.Key{App: fmt.Sprintf("APP-%02d", app), ID: "7"}})
	}
	ageChanges(a, b)
	d, tasks := a.diff(t, true)
	expect.That(t, d.Apps == apps && d.Missing == 0 && d.Extra == apps && len(tasks) == apps,
		"got %d applications, missing %d, extra %d, %d tasks; want %d, 0, %d and %d", d.Apps, d.Missing, d.Extra, len(tasks), apps, apps, apps)
	n := len(b.received(digestPath))
	expect.That(t, n == 2, "%d questions, want 2", n)
}

func TestCompareNeverCutsAnApplication(t *testing.T) {
	a, b := twoDatacenters(t)
	var ops []registry.Op
	for n := range maxListed + 2 {
		ops = append(ops, registry.Register{Instance: peertest.Instance("ORDERS", fmt.Sprint(n), 1)})
	}
	a.Perform(t, ops...)
	need.Got(b.Apply(context.Background(), registry.Origin{Kind: registry.RemoteDC, DC: "dc1"}, ops[1:]...))(t)
	ageChanges(a, b)
	d, _ := a.diff(t, true)
	wantDiff(t, d, 1, 0, "0 missing")
}

// The listed differences are bounded, the numbers and the tasks are not.
func TestCompareListsABoundedNumberOfDifferences(t *testing.T) {
	a, b := twoDatacenters(t)
	var ops []registry.Op
	for n := range maxDiffItems + 5 {
		ops = append(ops, registry.Register{Instance: peertest.Instance("ORDERS", fmt.Sprint(n), 1)})
	}
	a.Perform(t, ops...)
	ageChanges(a, b)
	d, tasks := a.diff(t, true)
	expect.That(t, len(d.Items) == maxDiffItems && d.Missing == len(ops) && len(tasks) == len(ops),
		"got %d items, missing %d, %d tasks; want %d, and %d twice", len(d.Items), d.Missing, len(tasks), maxDiffItems, len(ops))
}

// Together the questions are about every application, each once.
func TestCompareAsksAboutEverythingOnce(t *testing.T) {
	a, _ := twoDatacenters(t)
	for _, count := range []int{0, 1, maxApps, maxApps + 1, 2*maxApps + 7} {
		digests := make(map[string]registry.Digest, count)
		var apps []string
		for n := range count {
			app := fmt.Sprintf("APP-%06d", n)
			apps = append(apps, app)
			digests[app] = registry.Digest{Count: 1}
		}
		asked, questions := 0, 0
		for after := ""; ; {
			q := a.only().question(apps, digests, after)
			questions++
			for app := range q.Apps {
				need.That(t, q.covers(app), "of %d: the question after %q names %q", count, after, app)
			}
			need.That(t, (q.covers("APP-000000x") || after != "") && (q.Until != "" || q.covers("ZZZ")), "of %d: the question after %q until %q leaves out what the asker has not", count, after, q.Until)
			asked += len(q.Apps)
			if after = q.Until; after == "" {
				break
			}
		}
		want := max(1, (count+maxApps-1)/maxApps)
		expect.That(t, asked == count && questions == want, "of %d applications %d were asked about in %d questions, want %d", count, asked, questions, want)
	}
}

func TestCompareFailsOnABadReply(t *testing.T) {
	a, b := twoDatacenters(t)
	registerAll(t, a, 1, "1")
	ageChanges(a, b)
	for _, c := range []struct {
		name string
		fail func(http.ResponseWriter, *http.Request) bool
		says string
	}{
		{"503", peertest.RespondWith(503, "no leader"), "no leader"},
		{"hangs", peertest.Hang, "no answer in time"},
		{"garbage", responds("<html>"), "the response to digests cannot be read"},
		{"more of nothing", responds(string(Encode(codec.Newest, &differences{More: true}))), "announces more"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "hangs" {
				patient := a.only().calls.peer
				defer func() { a.only().calls.peer = patient }()
				impatient(a)
			}
			b.failWith(c.fail)
			d, tasks, err := a.only().Compare(context.Background(), true)
			expect.That(t, err != nil && strings.Contains(err.Error(), c.says) && len(tasks) == 0 && d.Apps == 0,
				"got %v, %+v, %d tasks; want an error that says %q", err, d, len(tasks), c.says)
		})
	}
}

// A peer that replies with what was not asked must not keep the asker asking.
func TestCompareFailsOnAReplyThatIsNotAboutTheQuestion(t *testing.T) {
	a, b := twoDatacenters(t)
	asked := 0
	b.failWith(func(w http.ResponseWriter, r *http.Request) bool {
		asked++
		return responds(string(Encode(codec.Newest, &differences{Apps: map[string][]Copy{"ORDERS": nil}, More: true})))(w, r)
	})
	_, _, err := a.only().Compare(context.Background(), true)
	expect.That(t, err != nil && strings.Contains(err.Error(), "which the request did not") && asked == 2,
		"got %v after %d questions, want an error after 2", err, asked)
}

func TestCompareRefusesBadQuestions(t *testing.T) {
	_, b := twoDatacenters(t)
	n, _ := twoNodes(t)
	for _, c := range []struct {
		name string
		at   *site
		body []byte
		says string
	}{
		{"nothing", b, nil, "ends too early"},
		{"JSON", b, []byte(`{"version":2}`), "newer version"},
		{"no node", b, Encode(codec.Newest, &Digests{Datacenter: "dc1"}), "datacenter and node"},
		{"no owner", b, Encode(codec.Newest, &Digests{Datacenter: "dc1", Node: "n1"}), `owner must be "dc1"`},
		{"another owner", b, Encode(codec.Newest, &Digests{Datacenter: "dc1", Node: "n1", Owner: "dc2"}), `owner is "dc2"`},
		{"an owner between nodes", n, Encode(codec.Newest, &Digests{Datacenter: "dc1", Node: "n9", Owner: "dc1"}), "nothing from a node of the same one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := c.at.Compare(context.Background(), c.body)
			expect.That(t, errors.Is(err, ErrMalformed) && strings.Contains(err.Error(), c.says), "got %v, want ErrMalformed that says %q", err, c.says)
		})
	}
}

// FuzzDigests checks that any message is refused or gets a reply.
func FuzzDigests(f *testing.F) {
	_, b := twoDatacenters(f)
	registerAll(f, b, 1, "1")
	f.Add(Encode(codec.Newest, &Digests{Datacenter: "dc1", Node: "n1", Owner: "dc1", After: "A", Until: "Z", Apps: map[string]registry.Digest{"ORDERS": {Count: 1, Sum: 255}}}))
	f.Fuzz(func(t *testing.T, body []byte) {
		if _, err := b.Compare(context.Background(), body); err != nil && !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrStranger) {
			t.Fatal(err)
		}
	})
}
