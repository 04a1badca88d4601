package replication

import (
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/setting"
	"github.com/seed-20419f34/rollcall/replication/batcher"
	"github.com/seed-20419f34/rollcall/replication/link"
	"github.com/seed-20419f34/rollcall/replication/peertest"
)

// eurekaSide is a registry of ours with a link to a Eureka server, without a dispatcher: a test hands over the tasks
// itself.
type eurekaSide struct {
	*fsmtest.Memory
	link *eurekaLink
	log  *strings.Builder

	mu        sync.Mutex
	submitted []link.Task
	sent      []string
	successes int
	failures  []string
	refused   []string // reasons, prefixed with the fact and the instance
	gaveUp    int
}

func newEurekaSide(t testing.TB, peer link.PeerConfig) *eurekaSide {
	s := &eurekaSide{Memory: fsmtest.New(), log: &strings.Builder{}}
	s.Memory.Registry.SetLevel(codec.Newest)
	setting.Fill(&peer.Flow)
	peer.Kind = link.Eureka
	if peer.Name == "" {
		peer.Name = "old"
	}
	side := link.Side{Service: s.Memory, Datacenter: "dc1", Node: "n1", HTTP: "127.0.0.1:8761", Log: slog.New(slog.NewTextHandler(s.log, nil))}
	side.Refusals = link.NewRefusals(nil, side.Log)
	s.link = newEurekaLink(link.Env{
		Side: side, Peer: peer,
		Submit:    func(t link.Task) { s.record(func() { s.submitted = append(s.submitted, t) }) },
		Sent:      func(fact string) { s.record(func() { s.sent = append(s.sent, fact) }) },
		Succeeded: func() { s.record(func() { s.successes++ }) },
		Failed:    func(err error) { s.record(func() { s.failures = append(s.failures, err.Error()) }) },
		GaveUp:    func() { s.record(func() { s.gaveUp++ }) },
		Refused: func(key registry.Key, fact, why string) {
			if why != "" {
				s.record(func() { s.refused = append(s.refused, fact+" "+key.String()+": "+why) })
			}
		},
		Origin: registry.Origin{Kind: registry.RemoteDC, DC: peer.Name},
	}).(*eurekaLink)
	t.Cleanup(s.link.client.CloseIdleConnections)
	return s
}

func (s *eurekaSide) record(what func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what()
}

// deliver transmits tasks, which must succeed, and those that the results ask for.
func (s *eurekaSide) deliver(t testing.TB, tasks ...link.Task) {
	t.Helper()
	for rounds := 0; len(tasks) > 0; rounds++ {
		need.That(t, rounds <= 20, "results ask for more and more tasks: %+v", tasks)
		need.Equal(t, s.link.ProcessBatch(t.Context(), tasks), batcher.Success, "transmission of %+v (failures %q): got", tasks, s.failures)
		tasks, s.submitted = s.submitted, nil
	}
}

// has checks one instance here: "-" if it does not exist, otherwise its status and override.
func (s *eurekaSide) has(t testing.TB, app, id, want string) {
	t.Helper()
	got := "-"
	if l, ok := s.Memory.Newest().Find(registry.NewKey(app, id)); ok {
		got = l.Instance.Status.String()
		if l.Instance.Overridden != registry.Unknown {
			got += " overridden " + l.Instance.Overridden.String()
		}
	}
	expect.Equal(t, got, want, "%s/%s here is", app, id)
}

func key(app, id string) registry.Key { return registry.NewKey(app, id) }

func register(i *registry.Instance) registry.Op { return registry.Register{Instance: i} }

