package replication

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/own"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/link"
	"github.com/seed-20419f34/rollcall/replication/peertest"
)

// circle is one of our nodes and a Eureka server that replicate to each other: ours all the time, the other one when
// the test says so.
type circle struct {
	*fsmtest.Memory
	fake       *peertest.Eureka
	replicator *Replicator
	service    string // the node's URL as the Eureka server is configured with it
}

// eurekaPeers is what the node's HTTP side needs from a Replicator here.
type eurekaPeers struct {
	own.Peers
	replicator *Replicator
}

func (p eurekaPeers) Cut(server string) time.Duration { return p.replicator.Cut(server) }

func newCircle(t *testing.T) *circle {
	t.Helper()
	c := &circle{Memory: fsmtest.New(), fake: peertest.NewEureka(t)}
	var err error
	c.replicator, err = New(Config{Side: link.Side{
		Service: c.Memory, Datacenter: "dc1", Node: "n1", HTTP: "127.0.0.1:8761", Consensus: true,
		Sender: func() string { return "cluster" },
		Peers:  []link.PeerConfig{{Name: "old", Kind: link.Eureka, URLs: []string{c.fake.Service()}, Flow: link.Flow{BatchDelay: 10 * time.Millisecond, CongestionDelay: 20 * time.Millisecond}}},
	}})
	need.OK(t, err)
	handler, err := httpd.New(httpd.Config{
		Service: c.Memory, Peers: eurekaPeers{replicator: c.replicator}, EurekaSender: c.replicator.EurekaSender,
	})
	need.OK(t, err)
	server := httptest.NewServer(handler)
	c.service = server.URL + "/eureka"
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.replicator.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		server.Close()
	})
	// From here on both sides change while the replicator watches.
	hasSoon(t, c.fake, selfLine)
	return c
}

// selfLine stands for the node's own registration, whose timestamp is the time of its start.
const selfLine = "EUREKA/127.0.0.1:rollcall:8761 UP"

// hasSoon waits until the server has exactly these instances.
func hasSoon(t testing.TB, f *peertest.Eureka, want ...string) {
	t.Helper()
	var got []string
	defer func() {
		if t.Failed() {
			t.Logf("it has %q", got)
		}
	}()
	peertest.Eventually(t, fmt.Sprintf("the Eureka server has %q", want), func() bool {
		got = strings.Split(f.Show(), "\n")
		for n, line := range got {
			if strings.HasPrefix(line, selfLine) {
				got[n] = selfLine
			}
		}
		return slices.Equal(got, want)
	})
}

func (c *circle) hasHere(t testing.TB, want ...string) {
	t.Helper()
	var got []string
	for l := range c.Newest().All() {
		line := fmt.Sprintf("%s %s %d", l.Key(), l.Instance.Status, l.Instance.LastDirty)
		if l.Instance.Overridden != registry.Unknown {
			line += " overridden " + l.Instance.Overridden.String()
		}
		if strings.HasPrefix(line, selfLine) {
			line = selfLine // the server sends the node its own registration, like any other
		}
		if l.Owner != "" {
			line += " of " + l.Owner
		}
		got = append(got, line)
	}
	expect.Slice(t, got, want, "here are")
}

