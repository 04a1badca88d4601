package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

// withoutVote takes the vote from the last nodes of each datacenter; the others found its cluster.
func withoutVote(learners int) func(*config.Config) {
	return func(c *config.Config) {
		voters := c.Store.BootstrapExpect - learners
		c.Store.BootstrapExpect, c.NodeVoter = voters, placeOf(c.NodeName) <= voters
	}
}

// learnersAmong returns how many nodes of each datacenter have no vote, by the words of a schedule. The error says
// that the others cannot found a cluster.
func learnersAmong(nodes int, words []string) (n int, err error) {
	if slices.Contains(words, "learner") {
		n++
	}
	if slices.Contains(words, "learners") {
		n += 2
	}
	if 2*n >= nodes && n > 0 {
		return n, fmt.Errorf("%d of %d nodes without a vote: more than half must vote", n, nodes)
	}
	return n, nil
}

// placeOf returns the position of a node in its datacenter, from 1.
func placeOf(name string) int {
	place, _ := strconv.Atoi(name[strings.LastIndex(name, "n")+1:]) // the simulator has named it
	return place
}

// lookAtVoters checks that no node that joined without a vote has got one.
func (l *load) lookAtVoters() {
	node := l.anyNode()
	r := l.ask("members", node, "GET", "/v1/rollcall/status", "")
	l.count("members", r.Outcome())
	var s api.Status
	if !r.decode(&s) {
		return
	}
	for _, m := range s.Nodes {
		if m.Voter && placeOf(m.ID) > l.w.cluster.Nodes-l.d.learners {
			l.w.Errorf("I1 durable: %s was never to vote, and does at %v, as %s says", m.ID, time.Since(began), node)
		}
	}
}
