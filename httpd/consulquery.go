package httpd

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Bounds of blocking queries (hashicorp/consul, agent/blockingquery/blockingquery.go).
const (
	defaultBlocking = 5 * time.Minute
	maxBlocking     = 10 * time.Minute
	jitterFraction  = 16 // up to this part of the wait is added
)

// consulQuery is how a reading request of Consul's API wants its answer.
type consulQuery struct {
	read    registry.Consistency // Linearizable or Stale
	soon    bool                 // fail soon if there is no leader
	after   uint64               // answer once the index is higher; 0: at once
	wait    time.Duration        // at most so long, without the jitter
	indexed bool                 // the answer says after which index the next one may wait
}

// jittered is a wait with a random part added, so that those who began together do not all come back
// together. It is never shorter.
func jittered(wait time.Duration) time.Duration {
	return wait + rand.N(wait/jitterFraction+1)
}

// consulQuery reads the parameters that all reads have in common.
func (c *call) consulQuery() (q consulQuery) {
	q.read = c.consulFreshness()
	q.after = c.after()
	q.wait = c.blocking()
	return q
}

// consulFreshness says whether a read may be answered from what this node has. One that may be only so old is
// answered like any other where this node's state may be older.
func (c *call) consulFreshness() registry.Consistency {
	_, stale := c.lookup("stale")
	_, consistent := c.lookup("consistent")
	text, bounded := c.lookup("max_stale")
	if (stale || bounded) && consistent {
		c.refuse("Cannot specify ?stale with ?consistent, conflicting semantics.")
	}
	if bounded {
		limit, err := time.ParseDuration(text)
		if err != nil {
			c.refuse("Invalid max_stale value \"%s\"", text)
		}
		stale = c.config.Service.Health().Age <= limit
	}
	if stale {
		return registry.Stale
	}
	return registry.Linearizable
}

// after reads an index. Some Java clients begin with -1.
func (q *query) after() uint64 {
	text := q.text("index")
	if text == "" || text == "-1" {
		return 0
	}
	after, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		q.refuse("Invalid index")
	}
	return after
}

// blocking reads how long a read may wait for a change.
func (q *query) blocking() time.Duration {
	text := q.text("wait")
	if text == "" {
		return defaultBlocking
	}
	wait, err := time.ParseDuration(text)
	if err != nil {
		q.refuse("Invalid wait time")
	}
	if wait <= 0 {
		return defaultBlocking
	}
	return min(wait, maxBlocking)
}