func TestEurekaServerAndNodeSendEachOtherEverythingOnceAndNothingComesBack(t *testing.T) {
	c := newCircle(t)
	f := c.fake
	ours, theirs := registry.NewKey("ORDERS", "i1"), "/apps/BILLING/b1"

	c.Perform(t, registry.Register{Instance: peertest.Instance("ORDERS", "i1", 1000)})
	f.ClientCall(t, "POST", "/apps/BILLING", peertest.ClientOf("BILLING", "b1", 2000), 204)
	f.Replicate(t, c.service)
	hasSoon(t, f, "BILLING/b1 UP 2000", selfLine, "ORDERS/i1 UP 1000")
	c.hasHere(t, "BILLING/b1 UP 2000 of old", selfLine+" of old", "ORDERS/i1 UP 1000")

	c.Perform(t, registry.SetOverride{Key: ours, Status: registry.OutOfService})
	f.ClientCall(t, "PUT", theirs+"/status?value=OUT_OF_SERVICE&lastDirtyTimestamp=2000", nil, 200)
	f.ClientCall(t, "PUT", theirs+"?lastDirtyTimestamp=2000", nil, 200)
	f.Replicate(t, c.service)
	hasSoon(t, f, "BILLING/b1 OUT_OF_SERVICE 2000 overridden OUT_OF_SERVICE", selfLine, "ORDERS/i1 OUT_OF_SERVICE 1000 overridden OUT_OF_SERVICE")
	c.hasHere(t, "BILLING/b1 OUT_OF_SERVICE 2000 overridden OUT_OF_SERVICE of old", selfLine+" of old", "ORDERS/i1 OUT_OF_SERVICE 1000 overridden OUT_OF_SERVICE")

	c.Perform(t, registry.DeleteOverride{Key: ours, Fallback: registry.Up, LastDirty: 1000}, registry.Renew{Key: ours, LastDirty: 1000})
	f.ClientCall(t, "DELETE", theirs+"/status?value=UP&lastDirtyTimestamp=2000", nil, 200)
	f.Replicate(t, c.service)
	hasSoon(t, f, "BILLING/b1 UP 2000", selfLine, "ORDERS/i1 UP 1000")
	c.hasHere(t, "BILLING/b1 UP 2000 of old", selfLine+" of old", "ORDERS/i1 UP 1000")

	f.ClientCall(t, "DELETE", theirs, nil, 200)
	f.Replicate(t, c.service)
	c.Perform(t, registry.Cancel{Key: ours})
	hasSoon(t, f, selfLine)
	c.hasHere(t, selfLine+" of old")

	// The change list is sent in order: whatever comes after all of that has brought it along.
	c.Perform(t, registry.Register{Instance: peertest.Instance("ORDERS", "last", 1000)})
	hasSoon(t, f, selfLine, "ORDERS/last UP 1000")
	for _, action := range f.Actions() {
		expect.That(t, !strings.Contains(action, "BILLING"), "the server was sent %s, which came from it", action)
	}
}

func TestEurekaServerThatComesBackEmptyIsFilledAgainByHeartbeats(t *testing.T) {
	c := newCircle(t)
	var want []string
	var all []registry.Op
	for n := range 20 {
		i := peertest.Instance("ORDERS", fmt.Sprintf("i%02d", n), 1000)
		all = append(all, registry.Renew{Key: i.Key(), LastDirty: 1000})
		want = append(want, fmt.Sprintf("ORDERS/i%02d UP 1000", n))
		c.Perform(t, registry.Register{Instance: i})
	}
	hasSoon(t, c.fake, append([]string{selfLine}, want...)...)
	c.fake.Forget()
	c.Perform(t, all...)
	hasSoon(t, c.fake, want...)
}

func TestEurekaServerThatFailsLosesNothing(t *testing.T) {
	for name, fail := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"503": peertest.RespondWith(503, ""), "closes": peertest.Drop, "closes in the middle": peertest.CutOff,
	} {
		t.Run(name, func(t *testing.T) {
			c := newCircle(t)
			failed := make(chan struct{}, 1000)
			c.fake.FailWith(peertest.OnlyBatches(func(w http.ResponseWriter, r *http.Request) bool {
				failed <- struct{}{}
				return fail(w, r)
			}))
			c.Perform(t, registry.Register{Instance: peertest.Instance("ORDERS", "i1", 1000)}, registry.Register{Instance: peertest.Instance("ORDERS", "i2", 1000)})
			<-failed
			c.Perform(t, registry.Cancel{Key: registry.NewKey("ORDERS", "i2")}, registry.SetOverride{Key: registry.NewKey("ORDERS", "i1"), Status: registry.Down})
			<-failed
			c.fake.FailWith(nil)
			hasSoon(t, c.fake, selfLine, "ORDERS/i1 DOWN 1000 overridden DOWN")
		})
	}
}

func TestEurekaItemThatSpoilsABatchIsFoundAndDroppedAlone(t *testing.T) {
	c := newCircle(t)
	refused := make(chan int, 1000)
	c.fake.FailWith(peertest.OnlyBatches(func(w http.ResponseWriter, r *http.Request) bool {
		return refusePoison(w, r, refused)
	}))
	var ops []registry.Op
	want := []string{selfLine}
	for n := range 16 {
		id := fmt.Sprintf("i%02d", n)
		if n == 5 {
			id = "poison"
		} else {
			want = append(want, "ORDERS/"+id+" UP 1000")
		}
		ops = append(ops, registry.Register{Instance: peertest.Instance("ORDERS", id, 1000)})
	}
	c.Perform(t, ops...)
	hasSoon(t, c.fake, want...)
	peertest.Eventually(t, "the poison is counted as dropped", func() bool {
		return c.replicator.Status()[0].Dropped["permanent"] == 1
	})
}

