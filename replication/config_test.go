package replication

import (
	"cmp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/batcher"
	"github.com/seed-20419f34/rollcall/replication/link"
	"github.com/seed-20419f34/rollcall/replication/peertest"
)

func validConfig() Config {
	return Config{Side: link.Side{
		Service: fsmtest.New(), Datacenter: "dc1", Node: "n1",
		Sender: func() string { return "dc1" },
	}}
}

func TestNewReportsEveryMistakeAtOnce(t *testing.T) {
	c := Config{Side: link.Side{
		Datacenter: "dc1", Consensus: true,
		Peers: []link.PeerConfig{
			{Name: "dc2", Kind: link.Datacenter, URLs: []string{"http://a:1", "ftp://b:1"}},
			{Name: "dc2", Kind: link.Datacenter, URLs: []string{"a:1/"}},
			{Name: "n2", Kind: link.Node, URLs: []string{"http://a:1/"}},
			{Kind: link.Eureka, URLs: []string{"http://a:1/eureka", "http://b:1/eureka"}},
			{Name: "dc1", Kind: link.Datacenter, Single: true},
		},
	}}
	_, err := New(c)
	need.That(t, err != nil, "accepted")
	for _, want := range []string{
		"no Service is given", "this node must have a name (Node)", "no Sender is given",
		`peer dc2: URL "ftp://b:1" must be absolute`, "peer dc2: another peer has this name",
		"peer n2: the nodes of a datacenter with consensus do not replicate to each other",
		`peer n2: URL "http://a:1/" must have no slash at its end`,
		"peer number 4: Name is missing", "peer number 4: it has 2 URLs: each Eureka server is a peer of its own",
		"peer dc1: it has the name of this datacenter", "peer dc1: Single is for Eureka servers only", "peer dc1: URLs is empty",
	} {
		expect.That(t, strings.Contains(err.Error(), want), "does not say %q:\n%v", want, err)
	}
}

func TestConfigMistakesDoNotShowPasswords(t *testing.T) {
	for _, u := range []string{"ftp://user:secret@a:1", "http://user:secret@a:1/", "http://user:secret@a:b"} {
		c := validConfig()
		c.Peers = []link.PeerConfig{{Name: "dc2", Kind: link.Datacenter, URLs: []string{u}}}
		_, err := New(c)
		expect.That(t, err != nil && !strings.Contains(err.Error(), "secret"), "%s: got %v", u, err)
	}
}

func TestConfigZeroNumbersAreDefaults(t *testing.T) {
	c := validConfig()
	c.Peers = []link.PeerConfig{{Name: "dc2", Kind: link.Datacenter, URLs: []string{"http://a:1"}, Flow: link.Flow{Queue: 7}}}
	got := c.withDefaults()
	p := got.Peers[0]
	expect.That(t, got.Digest == time.Minute && got.CopyWait == 3*time.Second && p.BatchSize == 250 && p.BatchDelay == 500*time.Millisecond && p.Queue == 7 && p.Workers == 20 && p.CongestionDelay == time.Second && p.NetworkDelay == 100*time.Millisecond && p.MaxDelay == 30*time.Second && p.Expiry == 30*time.Second && p.ConnectTimeout == time.Second && p.ReadTimeout == 5*time.Second, "got %+v", got)
	expect.That(t, c.Peers[0].BatchSize == 0, "the caller's configuration was changed")
}

