package integration

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// noticeAfter is when a node must know that its majority is gone.
const noticeAfter = 3 * time.Second

// losses are the ways to lose two of three nodes, and to get them back.
var losses = []struct {
	name   string
	lose   func(*testing.T, *Node)
	regain func(*testing.T, *Node)
}{
	{"paused", func(t *testing.T, n *Node) { n.Pause(t) }, func(t *testing.T, n *Node) { n.Resume(t) }},
	{"killed", func(_ *testing.T, n *Node) { n.Kill() }, func(t *testing.T, n *Node) { n.Start(t) }},
}

func TestMinorityRefusesWritesAndLinearizableReads(t *testing.T) {
	for _, loss := range losses {
		for _, leaderStays := range []bool{true, false} {
			t.Run(fmt.Sprintf("others %s, leader stays %v", loss.name, leaderStays), func(t *testing.T) {
				t.Parallel()
				c := StartCluster(t, Config{})
				left := c.Leader()
				if !leaderStays {
					left = c.Others(left)[0]
				}
				mustRegister(t, left, Instance{App: "BEFORE", ID: "before"})
				mustList(t, left) // it has applied the registration now
				for _, n := range c.Others(left) {
					loss.lose(t, n)
				}
				mustNotAcknowledge(t, left)
				Pass(t, noticeAfter)
				mustKnowNoLeader(t, left)
				mustRefuseWithoutMajority(t, left)
				mustServeStale(t, left, "/eureka/apps?consistency=stale")
				for _, n := range c.Others(left) {
					loss.regain(t, n)
				}
				c.WaitReady()
				mustShowNothingRefused(t, c)
			})
		}
	}
}

// mustNotAcknowledge writes while the node may not have noticed the loss: the outcome is unknown, and
// said to be, or nothing was done.
func mustNotAcknowledge(t *testing.T, n *Node) {
	t.Helper()
	response := n.Register(Instance{App: "CAUGHT", ID: "caught"})
	switch response.Status {
	case http.StatusServiceUnavailable:
	case http.StatusGatewayTimeout:
		expect.Equal(t, response.Header.Get("X-Rollcall-Outcome"), "unknown", "a write caught by the loss: X-Rollcall-Outcome")
	default:
		t.Errorf("a write caught by the loss: %v, want 503 or 504", response)
	}
	t.Logf("a write caught by the loss was answered %v", response)
}

// mustKnowNoLeader waits until a node has noticed that its majority is gone. It does so within noticeAfter, which a
// busy test machine cannot hold it to; until then the outcome of a write is unknown.
func mustKnowNoLeader(t *testing.T, n *Node) {
	t.Helper()
	Eventually(t, ReadyLimit, "node "+n.Name+" knows of no leader", func() error {
		status, err := n.Status()
		if err == nil && status.Leader != "" {
			err = fmt.Errorf("it says that %s leads", status.Leader)
		}
		return err
	})
}

// refusedWithoutMajority are the requests that a node without a majority must refuse: every route that writes, and reads that
// must be linearizable.
var refusedWithoutMajority = []Request{
	{Method: http.MethodPost, Path: "/eureka/apps/REFUSED", Body: Instance{App: "REFUSED", ID: "refused"}.document(), ContentType: "application/json"},
	{Method: http.MethodPut, Path: path("BEFORE", "before")},
	{Method: http.MethodDelete, Path: path("BEFORE", "before")},
	{Method: http.MethodPut, Path: path("BEFORE", "before") + "/status?value=OUT_OF_SERVICE"},
	{Method: http.MethodDelete, Path: path("BEFORE", "before") + "/status"},
	{Method: http.MethodPut, Path: path("BEFORE", "before") + "/metadata?a=b"},
	{Path: "/eureka/apps"},
	{Path: "/eureka/apps/delta"},
	{Path: "/eureka/apps/BEFORE"},
	{Path: path("BEFORE", "before")},
	{Path: "/eureka/instances/before"},
	{Path: "/eureka/vips/BEFORE"},
	{Path: "/eureka/apps?consistency=linearizable"},
}