// refusePoison refuses a batch that contains an instance with that name, and records with how many others it came.
func refusePoison(w http.ResponseWriter, r *http.Request, refused chan<- int) bool {
	var list struct {
		Items []json.RawMessage `json:"replicationList"`
	}
	if err := json.NewDecoder(r.Body).Decode(&list); err != nil || !slices.ContainsFunc(list.Items, func(i json.RawMessage) bool {
		return strings.Contains(string(i), `"poison"`)
	}) {
		return false
	}
	refused <- len(list.Items)
	w.WriteHeader(400)
	return true
}

func TestEurekaServerDoesWhatOurResponsesAskFor(t *testing.T) {
	c := newCircle(t)
	f := c.fake
	// 404 on a heartbeat: it registers.
	f.ClientCall(t, "POST", "/apps/BILLING", peertest.ClientOf("BILLING", "b1", 2000), 204)
	f.Mu.Lock()
	f.Pending = nil // the registration was lost
	f.Mu.Unlock()
	f.ClientCall(t, "PUT", "/apps/BILLING/b1?lastDirtyTimestamp=2000", nil, 200)
	got := f.Replicate(t, c.service)
	expect.That(t, slices.Equal(got, []int{404, 200}), "results %v, want 404 for the heartbeat and 200 for the registration", got)
	c.hasHere(t, "BILLING/b1 UP 2000 of old")
	// 409: the server's instance is newer, and is taken over here.
	need.Got(c.Apply(t.Context(), registry.FromClient, registry.Register{Instance: peertest.Instance("BILLING", "b1", 9000)}))(t)
	hasSoon(t, f, "BILLING/b1 UP 9000", selfLine)
	f.Mu.Lock()
	f.Registry.Apps["BILLING"]["b1"].LastDirty = 2000 // as if that had not arrived yet
	f.Mu.Unlock()
	f.ClientCall(t, "PUT", "/apps/BILLING/b1?lastDirtyTimestamp=2000", nil, 200)
	expect.Slice(t, f.Replicate(t, c.service), []int{409}, "results")
	hasSoon(t, f, "BILLING/b1 UP 9000", selfLine)
}

func TestEurekaBatchThatIsPlayedAgainChangesNothing(t *testing.T) {
	c := newCircle(t)
	f := c.fake
	f.ClientCall(t, "POST", "/apps/BILLING", peertest.ClientOf("BILLING", "b1", 2000), 204)
	f.ClientCall(t, "PUT", "/apps/BILLING/b1/status?value=DOWN&lastDirtyTimestamp=2000", nil, 200)
	f.ClientCall(t, "PUT", "/apps/BILLING/b1?lastDirtyTimestamp=2000", nil, 200)
	old := slices.Clone(f.Pending)
	f.Replicate(t, c.service)
	before := c.Newest().Index()
	need.Got(peertest.Send(f.Client(), c.service, old))(t)
	expect.Equal(t, c.Newest().Index(), before, "the replay moved the registry from %d to", before)
}

// A Eureka server's cancel names no version, so one that is sent again, or arrives late, removes a live instance. The
// server's next heartbeat for it gets 404, and brings it back as it is, as soon as nothing that was sent before the
// cancel can still arrive. Until then it stays away; if its client is gone, for good.
func TestEurekaCancelThatIsPlayedAgainIsHealedByTheNextHeartbeat(t *testing.T) {
	c := newCircle(t)
	f := c.fake
	f.ClientCall(t, "POST", "/apps/BILLING", peertest.ClientOf("BILLING", "b1", 1000), 204)
	f.ClientCall(t, "DELETE", "/apps/BILLING/b1", nil, 200)
	f.ClientCall(t, "POST", "/apps/BILLING", peertest.ClientOf("BILLING", "b1", 2000), 204)
	f.Replicate(t, c.service)
	need.Got(peertest.Send(f.Client(), c.service, []peertest.EurekaItem{{Action: "Cancel", App: "BILLING", ID: "b1"}}))(t)
	c.hasHere(t, selfLine+" of old")
	beat := func() {
		f.ClientCall(t, "PUT", "/apps/BILLING/b1?lastDirtyTimestamp=2000", nil, 200)
		f.Replicate(t, c.service)
	}
	beat()
	c.hasHere(t, selfLine+" of old")
	c.Pass(11 * time.Second)
	beat()
	c.hasHere(t, "BILLING/b1 UP 2000 of old", selfLine+" of old")
}