func TestCutPolicySparesRemoteLeases(t *testing.T) {
	keep, keepFor, expire := CutPolicy{Keep: true}, CutPolicy{Keep: true, For: time.Hour}, CutPolicy{}
	for _, tt := range []struct {
		name   string
		policy CutPolicy
		kind   link.Kind
		dc     string
		heard  time.Duration
		never  bool
		fails  bool // what is sent to it fails
		want   bool
	}{
		{name: "heard just now", policy: keep, kind: link.Datacenter, heard: 15 * time.Second},
		{name: "cut", policy: keep, kind: link.Datacenter, heard: 15*time.Second + 1, want: true},
		{name: "cut for long", policy: keep, kind: link.Datacenter, heard: 1000 * time.Hour, want: true},
		{name: "never heard", policy: keep, kind: link.Datacenter, never: true, want: true},
		{name: "cut for less than it is kept", policy: keepFor, kind: link.Datacenter, heard: time.Hour, want: true},
		{name: "cut for longer than it is kept", policy: keepFor, kind: link.Datacenter, heard: time.Hour + 1},
		{name: "kept for a time from a contact that never was", policy: keepFor, kind: link.Datacenter, never: true},
		{name: "left to expire", policy: expire, kind: link.Datacenter, heard: time.Hour},
		{name: "a datacenter that is no peer", policy: keep, kind: link.Datacenter, dc: "dc9", heard: time.Hour},
		{name: "a node is no datacenter", policy: keep, kind: link.Node, heard: time.Hour},
		{name: "a Eureka server that takes what is sent", policy: keep, kind: link.Eureka, heard: time.Hour},
		{name: "a Eureka server that does not", policy: keep, kind: link.Eureka, heard: time.Hour, fails: true, want: true},
		{name: "a Eureka server within its time", policy: keep, kind: link.Eureka, heard: 90 * time.Second, fails: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := validConfig()
			decideOnCut(c.Service.(*fsmtest.Memory), map[string]CutPolicy{"dc2": tt.policy})
			c.Peers = []link.PeerConfig{{Name: "dc2", Kind: tt.kind, URLs: []string{"http://a:1"}}}
			r := need.Got(newReplicator(c, func(env link.Env) link.Link { return fakeLink{env, newFakePeer()} }))(t)
			if tt.fails {
				r.present()[0].failed(errRefused)
			}
			expect.Equal(t, r.Spares(cmp.Or(tt.dc, "dc2"), tt.heard, !tt.never), tt.want, "got")
		})
	}
}

// decideOnCut gives the cluster policies, as its leader does.
func decideOnCut(m *fsmtest.Memory, policies map[string]CutPolicy) {
	s := registry.DefaultSettings()
	s.OnCut = OnCut(policies)
	m.Set(func(m *fsmtest.Memory) { m.Registry.Configure(s) })
}

func TestCutPoliciesHaveOneTextInTheState(t *testing.T) {
	policies := map[string]CutPolicy{"old": {}, "dc3": {Keep: true}, "dc2": {Keep: true, For: time.Hour}}
	need.Equal(t, OnCut(policies), "dc2=keep-for:1h0m0s,old=expire", "got")
	m := fsmtest.New()
	decideOnCut(m, policies)
	policies["dc9"] = CutPolicy{Keep: true} // nothing is said about dc9
	for name, want := range policies {
		expect.Equal(t, policyOf(m.Newest(), name), want, "%s: got", name)
	}
	s := registry.DefaultSettings()
	s.OnCut = "dc2=forget,dc3"
	m.Registry.Configure(s)
	for _, name := range []string{"dc2", "dc3", ""} {
		expect.Equal(t, policyOf(m.Newest(), name), CutPolicy{Keep: true}, "%s, of which nothing that is understood is said: got", name)
	}
}

func TestCutOfALinkIsByKind(t *testing.T) {
	c := validConfig()
	c.Peers = []link.PeerConfig{
		{Name: "dc2", Kind: link.Datacenter, URLs: []string{"http://a:1"}},
		{Name: "old", Kind: link.Eureka, URLs: []string{"http://b:1/eureka"}},
	}
	r := need.Got(newReplicator(c, func(env link.Env) link.Link { return fakeLink{env, newFakePeer()} }))(t)
	for dc, want := range map[string]time.Duration{"dc2": 15 * time.Second, "old": 90 * time.Second, "eureka": 90 * time.Second} {
		expect.Equal(t, r.Cut(dc), want, "%s: got", dc)
	}
}

func TestAgeComesFromTheLongestSilentNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fsmtest.New()
		m.Perform(t, registers(0, 1)...)
		fars := map[string]*fakePeer{"n2": newFakePeer(), "n3": newFakePeer(), "dc2": newFakePeer()}
		fars["n3"].fail(batcher.TransientError)
		fars["dc2"].fail(batcher.TransientError)
		n2, n3 := datacenter("n2"), datacenter("n3")
		n2.Kind, n3.Kind = link.Node, link.Node
		elapse(time.Minute)
		r := replicateAs(t, Config{Side: link.Side{Service: m}}, fars, n2, n3, datacenter("dc2"))
		defer r.stop()
		elapse(10 * time.Second)
		expect.Equal(t, r.Age(), 10*time.Second, "since the start, in which n3 was not reached: got")
		fars["n3"].fail(batcher.Success)
		for range 3 {
			m.Perform(t, registry.Renew{Key: ordersKey(0)})
			elapse(2 * time.Second)
		}
		got := r.Age()
		expect.That(t, got <= 2*time.Second, "got %v, though every node was reached 2 s ago", got)
	})
}

func TestStatusShowsWhatComesIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fsmtest.New()
		m.Perform(t, registers(0, 1)...)
		applyAs(t, m, registry.Origin{Kind: registry.RemoteDC, DC: "dc2"},
			registry.Contact{DC: "dc2", Cut: 15000},
			registry.Replica{Instance: peertest.Instance("BILLING", "b-1", 1), Life: 1},
			registry.Replica{Instance: peertest.Instance("BILLING", "b-2", 1), Life: 1})
		f := newFakePeer()
		r := replicate(t, m, map[string]*fakePeer{"dc2": f, "dc3": newFakePeer()}, datacenter("dc2"), datacenter("dc3"))
		defer r.stop()
		decideOnCut(m, map[string]CutPolicy{"dc3": {}})
		m.Pass(10 * time.Minute)
		in := r.Status()[0].Incoming
		expect.That(t, in != nil && in.Instances == 2 && in.Kept == 2 && in.Cut && in.OnCut == "keep" && in.HeardMS != nil && *in.HeardMS >= 600_000,
			"got %+v, want 2 instances, both kept in a cut of 10 minutes", in)
		if in := r.Status()[1].Incoming; in == nil || in.Instances != 0 || in.HeardMS != nil || !in.Cut || in.OnCut != "expire" {
			t.Errorf("of a datacenter that was never heard: %+v", in)
		}
	})
}

func TestStatusOfANodeOfThisDatacenterHasNothingThatComesIn(t *testing.T) {
	c := validConfig()
	c.Peers = []link.PeerConfig{{Name: "n2", Kind: link.Node, URLs: []string{"http://a:1"}}}
	got := need.Got(New(c))(t).Status()
	expect.That(t, len(got) == 1 && got[0].Kind == "node" && got[0].Incoming == nil && got[0].AuthFile == "", "got %+v", got)
}

func TestSetPeersGoesOnAtTheCursorAndLeavesOthersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fsmtest.New()
		m.Perform(t, registers(0, 10)...)
		fars := map[string]*fakePeer{"dc2": newFakePeer(), "dc3": newFakePeer(), "dc4": newFakePeer()}
		dc2, dc3, dc4 := datacenter("dc2"), datacenter("dc3"), datacenter("dc4")
		r := replicate(t, m, fars, dc2, dc3)
		defer r.stop()
		elapse(3 * time.Second)
		wantSame(t, m, fars["dc2"])
		wantSame(t, m, fars["dc3"])
		before, runs := len(fars["dc2"].got().tasks), fars["dc3"].got().runs

		dc2.URLs = []string{"http://u:p@dc2:8761"}
		need.OK(t, r.SetPeers([]link.PeerConfig{dc2, dc3, dc4}))
		m.Perform(t, registers(10, 12)...)
		elapse(3 * time.Second)
		for _, far := range fars {
			wantSame(t, m, far)
		}
		expect.Equal(t, len(fars["dc2"].got().tasks)-before, 2, "tasks for the changed peer")
		expect.Equal(t, fars["dc3"].got().runs, runs, "links to the peer that is the same")
		expect.Equal(t, r.Status()[0].URL, dc2.URLs[0], "the changed peer's URL")

		need.OK(t, r.SetPeers([]link.PeerConfig{dc4}))
		elapse(time.Second)
		calls := fars["dc2"].got().calls + fars["dc3"].got().calls
		m.Perform(t, registers(12, 14)...)
		elapse(3 * time.Second)
		wantSame(t, m, fars["dc4"])
		expect.Equal(t, fars["dc2"].got().calls+fars["dc3"].got().calls, calls, "calls to peers that are gone")
		expect.Equal(t, r.only().Name, "dc4", "the peer")
		expect.That(t, r.config.Remote("dc2") == nil && r.config.Remote("dc4") != nil, "dc2 is a peer still, or dc4 none")

		dc2.URLs = nil
		expect.That(t, r.SetPeers([]link.PeerConfig{dc4, dc2}) != nil, "a peer without a URL")
		expect.Equal(t, r.only().Name, "dc4", "the peer after a mistake")
	})
}