func TestPartsOfATaskAreItemsThatAEurekaServerKnows(t *testing.T) {
	override := registry.SetOverride{Key: key("ORDERS", "i1"), Status: registry.OutOfService}
	down := peertest.Instance("ORDERS", "i1", 2000)
	down.Status = registry.Down
	hide := registry.Quarantine{Key: key("ORDERS", "i1"), For: 60_000}
	for _, c := range []struct {
		name string
		ops  []registry.Op // after a registration
		task link.Task
		want []string // action, status, override, dirty
	}{
		{"registered", nil, link.Task{Facts: link.Registered}, []string{"Register UP  1000"}},
		{"registered in a life that the server may not know", nil, link.Task{Facts: link.Registered, NewLife: true},
			[]string{"Register UP  1000", "DeleteStatusOverride UP  1000"}},
		{"registered anew, with an override", []registry.Op{override}, link.Task{Facts: link.Registered, NewLife: true},
			[]string{"Register OUT_OF_SERVICE  1000", "StatusUpdate OUT_OF_SERVICE  1000"}},
		{"registered and overridden", []registry.Op{override}, link.Task{Facts: link.Registered | link.Overridden},
			[]string{"Register OUT_OF_SERVICE  1000", "StatusUpdate OUT_OF_SERVICE  1000"}},
		{"down is stronger than the override", []registry.Op{override, register(down)}, link.Task{Facts: link.Registered | link.Overridden},
			[]string{"Register DOWN  2000", "StatusUpdate OUT_OF_SERVICE  2000", "Register DOWN  2000"}},
		{"overridden", []registry.Op{override}, link.Task{Facts: link.Overridden}, []string{"StatusUpdate OUT_OF_SERVICE  1000"}},
		{"an override deleted", []registry.Op{override, registry.DeleteOverride{Key: key("ORDERS", "i1"), LastDirty: 3000}},
			link.Task{Facts: link.Overridden}, []string{"DeleteStatusOverride UNKNOWN  3000"}},
		{"renewed", nil, link.Task{Facts: link.Heartbeat}, []string{"Heartbeat UP  1000"}},
		{"renewed under an override", []registry.Op{override}, link.Task{Facts: link.Heartbeat}, []string{"Heartbeat OUT_OF_SERVICE OUT_OF_SERVICE 1000"}},
		{"canceled", []registry.Op{registry.Cancel{Key: key("ORDERS", "i1")}}, link.Task{Facts: link.Canceled}, []string{"Cancel   0"}},
		{"removed, and its cancel is another task", []registry.Op{registry.Cancel{Key: key("ORDERS", "i1")}}, link.Task{Facts: link.Registered}, nil},
		{"registered above the server's timestamp", nil, link.Task{Facts: link.Registered, Tries: 1, Above: 4000}, []string{"Register UP  4001", "Heartbeat UP  4001"}},
		{"registered above the last timestamp", nil, link.Task{Facts: link.Registered, Tries: 1, Above: math.MaxInt64},
			[]string{"Register UP  9223372036854775807", "Heartbeat UP  9223372036854775807"}},
		{"registered in quarantine", []registry.Op{hide}, link.Task{Facts: link.Registered | link.Overridden}, []string{"Cancel   0"}},
		{"renewed in quarantine", []registry.Op{hide}, link.Task{Facts: link.Heartbeat}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := peertest.NewEureka(t)
			s := newEurekaSide(t, link.PeerConfig{URLs: []string{f.Service()}})
			s.Perform(t, append([]registry.Op{register(peertest.Instance("ORDERS", "i1", 1000))}, c.ops...)...)
			c.task.Key = key("orders", "i1")
			if got := s.link.Process(t.Context(), c.task); got != batcher.Success {
				t.Fatalf("result %d, failures %q", got, s.failures)
			}
			var got []string
			batches, _ := f.Received()
			for _, b := range batches {
				for _, i := range b.Items {
					got = append(got, strings.Join([]string{i.Action, i.Status, i.Overridden, formatDirty(i)}, " "))
				}
			}
			expect.Slice(t, got, c.want, "%+v was sent as", c.task)
		})
	}
}

func TestOverrideAtAEurekaServerFollowsOurs(t *testing.T) {
	f := peertest.NewEureka(t)
	s := newEurekaSide(t, link.PeerConfig{URLs: []string{f.Service()}})
	k := key("ORDERS", "i1")
	steps := []struct {
		name string
		op   registry.Op
		sent link.Facts
		want string
	}{
		{"registered", register(peertest.Instance("ORDERS", "i1", 1000)), link.Registered, "ORDERS/i1 UP 1000"},
		{"out of service", registry.SetOverride{Key: k, Status: registry.OutOfService}, link.Overridden, "ORDERS/i1 OUT_OF_SERVICE 1000 overridden OUT_OF_SERVICE"},
		{"registered again", register(peertest.Instance("ORDERS", "i1", 2000)), link.Registered, "ORDERS/i1 OUT_OF_SERVICE 2000 overridden OUT_OF_SERVICE"},
		{"deleted", registry.DeleteOverride{Key: k, Fallback: registry.Down, LastDirty: 2500}, link.Overridden, "ORDERS/i1 DOWN 2500"},
		{"up again", register(peertest.Instance("ORDERS", "i1", 3000)), link.Registered, "ORDERS/i1 UP 3000"},
		{"canceled", registry.Cancel{Key: k}, link.Canceled, ""},
	}
	for _, step := range steps {
		s.Perform(t, step.op)
		s.deliver(t, link.Task{Key: k, Facts: step.sent})
		need.Equal(t, f.Show(), step.want, "%s: the Eureka server has", step.name)
	}
	expect.Slice(t, s.sent, []string{"register", "override", "register", "override", "register", "cancel"}, "counted as sent:")
}

func TestResultOf404BringsTheWholeInstance(t *testing.T) {
	override := registry.SetOverride{Key: key("ORDERS", "i1"), Status: registry.OutOfService}
	for _, single := range []bool{false, true} {
		for _, c := range []struct {
			name string
			ops  []registry.Op
			fact link.Facts
			want string
		}{
			{"heartbeat", nil, link.Heartbeat, "ORDERS/i1 UP 1000"},
			{"heartbeat under an override", []registry.Op{override}, link.Heartbeat, "ORDERS/i1 OUT_OF_SERVICE 1000 overridden OUT_OF_SERVICE"},
			{"override set", []registry.Op{override}, link.Overridden, "ORDERS/i1 OUT_OF_SERVICE 1000 overridden OUT_OF_SERVICE"},
			{"override deleted", []registry.Op{override, registry.DeleteOverride{Key: key("ORDERS", "i1"), Fallback: registry.Up, LastDirty: 1000}}, link.Overridden, "ORDERS/i1 UP 1000"},
		} {
			t.Run(c.name+map[bool]string{true: " by single calls"}[single], func(t *testing.T) {
				f := peertest.NewEureka(t)
				s := newEurekaSide(t, link.PeerConfig{URLs: []string{f.Service()}, Single: single})
				s.Perform(t, append([]registry.Op{register(peertest.Instance("ORDERS", "i1", 1000))}, c.ops...)...)
				s.deliver(t, link.Task{Key: key("ORDERS", "i1"), Facts: c.fact})
				f.Has(t, c.want)
			})
		}
	}
}

