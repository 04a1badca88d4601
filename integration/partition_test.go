package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// network is the proxies between the nodes of a cluster: by who dials whom.
type network map[[2]string]*Proxy

// newProxiedCluster starts a cluster whose nodes reach each other through proxies only.
func newProxiedCluster(t *testing.T) (*Cluster, network) {
	t.Helper()
	return newDistantCluster(t, 0, nil)
}

// newDistantCluster is newProxiedCluster with a way between the nodes that takes a while.
func newDistantCluster(t *testing.T, way time.Duration, settings map[string]string) (*Cluster, network) {
	t.Helper()
	c, links := NewCluster(t, Config{Settings: settings}), network{}
	for _, from := range c.Nodes {
		join := []string{from.Cluster}
		var dial []string
		for _, to := range c.Others(from) {
			p := NewProxy(t, to.Cluster)
			p.Delay(way)
			links[[2]string{from.Name, to.Name}] = p
			join = append(join, p.Addr())
			dial = append(dial, to.Name+"="+p.Addr())
		}
		from.Settings["cluster.join"] = strings.Join(join, ",")
		from.Settings["cluster.dial"] = strings.Join(dial, ",")
	}
	c.Start()
	return c, links
}

// isolate cuts a node off in both directions, whoever dialled.
func (l network) isolate(node string) {
	for ends, p := range l {
		if ends[0] == node || ends[1] == node {
			p.Cut(There, Back)
		}
	}
}

func (l network) heal() {
	for _, p := range l {
		p.Heal()
	}
}

func TestIsolatedLeaderIsReplacedRefusesAndCatchesUp(t *testing.T) {
	t.Parallel()
	c, links := newProxiedCluster(t)
	isolated := c.Leader()
	others := c.Others(isolated)
	mustRegister(t, isolated, Instance{App: "BEFORE", ID: "before"})
	links.isolate(isolated.Name)

	next := c.Leader(others...)
	for i, n := range others {
		mustRegisterSoon(t, n, Instance{App: "DURING", ID: fmt.Sprintf("during-%d", i)})
	}
	Pass(t, noticeAfter)
	mustKnowNoLeader(t, isolated)
	mustRefuse(t, isolated)

	links.heal()
	isolated.WaitReady(t)
	listing := mustList(t, isolated)
	for _, id := range []string{"before", "during-0", "during-1"} {
		if _, listed := listing[id]; !listed {
			t.Errorf("after healing, %s does not list %s; %s leads", isolated.Name, id, next.Name)
		}
	}
	mustHaveForgotten(t, c)
}

// TestOneWayCutOfALeaderEndsInOneTruth cuts only what the leader sends (or only what it receives):
// after healing there is one registry, with everything that was acknowledged on the way.
func TestOneWayCutOfALeaderEndsInOneTruth(t *testing.T) {
	t.Parallel()
	for _, deaf := range []bool{true, false} {
		t.Run(fmt.Sprintf("leader deaf %v", deaf), func(t *testing.T) {
			t.Parallel()
			c, links := newProxiedCluster(t)
			leader := c.Leader()
			l := startLoad(t, 10, 6, 3, c.Nodes)
			links.cutOneWay(leader.Name, deaf)
			Pass(t, 2*noticeAfter)
			links.heal()
			c.WaitReady()
			l.stop()
			l.check(t, c.Nodes)
		})
	}
}

// cutOneWay cuts what a node receives (deaf), or what it sends.
func (l network) cutOneWay(node string, deaf bool) {
	for ends, p := range l {
		dialled, accepted := ends[0] == node, ends[1] == node
		if dialled && deaf || accepted && !deaf {
			p.Cut(Back)
		}
		if dialled && !deaf || accepted && deaf {
			p.Cut(There)
		}
	}
}

// mustRegisterSoon registers through a node that may not have noticed a new leader yet.
func mustRegisterSoon(t *testing.T, n *Node, i Instance) {
	t.Helper()
	Eventually(t, ReadyLimit, "node "+n.Name+" registers "+i.ID, func() error {
		if answer := n.Register(i); answer.Status != http.StatusNoContent {
			return fmt.Errorf("%v", answer)
		}
		return nil
	})
}