func TestSetPeersKeepsHowLongAPeerWasSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fsmtest.New()
		node := link.PeerConfig{Name: "10.0.0.2:8761", Kind: link.Node, URLs: []string{"http://10.0.0.2:8761"}}
		r := replicateAs(t, Config{Side: link.Side{Service: m}}, map[string]*fakePeer{node.Name: newFakePeer()}, node)
		defer r.stop()
		elapse(time.Minute)
		before := r.Age()
		node.BatchSize = 9
		need.OK(t, r.SetPeers([]link.PeerConfig{node}))
		expect.Equal(t, r.Age(), before, "the age of what this node has")
	})
}

func TestMetricsGoOnOverFeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fsmtest.New()
		m.Perform(t, registers(0, 1)...)
		f := known(t, m, "dc2")
		reg := prometheus.NewPedanticRegistry()
		r := replicateAs(t, Config{Side: link.Side{Service: m, Consensus: true}, Metrics: reg}, map[string]*fakePeer{"dc2": f}, datacenter("dc2"))
		m.Perform(t, registers(1, 4)...)
		elapse(2 * time.Second)
		r.stop()
		r.start()
		f.fail(batcher.TransientError)
		elapse(time.Second)
		m.Perform(t, registers(4, 6)...)
		m.Perform(t, registry.Renew{Key: ordersKey(0)})
		elapse(3 * time.Second)
		defer r.stop()
		want := `
# HELP rollcall_replication_accepted_tasks_total Tasks that were queued.
# TYPE rollcall_replication_accepted_tasks_total counter
rollcall_replication_accepted_tasks_total{peer="dc2"} 6
# HELP rollcall_replication_failing 1 if the last transmission failed.
# TYPE rollcall_replication_failing gauge
rollcall_replication_failing{peer="dc2"} 1
# HELP rollcall_replication_lag_changes Changes that the peer does not know yet.
# TYPE rollcall_replication_lag_changes gauge
rollcall_replication_lag_changes{peer="dc2"} 2
# HELP rollcall_replication_lag_seconds Age of the oldest change that the peer does not know yet.
# TYPE rollcall_replication_lag_seconds gauge
rollcall_replication_lag_seconds{peer="dc2"} 3
# HELP rollcall_replication_sending 1 while this node sends to the peer.
# TYPE rollcall_replication_sending gauge
rollcall_replication_sending{peer="dc2"} 1
# HELP rollcall_replication_successful_executions_total Tasks that were transmitted.
# TYPE rollcall_replication_successful_executions_total counter
rollcall_replication_successful_executions_total{peer="dc2"} 3
`
		expect.OK(t, testutil.GatherAndCompare(reg, strings.NewReader(want), "rollcall_replication_accepted_tasks_total",
			"rollcall_replication_failing", "rollcall_replication_lag_changes", "rollcall_replication_lag_seconds",
			"rollcall_replication_sending", "rollcall_replication_successful_executions_total"))
		n, err := testutil.GatherAndCount(reg, "rollcall_replication_waiting_seconds")
		expect.That(t, n == 1 && err == nil, "%d histograms of the waiting time (%v), want 1", n, err)
	})
}

func TestCursorStaysBelowWhatWaits(t *testing.T) {
	c := newCursor(10, true)
	at, _ := c.reading()
	c.add(12, 0)
	c.add(15, 0)
	c.read(at, 20, 1, true)
	for _, step := range []struct {
		done, want registry.Index
	}{{15, 11}, {12, 20}} {
		c.done(step.done)
		expect.Equal(t, c.reached(), step.want, "with %d transmitted: at", step.done)
	}
}