func TestResultOf404IsFollowedAFewTimesOnly(t *testing.T) {
	f := peertest.NewEureka(t)
	s := newEurekaSide(t, link.PeerConfig{URLs: []string{f.Service()}})
	s.Perform(t, register(peertest.Instance("ORDERS", "i1", 1000)))
	calls := 0
	f.FailWith(func(w http.ResponseWriter, r *http.Request) bool {
		calls++
		more := ""
		if calls > 1 { // and a heartbeat
			more = `,{"statusCode":200}`
		}
		return peertest.RespondWith(200, `{"responseList":[{"statusCode":200},{"statusCode":404}`+more+`]}`)(w, r)
	})
	s.deliver(t, link.Task{Key: key("ORDERS", "i1"), Facts: link.Registered, NewLife: true})
	expect.Equal(t, calls, 1+link.MaxTries, "calls")
	expect.Slice(t, s.refused, []string{"override ORDERS/i1: DeleteStatusOverride was answered 404 Not Found"}, "refused")
}

// A change of metadata here makes the timestamp of a Eureka server newer than the client's. When an override is
// deleted, the server shows UNKNOWN until the client registers, with its own timestamp, which is then older.
func TestRegistrationAfterADeletedOverrideIsNewerThanTheServersOwn(t *testing.T) {
	for _, single := range []bool{false, true} {
		f := peertest.NewEureka(t)
		s := newEurekaSide(t, link.PeerConfig{URLs: []string{f.Service()}, Single: single})
		k := key("ORDERS", "i1")
		for _, step := range []struct {
			op   registry.Op
			sent link.Facts
			want string
		}{
			{register(peertest.Instance("ORDERS", "i1", 1000)), link.Registered, "ORDERS/i1 UP 1000"},
			{registry.UpdateMetadata{Key: k, Pairs: []registry.Pair{{Key: "zone", Value: "a"}}}, link.Registered, "ORDERS/i1 UP 1001"},
			{registry.SetOverride{Key: k, Status: registry.OutOfService}, link.Overridden, "ORDERS/i1 OUT_OF_SERVICE 1001 overridden OUT_OF_SERVICE"},
			{registry.DeleteOverride{Key: k, Fallback: registry.Unknown}, link.Overridden, "ORDERS/i1 UNKNOWN 1001"},
			{register(peertest.Instance("ORDERS", "i1", 1000)), link.Registered, "ORDERS/i1 UNKNOWN 1001"},
			{registry.Renew{Key: k, LastDirty: 1000}, link.Heartbeat, "ORDERS/i1 UP 1002"},
			{registry.Renew{Key: k, LastDirty: 1000}, link.Heartbeat, "ORDERS/i1 UP 1002"}, // it adopts the 409's
			{registry.Renew{Key: k, LastDirty: 1000}, link.Heartbeat, "ORDERS/i1 UP 1002"},
		} {
			s.Perform(t, step.op)
			s.deliver(t, link.Task{Key: k, Facts: step.sent})
			f.Has(t, step.want)
		}
		s.has(t, "ORDERS", "i1", "UP")
		expect.Equal(t, len(s.refused), 0, "refused: %v", s.refused)
		lease, _ := s.Newest().Find(k)
		expect.Equal(t, lease.Instance.LastDirty, 1002, "timestamp here")
	}
}

// A Eureka server keeps what a clock that was ahead has registered. It must not undo what a client has registered
// since.
func TestServerThatKeepsWhatAClientHasReplacedIsSentANewerOne(t *testing.T) {
	for _, single := range []bool{false, true} {
		f := peertest.NewEureka(t)
		s := newEurekaSide(t, link.PeerConfig{URLs: []string{f.Service()}, Single: single})
		k := key("ORDERS", "i1")
		dead := peertest.Instance("ORDERS", "i1", 5000)
		dead.Status = registry.Starting
		for _, step := range []struct {
			op   registry.Op
			sent link.Facts
			want string
		}{
			{register(dead), link.Registered, "ORDERS/i1 STARTING 5000"},
			{register(peertest.Instance("ORDERS", "i1", 1000)), link.Registered, "ORDERS/i1 STARTING 5000"},
			{registry.Renew{Key: k, LastDirty: 1000}, link.Heartbeat, "ORDERS/i1 UP 5001"},
			{registry.Renew{Key: k, LastDirty: 1000}, link.Heartbeat, "ORDERS/i1 UP 5001"}, // it adopts the 409's
			{registry.Renew{Key: k, LastDirty: 1000}, link.Heartbeat, "ORDERS/i1 UP 5001"},
		} {
			s.Perform(t, step.op)
			s.deliver(t, link.Task{Key: k, Facts: step.sent})
			f.Has(t, step.want)
			if step.sent == link.Heartbeat {
				s.has(t, "ORDERS", "i1", "UP")
			}
		}
		lease, _ := s.Newest().Find(k)
		expect.That(t, lease.Instance.LastDirty == 5001 && len(s.refused) == 0, "timestamp here %d, refused %v", lease.Instance.LastDirty, s.refused)
	}
}