// mustRefuseWithoutMajority sends the requests of refusedWithoutMajority at once, and logs how long the slowest response took:
// the promise is one second from arrival, which a busy test machine cannot hold the server to.
func mustRefuseWithoutMajority(t *testing.T, n *Node) {
	t.Helper()
	answers := make([]Response, len(refusedWithoutMajority))
	var calls sync.WaitGroup
	for i, r := range refusedWithoutMajority {
		calls.Go(func() { answers[i] = n.Do(r) })
	}
	calls.Wait()
	var slowest time.Duration
	for i, response := range answers {
		expect.That(t, response.Status == http.StatusServiceUnavailable, "%s %s without a majority: %v, want 503", refusedWithoutMajority[i].Method, refusedWithoutMajority[i].Path, response)
		slowest = max(slowest, response.Took)
	}
	t.Logf("%d calls were refused within %v", len(answers), slowest)
}

// mustServeStale expects a response that has its age and shows the earlier state.
func mustServeStale(t *testing.T, n *Node, resource string) {
	t.Helper()
	response := n.Get(resource)
	need.OKf(t, response.is(200), "%s", resource)
	expect.Equal(t, response.Header.Get("X-Rollcall-Consistency"), "stale", "%s: X-Rollcall-Consistency", resource)
	mustAge(t, n, resource, response)
	_, listed := need.Got(ParseListing(response.Body))(t)["before"]
	expect.That(t, listed, "%s does not show what was registered before the loss: %s", resource, response.Body)
}

// mustAge expects that the response's age grows with the time, from which a reader knows when the node last had contact
// with a leader. (From outside that time is not known to the millisecond: a message that a leader sent before its end
// may be received after it.)
func mustAge(t *testing.T, n *Node, resource string, response Response) {
	t.Helper()
	received := time.Now()
	before, err := ageOf(response)
	need.OKf(t, err, "%s", resource)
	Eventually(t, ReadyLimit, resource+" is as old as the loss", func() error {
		waited := time.Since(received)
		age, err := ageOf(n.Get(resource))
		if err != nil {
			return err
		}
		if grown := age - before; grown < waited-time.Millisecond { // ages are rounded to it
			t.Fatalf("%s: X-Rollcall-Age grew by %v in %v", resource, grown, waited)
		}
		return unless(age >= noticeAfter, "X-Rollcall-Age %v, want the %v and more since the loss", age, noticeAfter)
	})
}

// ageOf is the age in a response.
func ageOf(response Response) (time.Duration, error) {
	age, err := strconv.ParseFloat(response.Header.Get("X-Rollcall-Age"), 64)
	return time.Duration(age * float64(time.Second)), err
}

// mustShowNothingRefused expects of every node of a cluster that is whole again that none of the requests of
// refusedWithoutMajority took effect.
func mustShowNothingRefused(t *testing.T, c *Cluster) {
	t.Helper()
	for _, n := range c.Nodes {
		listing := mustList(t, n)
		_, listed := listing["refused"]
		expect.That(t, !listed, "node %s: a refused registration took effect", n.Name)
		before, listed := listing["before"]
		expect.That(t, listed, "node %s: a refused cancel took effect", n.Name)
		expect.That(t, before.Status == "UP" && before.Metadata["a"] == "", "node %s: a refused change took effect: %+v", n.Name, before)
	}
}

func TestMinorityServesStockClientsByStaleWithoutQuorum(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{Settings: map[string]string{"reads.eureka": "stale-without-quorum"}})
	left := c.Others(c.Leader())[0]
	mustRegister(t, c.Nodes[0], Instance{App: "BEFORE", ID: "before"})
	Eventually(t, ReadyLimit, "with a majority reads are linearizable", func() error { // a busy machine may have no leader for a moment
		response := left.Get("/eureka/apps") // has it apply the registration, too
		got := response.Header.Get("X-Rollcall-Consistency")
		return unless(got == "linearizable", "X-Rollcall-Consistency %q", got)
	})
	for _, n := range c.Others(left) {
		n.Pause(t)
	}
	Pass(t, noticeAfter)
	mustKnowNoLeader(t, left)
	mustServeStale(t, left, "/eureka/apps")
	expect.OKf(t, left.Get("/eureka/apps?consistency=linearizable").is(503), "an explicitly linearizable read")
}
