package integration

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// stockClient is one instance of a client that knows nothing of Rollcall: it registers itself, renews
// its lease every second by itself, registers again when told 404, and keeps a copy of the registry.
type stockClient interface {
	// Start registers the instance at a service URL and begins to renew and to fetch.
	Start(url, app, id string) error
	// Discover is the client's own picture of an application: status by instance id.
	Discover(app string) (map[string]string, error)
	// Override forces the instance's status, and Restore ends that. Clients without such a call
	// answer errNoCall, and an operator does it.
	Override(status string) error
	Restore() error
	// Stop takes the instance out.
	Stop() error
}

var errNoCall = errors.New("the client has no call for that")

// clientLimit is how long a client may take until an effect shows: ten of its intervals and more.
const clientLimit = 30 * time.Second

// testLifeCycle runs a client through its life, once against the leader and once against a
// follower, and looks at every node after each step.
func testLifeCycle(t *testing.T, newClient func(*testing.T) stockClient) {
	c := StartCluster(t, Config{})
	leader := c.Leader()
	for role, through := range map[string]*Node{"leader": leader, "follower": c.Others(leader)[0]} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			life := lifeCycle{Cluster: c, through: through, client: newClient(t), app: "LIFE-" + role, id: "127.0.0.1:life-" + role + ":8080"}
			life.starts(t)
			life.discovers(t)
			life.heartbeats(t)
			life.registersAgain(t)
			life.isOverridden(t)
			life.isRestored(t)
			life.stops(t)
		})
	}
}

type lifeCycle struct {
	*Cluster
	through *Node
	client  stockClient
	app, id string
}

func (l *lifeCycle) starts(t *testing.T) {
	if err := l.client.Start(l.through.Eureka(), l.app, l.id); err != nil {
		t.Fatalf("start: %v", err)
	}
	l.everywhere(t, "UP")
}

// discovers: the client sees itself and a neighbour that registered elsewhere.
func (l *lifeCycle) discovers(t *testing.T) {
	neighbour := l.id + "-neighbour"
	mustRegister(t, l.Others(l.through)[0], Instance{App: l.app, ID: neighbour})
	l.seen(t, l.id, "UP")
	l.seen(t, neighbour, "UP")
	if answer := l.Others(l.through)[1].Cancel(l.app, neighbour); answer.Status != 200 {
		t.Fatalf("cancel the neighbour: %v", answer)
	}
	l.seen(t, neighbour, "")
}

// heartbeats: the lease is renewed again and again, and every node sees it.
func (l *lifeCycle) heartbeats(t *testing.T) {
	for _, n := range l.Nodes {
		awaitRenewal(t, n, l.app, l.id)
	}
}

// registersAgain: an instance that was taken out comes back, because its heartbeat is answered 404
// in a form that the client understands.
func (l *lifeCycle) registersAgain(t *testing.T) {
	if answer := l.through.Cancel(l.app, l.id); answer.Status != 200 {
		t.Fatalf("cancel by an operator: %v, want 200", answer)
	}
	l.everywhere(t, "UP")
}

// isOverridden: the status holds on every node, in the client's picture, and over heartbeats.
func (l *lifeCycle) isOverridden(t *testing.T) {
	err := l.client.Override("OUT_OF_SERVICE")
	if errors.Is(err, errNoCall) {
		err = expect200(l.through.Override(l.app, l.id, "OUT_OF_SERVICE"))
	}
	if err != nil {
		t.Fatalf("override: %v", err)
	}
	l.everywhere(t, "OUT_OF_SERVICE")
	l.seen(t, l.id, "OUT_OF_SERVICE")
	l.heartbeats(t)
	l.everywhere(t, "OUT_OF_SERVICE")
}

func (l *lifeCycle) isRestored(t *testing.T) {
	err := l.client.Restore()
	if errors.Is(err, errNoCall) {
		err = expect200(l.through.EndOverride(l.app, l.id))
	}
	if err != nil {
		t.Fatalf("end of the override: %v", err)
	}
	l.everywhere(t, "UP")
	l.seen(t, l.id, "UP")
}

func (l *lifeCycle) stops(t *testing.T) {
	if err := l.client.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	l.everywhere(t, "")
}

func expect200(answer Answer) error {
	if answer.Status != 200 {
		return fmt.Errorf("%v, want 200", answer)
	}
	return nil
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
			if got := statusOf(instance); got != status {
				return fmt.Errorf("it shows %q", got)
			}
			return nil
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
		if picture[id] != status {
			return fmt.Errorf("it sees %v", picture)
		}
		return nil
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