func TestCursorCountsReadingOnlyWhenItHasCaughtUp(t *testing.T) {
	c := newCursor(10, true)
	at, _ := c.reading()
	c.read(at, 17, 1, false)
	expect.Equal(t, c.reached(), 10, "in the middle of the list: at")
	at, _ = c.reading()
	expect.That(t, at.upto == 17 && at.after == 10, "goes on at %d with what is after %d, want 17 and 10", at.upto, at.after)
	c.read(at, 30, 1, true)
	expect.Equal(t, c.reached(), 30, "at the end of the list: at")
}

func TestCursorGoesBackToBeforeWhatIsGivenUp(t *testing.T) {
	c := newCursor(10, true)
	at, _ := c.reading()
	c.add(12, 0)
	c.add(15, 0)
	c.read(at, 20, 7, true)
	at, _ = c.reading()
	c.giveUp(15)
	c.read(at, 30, 8, true) // was in flight
	at, _ = c.reading()
	expect.That(t, at.after == 14 && at.upto == 14 && at.clock == 0,
		"goes on at %d with what is after %d (clock %d), want 14, 14 and 0", at.upto, at.after, at.clock)
	expect.Equal(t, c.reached(), 11, "at")
	c.done(12)
	expect.Equal(t, c.reached(), 14, "at")
}

func TestCursorIsUnknownUntilARepairIsTransmitted(t *testing.T) {
	m := fsmtest.New()
	m.Perform(t, registry.Register{Instance: peertest.Instance("A", "1", 1)}, registry.Register{Instance: peertest.Instance("A", "2", 1)})
	m.Pass(time.Minute)
	m.Perform(t, registry.Register{Instance: peertest.Instance("A", "young", 1)}) // too young for a comparison
	c := newCursor(0, false)
	_, known := c.reading()
	need.That(t, !known, "known from the beginning")
	repair := func() {
		c.add(everything, 0)
		c.add(everything, 0)
		c.compared(m.Newest())
	}
	repair()
	if at, known := c.reading(); !known || at.after != 2 {
		t.Errorf("reads after %d (known %v), want 2", at.after, known)
	}
	c.done(everything)
	expect.Equal(t, c.reached(), 0, "with half of the repair transmitted: at")
	c.giveUp(everything)
	_, known = c.reading()
	expect.That(t, !known, "a part of the repair was given up, and the cursor is known")
	repair()
	c.done(everything)
	c.done(everything)
	expect.Equal(t, c.reached(), 2, "repaired: at")
}

// The test queues, merges, transmits and gives up tasks in any order. Below the cursor, no change may be waiting, or
// have to be read again.
func TestCursorNeverPassesWhatThePeerDoesNotKnow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCursor(5, true)
		newest := registry.Index(5)
		missing := map[registry.Index]bool{} // changes that the peer does not know
		var queued []registry.Index
		pick := func() (at registry.Index) {
			i := rapid.IntRange(0, len(queued)-1).Draw(t, "task")
			at = queued[i]
			queued = append(queued[:i], queued[i+1:]...)
			return at
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch action := rapid.IntRange(0, 3).Draw(t, "action"); {
			case action == 0:
				newest++
				missing[newest] = true
			case action == 1: // read up to some index
				at, _ := c.reading()
				if at.upto >= newest {
					break
				}
				upto := registry.Index(rapid.Uint64Range(uint64(at.upto)+1, uint64(newest)).Draw(t, "upto"))
				for i := at.upto + 1; i <= upto; i++ {
					if missing[i] {
						c.add(i, 0)
						queued = append(queued, i)
					}
				}
				c.read(at, upto, 0, upto == newest)
			case action == 2 && len(queued) > 0:
				at := pick()
				delete(missing, at)
				c.done(at)
			case action == 3 && len(queued) > 0:
				c.giveUp(pick())
			}
			for i := range missing {
				need.That(t, i > c.reached(), "the cursor is at %d, and %d was not transmitted", c.reached(), i)
			}
		}
	})
}
