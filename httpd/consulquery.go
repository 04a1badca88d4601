package httpd

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// Bounds of blocking queries (hashicorp/consul, agent/blockingquery/blockingquery.go).
const (
	defaultBlocking = 5 * time.Minute
	maxBlocking     = 10 * time.Minute
	jitterFraction  = 16 // up to this part of the wait is added
)

// consulQuery is how a reading request of Consul's API wants its answer.
type consulQuery struct {
	stale bool
	soon  bool          // fail soon if there is no leader
	after uint64        // answer once the index is higher; 0: at once
	wait  time.Duration // at most so long, without the jitter
}

// readConsulQuery reads the parameters that all reads have in common.
func (h *Handler) readConsulQuery(r *http.Request) (q consulQuery, err error) {
	if q.stale, err = h.staleMode(r.URL.RawQuery); err != nil {
		return q, err
	}
	text, _, err := param(r.URL.RawQuery, "index")
	if err != nil {
		return q, err
	}
	if q.after, err = parseAfter(text); err != nil {
		return q, err
	}
	if text, _, err = param(r.URL.RawQuery, "wait"); err != nil {
		return q, err
	}
	q.wait, err = parseBlocking(text)
	return q, err
}

// staleMode says whether a read may be answered from what this node has. One that may be only so old is
// answered like any other where this node's state may be older.
func (h *Handler) staleMode(query string) (bool, error) {
	_, stale, err := param(query, "stale")
	if err != nil {
		return false, err
	}
	_, consistent, err := param(query, "consistent")
	if err != nil {
		return false, err
	}
	text, bounded, err := param(query, "max_stale")
	if err != nil {
		return false, err
	}
	if (stale || bounded) && consistent {
		return false, badRequest("Cannot specify ?stale with ?consistent, conflicting semantics.")
	}
	if !bounded {
		return stale, nil
	}
	limit, err := time.ParseDuration(text)
	if err != nil {
		return false, badRequest("Invalid max_stale value \"" + text + "\"")
	}
	return h.config.Service.Health().Age <= limit, nil
}

// parseAfter reads an index. Some Java clients begin with -1.
func parseAfter(text string) (uint64, error) {
	if text == "" || text == "-1" {
		return 0, nil
	}
	after, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, badRequest("Invalid index")
	}
	return after, nil
}

func parseBlocking(text string) (time.Duration, error) {
	if text == "" {
		return defaultBlocking, nil
	}
	wait, err := time.ParseDuration(text)
	if err != nil {
		return 0, badRequest("Invalid wait time")
	}
	if wait <= 0 {
		return defaultBlocking, nil
	}
	return min(wait, maxBlocking), nil
}

// jittered is a wait with a random part added, so that those who began together do not all come back
// together. It is never shorter.
func jittered(wait time.Duration) time.Duration {
	return wait + rand.N(wait/jitterFraction+1)
}
