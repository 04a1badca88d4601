package integration

import (
	"cmp"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// stockClient is one instance of a client that knows nothing of Rollcall: it registers itself, renews
// its lease every second by itself, registers again when told 404, and keeps a copy of the registry.
type stockClient interface {
	// Start registers the instance, with a lease of so many seconds, at a service URL and begins to renew
	// and to fetch.
	Start(url, app, id string, lease int) error
	// Discover is the client's copy of an application: status by instance id.
	Discover(app string) (map[string]string, error)
	// Override forces the instance's status, and Restore ends the override. Clients without such a call
	// answer errNoCall, and an operator does it.
	Override(status string) error
	Restore() error
	// Stop cancels the instance.
	Stop() error
}

var errNoCall = errors.New("the client has no call for that")

// clientLimit is how long a client may take to start, or until an effect shows: at least ten times the time on an idle
// machine. Three Java virtual machines that start beside other tests on two cores take a minute.
const clientLimit = 5 * time.Minute

// testLifeCycle runs a client through its life, once against the leader and once against a
// follower, and checks every node after each step; and once more without consensus.
func testLifeCycle(t *testing.T, newClient func(*testing.T) stockClient) {
	c := StartCluster(t, withSteadyLeader(Config{})) // some calls the client makes once
	leader := c.Leader()
	for role, through := range map[string]*Node{"leader": leader, "follower": c.Others(leader)[0]} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			life := newLifeCycle(c, through, role, newClient(t))
			life.starts(t)
			life.discovers(t)
			life.heartbeats(t)
			life.registersAgain(t)
			life.isOverridden(t)
			life.isRestored(t)
			life.stops(t)
		})
	}
	t.Run("without consensus", func(t *testing.T) {
		t.Parallel()
		testLifeWithoutConsensus(t, newClient(t))
	})
}

// testLifeWithoutConsensus checks a client also at the other node of its datacenter, and at another datacenter, of the
// other mode, where an operator overrides it.
func testLifeWithoutConsensus(t *testing.T, client stockClient) {
	d := StartUnlikeDatacenters(t, Config{AP: true, Nodes: 2}, Config{Nodes: 1})
	c := &Cluster{Nodes: d.Nodes(), t: t}
	life := newLifeCycle(c, c.Nodes[0], "ap", client)
	life.lease, life.operator = 10, d.Clusters[1].Nodes[0]
	life.starts(t)
	life.discovers(t)
	life.outlivesItsLease(t)
	life.registersAgain(t)
	life.isOverridden(t)
	life.isRestored(t)
	life.stops(t)
}

type lifeCycle struct {
	*Cluster
	through  *Node
	client   stockClient
	url      string // that the client is configured with
	app, id  string
	lease    int   // seconds
	operator *Node // where an operator overrides the instance; nil: the client does it, if it can
}

func newLifeCycle(c *Cluster, through *Node, name string, client stockClient) lifeCycle {
	return lifeCycle{Cluster: c, through: through, client: client, url: through.Eureka(), app: "LIFE-" + name, id: "127.0.0.1:life-" + name + ":8080", lease: 30}
}

func (l *lifeCycle) starts(t *testing.T) {
	need.OKf(t, l.client.Start(l.url, l.app, l.id, l.lease), "start")
	l.everywhere(t, "UP")
}

// discovers: the client sees itself and a neighbour that registered elsewhere.
func (l *lifeCycle) discovers(t *testing.T) {
	neighbour, others := l.id+"-neighbour", l.Others(l.through)
	mustRegister(t, others[0], Instance{App: l.app, ID: neighbour})
	l.seen(t, l.id, "UP")
	l.seen(t, neighbour, "UP")
	last := others[len(others)-1]
	awaitStatus(t, last, l.app, neighbour, "UP")
	mustCancel(t, last, l.app, neighbour)
	l.seen(t, neighbour, "")
}

// heartbeats: the lease is renewed again and again, and every node sees it.
func (l *lifeCycle) heartbeats(t *testing.T) {
	for _, n := range l.Nodes {
		awaitRenewal(t, n, l.app, l.id)
	}
}

// outlivesItsLease: every node receives renewals for longer than one lease.
func (l *lifeCycle) outlivesItsLease(t *testing.T) {
	for _, n := range l.Nodes {
		Eventually(t, 10*time.Duration(l.lease)*time.Second, fmt.Sprintf("node %s sees %s renewed for longer than a lease", n.Name, l.id), func() error {
			instance, err := n.Lookup(l.app, l.id)
			switch {
			case err != nil:
				return err
			case instance == nil:
				return errors.New("it is not there")
			case instance.LeaseInfo.Duration != int64(l.lease):
				return fmt.Errorf("its lease is of %d s, want %d", instance.LeaseInfo.Duration, l.lease)
			case instance.LeaseInfo.Renewed <= instance.LeaseInfo.Registered+int64(l.lease)*1000:
				return fmt.Errorf("registered at %d, renewed at %d", instance.LeaseInfo.Registered, instance.LeaseInfo.Renewed)
			}
			return nil
		})
	}
}

