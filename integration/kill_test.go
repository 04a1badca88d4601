package integration

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// kills is how often the leader dies in one test: ROLLCALL_KILLS, or 10.
func kills(t *testing.T) int {
	t.Helper()
	text := os.Getenv("ROLLCALL_KILLS")
	if text == "" {
		return 10
	}
	n, err := strconv.Atoi(text)
	need.OKf(t, err, "ROLLCALL_KILLS")
	return n
}

// killLeader ends the leader as kill -9 does, waits for another one, starts the dead node again and
// waits until it has caught up. The load goes through followers throughout.
func killLeader(t *testing.T, c *Cluster, l *load) {
	t.Helper()
	dead := c.Leader()
	others := c.Others(dead)
	l.use(others)
	dead.Kill()
	leader := c.Leader(others...)
	l.use(c.Others(dead, leader))
	l.awaitProgress(t)
	dead.Start(t)
	dead.WaitReady(t)
	l.use(c.Others(leader))
	l.awaitProgress(t)
}

func TestLeaderKilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{})
	l := startLoad(t, 10, 40, 8, c.Others(c.Leader()))
	for range kills(t) {
		killLeader(t, c, l)
	}
	l.stop()
	c.WaitReady()
	l.check(t, c.Nodes)
}

// mustRegister registers an instance and expects success, in the end: what is refused was not done, and what was not
// answered in time may be done twice.
func mustRegister(t *testing.T, n *Node, i Instance) {
	t.Helper()
	err := untilTaken(func() error {
		if answer := n.Register(i); answer.Status != 204 {
			return answer.failure(n, fmt.Sprintf("register %s/%s, want 204", i.App, i.ID))
		}
		return nil
	})
	need.OK(t, err)
}

// mustTake expects a node to do something that may be done twice, as mustRegister does.
func mustTake(t *testing.T, n *Node, what string, act func() Answer) {
	t.Helper()
	err := untilTaken(func() error {
		if answer := act(); answer.Outcome() != Done {
			return answer.failure(n, what)
		}
		return nil
	})
	need.OK(t, err)
}

// mustOverride forces a status, as an operator does.
func mustOverride(t *testing.T, n *Node, app, id, status string) {
	t.Helper()
	mustTake(t, n, fmt.Sprintf("override %s/%s", app, id), func() Answer { return n.Override(app, id, status) })
}

// mustCancel takes an instance out that is there. What was not answered in time may have been done: then there is nothing
// to cancel any more.
func mustCancel(t *testing.T, n *Node, app, id string) {
	t.Helper()
	unknown := false
	mustTake(t, n, fmt.Sprintf("cancel %s/%s", app, id), func() Answer {
		answer := n.Cancel(app, id)
		if unknown && answer.Outcome() == NotFound {
			return Answer{Status: http.StatusOK}
		}
		unknown = unknown || answer.Outcome() == Unknown
		return answer
	})
}

// mustList reads the registry of a node.
func mustList(t *testing.T, n *Node) map[string]Listed {
	t.Helper()
	var listing map[string]Listed
	err := untilTaken(func() (err error) {
		listing, err = n.Listing()
		return err
	})
	need.OK(t, err)
	return listing
}

func TestWholeClusterKilledNobodyEvicted(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ap bool) {
		const lease, mortal = 10, 6 // seconds: of those who renew, and of the dead one
		cfg := fewer(ap, 2)
		if ap {
			cfg.Settings = map[string]string{"data.sync": "always"}
		}
		c := StartCluster(t, cfg)
		l := startLoad(t, lease, 12, 0, c.Nodes)
		mustRegister(t, c.Nodes[1], Instance{App: "MORTAL", ID: "dead", Duration: mortal})
		for _, n := range c.Nodes {
			n.Kill()
		}
		Pass(t, (lease+2)*time.Second) // the outage outlasts every lease
		back := time.Now()
		c.Start()

		// Those that went on trying are all there; the one that died with the cluster gets a whole
		// lease after the outage, and then goes.
		awaitEviction(t, c, "dead", mortal, back)
		l.stop()
		l.check(t, c.Nodes)
	})
}

// awaitEviction waits until no node lists id, and fails if one of them drops it earlier than one
// lease (in seconds) after from.
func awaitEviction(t *testing.T, c *Cluster, id string, lease int, from time.Time) {
	t.Helper()
	for _, n := range c.Nodes {
		awaitGone(t, n, id, lease)
	}
	late := time.Since(from) - time.Duration(lease)*time.Second
	expect.That(t, late >= 0, "%s went %v before the end of its lease of %d s", id, -late, lease)
	t.Logf("%s went %v after the end of its lease of %d s", id, late, lease)
}