func TestResultOf409RegistersTheNewerInstanceHere(t *testing.T) {
	for _, c := range []struct {
		name   string
		single bool
		hide   bool // the result of 409 does not show the instance
	}{{"batch", false, false}, {"batch without the instance", false, true}, {"single calls", true, false}} {
		t.Run(c.name, func(t *testing.T) {
			f := peertest.NewEureka(t)
			f.ClientCall(t, "POST", "/apps/ORDERS", peertest.ClientOf("ORDERS", "i1", 5000), 204)
			f.ClientCall(t, "PUT", "/apps/ORDERS/i1/status?value=OUT_OF_SERVICE", nil, 200)
			s := newEurekaSide(t, link.PeerConfig{URLs: []string{f.Service()}, Single: c.single})
			s.Perform(t, register(peertest.Instance("ORDERS", "i1", 1000)), registry.SetOverride{Key: key("ORDERS", "i1"), Status: registry.Down})
			if c.hide {
				f.FailWith(peertest.OnlyBatches(peertest.RespondWith(200, `{"responseList":[{"statusCode":409}]}`)))
			}
			s.deliver(t, link.Task{Key: key("ORDERS", "i1"), Facts: link.Heartbeat})
			s.has(t, "ORDERS", "i1", "OUT_OF_SERVICE overridden OUT_OF_SERVICE")
			l, _ := s.Memory.Newest().Find(key("ORDERS", "i1"))
			expect.That(t, l.Instance.LastDirty == 5000 && l.Owner == "old", "taken over: lastDirty %d, owner %q; want 5000, old", l.Instance.LastDirty, l.Owner)
		})
	}
}

func TestResultOf409WithoutANewerInstanceBringsOurs(t *testing.T) {
	for _, c := range []struct {
		name string
		has  *peertest.EurekaInstance
	}{{"it has none", nil}, {"it has an older one", peertest.ClientOf("ORDERS", "i1", 500)}} {
		t.Run(c.name, func(t *testing.T) {
			f := peertest.NewEureka(t)
			if c.has != nil {
				f.ClientCall(t, "POST", "/apps/ORDERS", c.has, 204)
			}
			s := newEurekaSide(t, link.PeerConfig{URLs: []string{f.Service()}})
			s.Perform(t, register(peertest.Instance("ORDERS", "i1", 1000)))
			f.FailWith(peertest.OnlyBatches(peertest.RespondWith(200, `{"responseList":[{"statusCode":409}]}`)))
			need.Equal(t, s.link.Process(t.Context(), link.Task{Key: key("ORDERS", "i1"), Facts: link.Heartbeat}), batcher.Success, "result")
			f.FailWith(nil)
			s.deliver(t, s.submitted...)
			f.Has(t, "ORDERS/i1 UP 1000")
		})
	}
}