// registersAgain: an instance that was canceled comes back, because its heartbeat is answered 404
// in a form that the client understands.
func (l *lifeCycle) registersAgain(t *testing.T) {
	before := map[*Node]int64{}
	for _, n := range l.Nodes {
		instance, err := readUntilTaken(func() (*Listed, error) { return n.Lookup(l.app, l.id) })
		need.That(t, err == nil && instance != nil, "node %s shows %v, %v, want the instance", n.Name, instance, err)
		before[n] = instance.LeaseInfo.Registered
	}
	mustCancel(t, l.through, l.app, l.id)
	for _, n := range l.Nodes {
		Eventually(t, clientLimit, fmt.Sprintf("node %s shows %s, registered again", n.Name, l.id), func() error {
			instance, err := n.Lookup(l.app, l.id)
			if err == nil && (instance == nil || instance.LeaseInfo.Registered <= before[n]) {
				err = fmt.Errorf("it shows %+v", instance)
			}
			return err
		})
	}
	l.everywhere(t, "UP")
}

// isOverridden: the status holds on every node, in the client's picture, and over heartbeats.
func (l *lifeCycle) isOverridden(t *testing.T) {
	need.OKf(t, l.override("OUT_OF_SERVICE"), "override")
	l.everywhere(t, "OUT_OF_SERVICE")
	l.seen(t, l.id, "OUT_OF_SERVICE")
	l.heartbeats(t)
	l.everywhere(t, "OUT_OF_SERVICE")
}

func (l *lifeCycle) isRestored(t *testing.T) {
	need.OKf(t, l.restore(), "end of the override")
	l.everywhere(t, "UP")
	l.seen(t, l.id, "UP")
}

// override has the client force its status, or an operator if there is one or the client has no call for it.
func (l *lifeCycle) override(status string) error {
	err := errNoCall
	if l.operator == nil {
		err = l.client.Override(status)
	}
	if errors.Is(err, errNoCall) {
		n := cmp.Or(l.operator, l.through)
		err = untilNotRefused(func() Response { return n.Override(l.app, l.id, status) }).is(200)
	}
	return err
}

// restore ends what override began.
func (l *lifeCycle) restore() error {
	err := errNoCall
	if l.operator == nil {
		err = l.client.Restore()
	}
	if errors.Is(err, errNoCall) {
		n := cmp.Or(l.operator, l.through)
		err = untilNotRefused(func() Response { return n.EndOverride(l.app, l.id) }).is(200)
	}
	return err
}

func (l *lifeCycle) stops(t *testing.T) {
	expect.OKf(t, l.client.Stop(), "stop")
	l.everywhere(t, "")
}

// everywhere waits until all nodes show the instance with a status; "" means not at all.
func (l *lifeCycle) everywhere(t *testing.T, status string) {
	t.Helper()
	for _, n := range l.Nodes {
		Eventually(t, clientLimit, fmt.Sprintf("node %s shows %s as %q", n.Name, l.id, status), func() error {
			instance, err := n.Lookup(l.app, l.id)
			if err != nil {
				return err
			}
			got := statusOf(instance)
			return unless(got == status, "it shows %q", got)
		})
	}
}

func statusOf(instance *Listed) string {
	if instance == nil {
		return ""
	}
	return instance.Status
}

// seen waits until the client's own picture shows an instance with a status; "" means not at all.
func (l *lifeCycle) seen(t *testing.T, id, status string) {
	t.Helper()
	Eventually(t, clientLimit, fmt.Sprintf("the client sees %s as %q", id, status), func() error {
		picture, err := l.client.Discover(l.app)
		if err != nil {
			return err
		}
		return unless(picture[id] == status, "it sees %v", picture)
	})
}

// awaitRenewal waits until the last renewal that the node shows is a later one.
func awaitRenewal(t *testing.T, n *Node, app, id string) {
	t.Helper()
	var first int64
	Eventually(t, clientLimit, fmt.Sprintf("node %s sees %s renewed", n.Name, id), func() error {
		instance, err := n.Lookup(app, id)
		switch {
		case err != nil:
			return err
		case instance == nil:
			return errors.New("it is not there")
		case first == 0:
			first = instance.LeaseInfo.Renewed
		case instance.LeaseInfo.Renewed > first:
			return nil
		}
		return fmt.Errorf("last renewed at %d", instance.LeaseInfo.Renewed)
	})
}