// An instance in a response is checked as if it were registered here.
func TestResultOf409WithoutAnInstanceIsNotRegistered(t *testing.T) {
	for _, c := range []struct{ name, entity string }{
		{"another instance", `{"instanceId":"i2","app":"ORDERS","hostName":"h","ipAddr":"1","dataCenterInfo":{"@class":"x","name":"MyOwn"},"lastDirtyTimestamp":"9000"}`},
		{"no host", `{"instanceId":"i1","app":"ORDERS","ipAddr":"1","dataCenterInfo":{"@class":"x","name":"MyOwn"},"lastDirtyTimestamp":"9000"}`},
		{"another application", `{"instanceId":"i1","app":"X","hostName":"h","ipAddr":"1","dataCenterInfo":{"@class":"x","name":"MyOwn"},"lastDirtyTimestamp":"9000"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := peertest.NewEureka(t)
			s := newEurekaSide(t, link.PeerConfig{URLs: []string{f.Service()}})
			s.Perform(t, register(peertest.Instance("ORDERS", "i1", 1000)))
			f.FailWith(peertest.RespondWith(200, `{"responseList":[{"statusCode":409,"responseEntity":`+c.entity+`}]}`))
			s.deliver(t, link.Task{Key: key("ORDERS", "i1"), Facts: link.Heartbeat})
			v := s.Memory.Newest()
			expect.That(t, v.Index() == 1 && v.Len() == 1, "after the response the registry is at %d with %d instances, want 1 and 1", v.Index(), v.Len())
			expect.That(t, strings.Contains(s.log.String(), "cannot be taken over"), "log %q does not say so", s.log)
		})
	}
}

func TestBatchNeverHasMoreThan250Items(t *testing.T) {
	f := peertest.NewEureka(t)
	s := newEurekaSide(t, link.PeerConfig{URLs: []string{f.Service()}})
	var tasks []link.Task
	for n := range 250 {
		i := peertest.Instance("ORDERS", "i"+string(rune('a'+n%26))+strings.Repeat("x", n/26), 1000)
		s.Perform(t, register(i))
		tasks = append(tasks, link.Task{Key: i.Key(), Facts: link.Registered, NewLife: true})
	}
	s.deliver(t, tasks...)
	batches, _ := f.Received()
	expect.That(t, len(batches) == 2 && len(batches[0].Items) == 250 && len(batches[1].Items) == 250,
		"500 items came in %d batches, want 2 of 250", len(batches))
}

// Large instances make a document large long before it has 250 items.
func TestBatchStaysSmallerThanWhatAnyServerAccepts(t *testing.T) {
	f := peertest.NewEureka(t)
	s := newEurekaSide(t, link.PeerConfig{URLs: []string{f.Service()}})
	var tasks []link.Task
	for n := range 80 {
		i := peertest.Instance("ORDERS", "i"+strings.Repeat("x", n), 1000)
		i.Metadata = []registry.Pair{{Key: "large", Value: strings.Repeat("y", 60<<10)}}
		s.Perform(t, register(i))
		tasks = append(tasks, link.Task{Key: i.Key(), Facts: link.Registered})
	}
	s.deliver(t, tasks...)
	batches, _ := f.Received()
	items := 0
	for _, b := range batches {
		items += len(b.Items)
		expect.That(t, len(b.Body) <= maxDocument, "a document of %d items has %d bytes, want at most %d", len(b.Items), len(b.Body), maxDocument)
	}
	expect.That(t, items == 80, "%d items arrived, want 80", items)
}

func TestCompareFindsEverythingForAEurekaServer(t *testing.T) {
	f := peertest.NewEureka(t)
	s := newEurekaSide(t, link.PeerConfig{URLs: []string{f.Service()}})
	theirs := peertest.Instance("BILLING", "b1", 1000)
	s.Perform(t, register(peertest.Instance("ORDERS", "i1", 1000)), register(peertest.Instance("ORDERS", "i2", 1000)), registry.Cancel{Key: key("ORDERS", "i2")})
	need.Got(s.Memory.Apply(t.Context(), s.link.env.Origin, register(theirs)))(t)
	others := peertest.Instance("LEDGER", "l1", 1000)
	dc2 := registry.Origin{Kind: registry.RemoteDC, DC: "dc2"}
	need.Got(s.Memory.Apply(t.Context(), dc2, register(others), registry.Cancel{Key: others.Key()}))(t)
	if _, _, err := s.link.Compare(t.Context(), false); !errors.Is(err, link.ErrNoDigests) {
		t.Fatalf("comparison: %v, want ErrNoDigests", err)
	}
	_, tasks, err := s.link.Compare(t.Context(), true)
	need.ErrorIs(t, err, link.ErrNoDigests, "repair:")
	s.deliver(t, tasks...)
	want := []string{"Register ORDERS/i1", "DeleteStatusOverride ORDERS/i1", "Cancel ORDERS/i2"}
	got := f.Actions()
	expect.That(t, slices.Equal(got, want), "a repair sent %q, want %q: what is ours, and nothing of the server's own or another datacenter's", got, want)
}

// The node registers as one Eureka server does with another, and leaves when it stops sending.
func TestRegistrationAtAEurekaServerLastsWhileTheNodeSends(t *testing.T) {
	f := peertest.NewEureka(t)
	s := newEurekaSide(t, link.PeerConfig{URLs: []string{f.Service()}})
	stop := peertest.Run(t, s.link.Run)
	peertest.Eventually(t, "the node is registered", func() bool { return strings.HasPrefix(f.Show(), "EUREKA/127.0.0.1:rollcall:8761 UP") })
	stop()
	f.Has(t)
	_, calls := f.Received()
	for _, c := range calls {
		expect.That(t, !c.Replicated && c.Header.Get("DiscoveryIdentity-Name") == "DefaultServer", "%s: replicated %v, identity %q; want a client's call of a server", c.What, c.Replicated, c.Header.Get("DiscoveryIdentity-Name"))
	}
	expect.That(t, s.successes == 0 && len(s.failures) == 0,
		"the registration counted as %d transmissions that succeeded, %q that failed; want none", s.successes, s.failures)
}

func TestRegistrationIsMadeAgainAtAServerThatLostIt(t *testing.T) {
	f := peertest.NewEureka(t)
	s := newEurekaSide(t, link.PeerConfig{URLs: []string{f.Service()}})
	self := &registration{eurekaLink: s.link, lease: selfLease(t.Context(), "rollcall.invalid:8761", time.Now())}
	for _, before := range []func(){func() {}, func() {}, f.Forget} {
		before()
		need.OK(t, self.renew(t.Context()))
		got := f.Show()
		expect.That(t, strings.HasPrefix(got, "EUREKA/rollcall.invalid:rollcall:8761 UP"), "the server has %q, want this node", got)
	}
	_, calls := f.Received()
	var what []string
	for _, c := range calls {
		method, _, _ := strings.Cut(c.What, " ")
		what = append(what, method)
	}
	expect.Slice(t, what, []string{"POST", "PUT", "PUT", "POST"}, "calls")
}

// The file is a batch as Netflix's own server writes it. Ours for the same instances equals it key by key, except for
// times that each server has for itself.
func TestItemsMatchNetflixsOwnServer(t *testing.T) {
	body := need.Got(os.ReadFile("testdata/eureka-batch.json"))(t)
	items := need.Got(eureka.DecodeBatch(body))(t)
	theirs := looseItems(t, body)
	for n, i := range items {
		t.Run(i.Action.String()+" "+i.ID, func(t *testing.T) {
			f := peertest.NewEureka(t)
			s := newEurekaSide(t, link.PeerConfig{URLs: []string{f.Service()}})
			k := key(i.App, i.ID)
			in := peertest.Instance(i.App, i.ID, i.LastDirty)
			if i.Lease != nil {
				in = i.Lease.Instance
			}
			s.Perform(t, register(in))
			task := link.Task{Key: k, Facts: link.Registered}
			switch i.Action {
			case eureka.Heartbeat:
				task.Facts = link.Heartbeat
				if i.Overridden != registry.Unknown {
					s.Perform(t, registry.SetOverride{Key: k, Status: i.Overridden})
				}
			case eureka.StatusUpdate:
				task.Facts = link.Overridden
				s.Perform(t, registry.SetOverride{Key: k, Status: i.Status})
			case eureka.DeleteStatusOverride:
				task.Facts = link.Overridden
				s.Perform(t, registry.SetOverride{Key: k, Status: registry.Down}, registry.DeleteOverride{Key: k, Fallback: i.Status})
			case eureka.Cancel:
				task.Facts = link.Canceled
			}
			need.Equal(t, s.link.Process(t.Context(), task), 0, "failures %q: result", s.failures)
			batches, _ := f.Received()
			expect.Deep(t, looseItems(t, []byte(batches[0].Body))[0], theirs[n], "sent as")
		})
	}
}

// looseItems returns the items of a batch as written, without the server's own times.
func looseItems(t testing.TB, body []byte) []map[string]any {
	t.Helper()
	var list struct {
		Items []map[string]any `json:"replicationList"`
	}
	need.OK(t, json.Unmarshal(body, &list))
	for _, i := range list.Items {
		instance, ok := i["instanceInfo"].(map[string]any)
		if !ok {
			continue
		}
		instance["lastUpdatedTimestamp"] = "its own"
		lease := instance["leaseInfo"].(map[string]any)
		for _, name := range []string{"registrationTimestamp", "lastRenewalTimestamp", "serviceUpTimestamp"} {
			lease[name] = "its own"
		}
	}
	return list.Items
}

func TestSenderIsKnownByItsIdentityOrItsAddress(t *testing.T) {
	peers := []link.PeerConfig{
		{Name: "dc2", Kind: link.Datacenter, URLs: []string{"http://10.0.0.9:8761"}},
		{Name: "a", Kind: link.Eureka, URLs: []string{"http://u:p@10.0.0.1:8761/eureka"}},
		{Name: "b", Kind: link.Eureka, URLs: []string{"http://10.0.0.2:8761/eureka"}},
		{Name: "b2", Kind: link.Eureka, URLs: []string{"http://10.0.0.2:8762/eureka"}},
		{Name: "c", Kind: link.Eureka, URLs: []string{"http://localhost:8761/eureka"}},
		{Name: "d", Kind: link.Eureka, URLs: []string{"http://no-such-host.invalid:8761/eureka"}},
		{Name: "e", Kind: link.Eureka, URLs: []string{"http://[2001:db8::1]:8761/eureka"}},
	}
	var senders eurekaSenders
	for _, c := range []struct{ name, identity, address, want string }{
		{"address", "", "10.0.0.1:55555", "a"},
		{"identity", "10.0.0.1", "10.9.9.9:55555", "a"},
		{"identity before address", "10.0.0.1", "10.0.0.2:55555", "a"},
		{"unknown identity", "10.9.9.9", "10.0.0.2:55555", "b"},
		{"a host that is looked up", "", "127.0.0.1:55555", "c"},
		{"the host's name as identity", "localhost", "10.9.9.9:1", "c"},
		{"a host that cannot be looked up", "no-such-host.invalid", "10.9.9.9:1", "d"},
		{"mapped address", "", "[::ffff:10.0.0.2]:55555", "b"},
		{"another spelling", "2001:0db8:0::1", "10.9.9.9:1", "e"},
		{"a datacenter is none", "", "10.0.0.9:55555", "eureka"},
		{"no peer", "", "10.9.9.9:55555", "eureka"},
		{"nothing", "", "", "eureka"},
	} {
		expect.Equal(t, senders.name(peers, c.identity, c.address), c.want, "%s: name(%q, %q) is", c.name, c.identity, c.address)
	}
}

// TestMain fails if a test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func formatDirty(i peertest.EurekaItem) string { return strconv.FormatInt(int64(i.LastDirty), 10) }

func TestFaultsOfAEurekaServer(t *testing.T) {
	for _, c := range []struct {
		name string
		fail func(http.ResponseWriter, *http.Request) bool
		want batcher.Result
		says string
	}{
		{"503", peertest.RespondWith(503, ""), batcher.Congestion, "503"},
		{"hang", peertest.Hang, batcher.Congestion, "exceeded"},
		{"closes at once", peertest.Drop, batcher.TransientError, "EOF"},
		{"closes in the middle", peertest.CutOff, batcher.TransientError, "was cut off"},
		{"400", peertest.RespondWith(400, ""), batcher.PermanentError, "400"},
		{"401", peertest.RespondWith(401, ""), batcher.PermanentError, "401"},
		{"429", peertest.RespondWith(429, ""), batcher.PermanentError, "429"},
		{"500", peertest.RespondWith(500, "oops"), batcher.PermanentError, "500"},
		{"redirect", func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
			return true
		}, batcher.PermanentError, "307"},
		{"garbage", peertest.RespondWith(200, "<html>"), batcher.PermanentError, "cannot be read"},
		{"too few results", peertest.RespondWith(200, `{"responseList":[]}`), batcher.Success, "1 items were answered by 0 results"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := peertest.NewEureka(t)
			connect, read := 20*time.Second, 20*time.Second
			if c.name == "hang" { // and it accepts both
				connect, read = time.Second, 100*time.Millisecond
			}
			s := newEurekaSide(t, link.PeerConfig{URLs: []string{f.Service()}, Flow: link.Flow{ConnectTimeout: connect, ReadTimeout: read}})
			s.Perform(t, register(peertest.Instance("ORDERS", "i1", 1000)))
			f.FailWith(c.fail)
			got := s.link.Process(t.Context(), link.Task{Key: key("ORDERS", "i1"), Facts: link.Registered})
			expect.That(t, got == c.want && len(s.failures) == 1 && strings.Contains(s.failures[0], c.says) && len(s.sent)+s.successes == 0,
				"result %d, failures %q, sent %q; want %d and one failure with %q", got, s.failures, s.sent, c.want, c.says)
		})
	}
}

func TestFaultOfAServerThatCannotBeReachedIsOneOfTheNetwork(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections, and says nothing
	need.OK(t, err)
	defer silent.Close()
	for _, url := range []string{"https://u:secret@" + silent.Addr().String() + "/eureka", "http://u:secret@127.0.0.1:1/eureka", "http://u:secret@no-such-host.invalid/eureka"} {
		s := newEurekaSide(t, link.PeerConfig{URLs: []string{url}, Flow: link.Flow{ConnectTimeout: 100 * time.Millisecond}})
		s.Perform(t, register(peertest.Instance("ORDERS", "i1", 1000)))
		got := s.link.Process(t.Context(), link.Task{Key: key("ORDERS", "i1"), Facts: link.Registered})
		expect.That(t, got == batcher.TransientError && len(s.failures) == 1, "%s: result %d, failures %q; want a transient error", url, got, s.failures)
		text := strings.Join(append(s.failures, s.link.URL(), s.log.String()), " ")
		expect.That(t, !strings.Contains(text, "secret"), "%s: the password is shown: %s", url, text)
	}
}

func TestItemThatTheServerRefusesSpoilsNoOther(t *testing.T) {
	f := peertest.NewEureka(t)
	s := newEurekaSide(t, link.PeerConfig{URLs: []string{f.Service()}})
	s.Perform(t, register(peertest.Instance("ORDERS", "i1", 1000)), register(peertest.Instance("ORDERS", "i2", 1000)))
	f.FailWith(peertest.OnlyBatches(peertest.RespondWith(200, `{"responseList":[{"statusCode":500},{"statusCode":404}]}`)))
	result := s.link.ProcessBatch(t.Context(), []link.Task{
		{Key: key("ORDERS", "i1"), Facts: link.Registered}, {Key: key("ORDERS", "i2"), Facts: link.Heartbeat},
	})
	expect.That(t, result == batcher.Success && len(s.submitted) == 1 && s.submitted[0].Key.ID == "i2" && s.submitted[0].Facts == link.Registered,
		"result %d, then queued %+v; want success, and the registration of i2", result, s.submitted)
	expect.Slice(t, s.refused, []string{"register ORDERS/i1: Register was answered 500 Internal Server Error"}, "refused")
	expect.Equal(t, s.gaveUp, 1, "items that were given up")
}

// The real server's decoder refuses a batch over a single thing that it does not know. It reads ours: every action,
// with every field that an instance can have.
func TestBatchHoldsNothingThatAStrictServerDoesNotKnow(t *testing.T) {
	f := peertest.NewEureka(t)
	s := newEurekaSide(t, link.PeerConfig{URLs: []string{f.Service()}})
	full := peertest.Instance("ORDERS", "i1", 1000)
	full.SID, full.AppGroup, full.ASG = "7", "SHOP", "orders-v1"
	full.HomePageURL, full.StatusPageURL, full.HealthCheckURL, full.SecureHealthURL = "http://h/", "http://h/s", "http://h/h", "https://h/h"
	full.SecureVIP, full.SecurePort = "orders-s", registry.Port{Number: 8443, Enabled: true}
	full.Metadata = []registry.Pair{{Key: "zone", Value: "a"}, {Key: `odd "key"`, Value: "ä\n"}}
	s.Perform(t, register(full), register(peertest.Instance("ORDERS", "i2", 1000)), registry.SetOverride{Key: key("ORDERS", "i2"), Status: registry.Down})
	s.deliver(t,
		link.Task{Key: key("ORDERS", "i1"), Facts: link.Registered, NewLife: true}, link.Task{Key: key("ORDERS", "i2"), Facts: link.Registered | link.Overridden},
		link.Task{Key: key("ORDERS", "i3"), Facts: link.Canceled})
	s.deliver(t, link.Task{Key: key("ORDERS", "i1"), Facts: link.Heartbeat}, link.Task{Key: key("ORDERS", "i2"), Facts: link.Heartbeat})
	batches, _ := f.Received()
	for _, b := range batches {
		expect.That(t, b.Items != nil, "the server cannot read %s", b.Body)
		for _, i := range b.Items {
			expect.That(t, i.Instance == nil || i.Instance.Lacks() == "", "the instance of %s lacks something", b.Body)
		}
	}
	f.Has(t, "ORDERS/i1 UP 1000", "ORDERS/i2 DOWN 1000 overridden DOWN")
	expect.That(t, len(s.submitted)+len(s.failures) == 0, "the results asked for %+v, failures %q; want none", s.submitted, s.failures)
}

func TestCallsHaveTheHeadersOfEurekaServers(t *testing.T) {
	f := peertest.NewEureka(t)
	f.User = "us:pass"
	s := newEurekaSide(t, link.PeerConfig{URLs: []string{strings.Replace(f.Service(), "://", "://us:pass@", 1)}})
	s.Perform(t, register(peertest.Instance("ORDERS", "i1", 1000)))
	s.deliver(t, link.Task{Key: key("ORDERS", "i1"), Facts: link.Registered})
	batches, _ := f.Received()
	need.That(t, len(batches) == 1, "%d batches arrived with the password of the URL, want 1", len(batches))
	for name, want := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json", "DiscoveryIdentity-Name": "DefaultServer",
		"DiscoveryIdentity-Version": "1.0", "DiscoveryIdentity-Id": "127.0.0.1", "x-netflix-discovery-replication": "true",
	} {
		expect.Equal(t, batches[0].Header.Get(name), want, "%s:", name)
	}
}

func TestSingleCallsMatchThoseOfClientsPlusTheReplicationHeader(t *testing.T) {
	f := peertest.NewEureka(t)
	s := newEurekaSide(t, link.PeerConfig{URLs: []string{f.Service()}, Single: true})
	id := "host:a#1.[3.?]!"
	i := peertest.Instance("ORDERS", id, 1000)
	k := i.Key()
	s.Perform(t, register(i))
	s.deliver(t, link.Task{Key: k, Facts: link.Registered, NewLife: true})
	s.Perform(t, registry.SetOverride{Key: k, Status: registry.OutOfService})
	s.deliver(t, link.Task{Key: k, Facts: link.Overridden})
	s.deliver(t, link.Task{Key: k, Facts: link.Heartbeat})
	s.Perform(t, registry.Cancel{Key: k})
	s.deliver(t, link.Task{Key: k, Facts: link.Canceled})
	path := "/eureka/apps/ORDERS/host:a%231.%5B3.%3F%5D%21"
	want := []string{
		"POST /eureka/apps/ORDERS",
		"DELETE " + path + "/status?lastDirtyTimestamp=1000&value=UP",
		"PUT " + path + "/status?lastDirtyTimestamp=1000&value=OUT_OF_SERVICE",
		"PUT " + path + "?lastDirtyTimestamp=1000&overriddenstatus=OUT_OF_SERVICE&status=OUT_OF_SERVICE",
		"DELETE " + path,
	}
	_, calls := f.Received()
	for n, c := range calls {
		expect.That(t, n < len(want) && c.What == want[n] && c.Replicated && c.Status/100 == 2,
			"call %d: %s, replicated %v, answered %d; want %s", n, c.What, c.Replicated, c.Status, want[min(n, len(want)-1)])
	}
	expect.That(t, len(calls) == len(want), "%d calls, want %d", len(calls), len(want))
}

func TestSingleCallThatIsRefusedIsFinalForItsTask(t *testing.T) {
	for status, want := range map[int]batcher.Result{400: batcher.PermanentError, 500: batcher.PermanentError, 503: batcher.Congestion} {
		f := peertest.NewEureka(t)
		s := newEurekaSide(t, link.PeerConfig{URLs: []string{f.Service()}, Single: true})
		s.Perform(t, register(peertest.Instance("ORDERS", "i1", 1000)))
		f.FailWith(peertest.RespondWith(status, ""))
		got := s.link.Process(t.Context(), link.Task{Key: key("ORDERS", "i1"), Facts: link.Registered})
		expect.That(t, got == want && len(s.failures) == 1, "answered %d: result %d, failures %q; want %d", status, got, s.failures, want)
	}
}
