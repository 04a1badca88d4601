package consul

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// catalogSource returns what show finds in the registry, which changes with a topic.
func (e *endpoints) catalogSource(t registry.Topic, show func(*registry.View) web.Found) web.Source {
	return web.SourceOf(e.Node, e.Service.View, show, func() (<-chan struct{}, func()) { return e.config.Coordination.WatchCatalog(t) })
}

// consulRead responds to a read of Consul's API from a source, at once or when it changes.
func (c call) consulRead(s web.Source) (any, error) {
	return c.readConsul(c.consulQuery(), true, s)
}

// labelConsul says how fresh a response is; staleAge is the age of a stale read's result. All headers must be there:
// the official client stops reading at the first missing one.
func (c call) labelConsul(read registry.Consistency, staleAge time.Duration) {
	health := c.Service.Health()
	age, consistency := health.Age, "consistent"
	if read == registry.Stale {
		age, consistency = staleAge, "stale"
	} else if health.Leads {
		age = 0
	}
	header := c.W.Header()
	header.Set("X-Consul-LastContact", strconv.FormatInt(age.Milliseconds(), 10))
	header.Set("X-Consul-KnownLeader", strconv.FormatBool(health.Quorum))
	policy := "allow"
	if c.AccessMode() == access.On {
		policy = "deny"
	}
	header.Set("X-Consul-Default-ACL-Policy", policy)
	header.Set("X-Consul-Effective-Consistency", consistency)
	if c.fromCache {
		header.Set("X-Cache", "HIT")
		header.Set("Age", fmt.Sprintf("%.0f", age.Seconds()))
	}
}

// cached makes an endpoint of a read that Consul's agents have a cache for. Here this node's own state is that cache:
// like Consul's it follows the servers, and is older only while this node hears nothing from them.
func cached(e endpoint) endpoint {
	return func(c call) (any, error) {
		_, wanted := c.Lookup("cached")
		if wanted {
			health := c.Service.Health()
			c.fromCache = health.Ready && c.keepsAge(health) && health.Age <= c.maxAge()
			if !c.fromCache {
				c.W.Header().Set("X-Cache", "MISS")
			}
		}
		if c.Err != nil {
			return nil, c.Err
		}
		return e(c)
	}
}

// keepsAge reports whether a read may trust the age of this node's state. While the age is a guess, only a read with
// unheard may: its caller wants to see whatever there is.
func (c call) keepsAge(h registry.Health) bool { return !h.Unheard || web.KnowsUnheard(c.R.Context()) }

// maxAge reads how old a cached response may be, from the header Cache-Control.
func (c call) maxAge() time.Duration {
	limit := time.Duration(math.MaxInt64)
	for text := range strings.SplitSeq(strings.ToLower(c.R.Header.Get("Cache-Control")), ",") {
		directive, value, _ := strings.Cut(strings.TrimSpace(text), "=")
		switch directive {
		case "must-revalidate":
			return -1
		case "max-age":
			seconds, err := strconv.ParseUint(value, 10, 31)
			if err != nil {
				c.Refuse("Invalid Cache-Control header.")
			}
			if seconds == 0 {
				return -1
			}
			limit = time.Duration(seconds) * time.Second
		}
	}
	return limit
}

// readConsul responds to a read as fresh as its query asks for, at once or when the result changes. If indexed, the
// response says after which index the next one may wait.
func (c call) readConsul(q web.Query, indexed bool, s web.Source) (any, error) {
	if c.Err != nil {
		return nil, c.Err
	}
	f, err := c.ReadOrWait(q, s)
	if err != nil {
		return nil, err
	}
	if indexed {
		c.W.Header().Set("X-Consul-Index", strconv.FormatUint(max(f.Index, 1), 10))
	}
	c.labelConsul(q.Read, f.Age)
	document, err := c.DocumentOf(f)
	return document, cmp.Or(err, c.Err) // a filter may have failed
}

// consulQuery reads the parameters that all reads share.
func (c call) consulQuery() web.Query {
	q := web.Query{Read: c.consulFreshness(), Wait: web.DefaultWait}
	if text := c.Text("index"); text != "" && text != "-1" { // some Java clients begin with -1
		after, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			c.Refuse("Invalid index")
		}
		q.After = after
	}
	if text := c.Text("wait"); text != "" {
		wait, err := time.ParseDuration(text)
		if err != nil {
			c.Refuse("Invalid wait time")
		}
		if wait > 0 {
			q.Wait = min(wait, web.MaxWait)
		}
	}
	return q
}

// consulFreshness decides whether this node's own state may serve a read. A read with a maximum age becomes an
// ordinary one where this node's state may be older.
func (c call) consulFreshness() registry.Consistency {
	_, stale := c.Lookup("stale")
	_, consistent := c.Lookup("consistent")
	text, bounded := c.Lookup("max_stale")
	if (stale || bounded) && consistent {
		c.Refuse("Cannot specify ?stale with ?consistent, conflicting semantics.")
	}
	if _, cached := c.Lookup("cached"); cached && consistent {
		c.Refuse("Cannot specify ?cached with ?consistent, conflicting semantics.")
	}
	if bounded {
		limit, err := time.ParseDuration(text)
		if err != nil {
			c.Refuse("Invalid max_stale value \"%s\"", text)
		}
		health := c.Service.Health()
		stale = c.keepsAge(health) && health.Age <= limit
	}
	if stale || c.fromCache {
		return registry.Stale
	}
	return registry.Linearizable
}

// Consul's clients show the text of an error, and give meaning to some texts and statuses: the holder of a lock goes
// on after a 500, and after nothing else (hashicorp/consul, api/api.go, IsRetryableError).

// readValue reads the value of a key, or the body of a transaction, unchanged.
func (c call) readValue() ([]byte, error) {
	size := strconv.FormatInt(c.R.ContentLength, 10)
	if c.R.ContentLength <= kv.MaxValue {
		value, err := c.RawBody(kv.MaxValue + 1)
		if err != nil || len(value) <= kv.MaxValue {
			return value, err
		}
		size = fmt.Sprintf("more than %d", kv.MaxValue)
	}
	text := fmt.Sprintf("Request body(%s bytes) too large, max size: %d bytes. See docs/reference/protocol/coordination.md.", size, kv.MaxValue)
	return nil, &web.Refusal{Status: http.StatusRequestEntityTooLarge, Text: text}
}

// newest waits for a leader as long as Consul's clients need.
func (c call) newest() (v *registry.View, err error) {
	_, err = web.ReadOnce(c.R.Context(), web.Query{Read: registry.Linearizable}, c.catalogSource(registry.Topic{Kind: registry.AllTopic}, func(newest *registry.View) web.Found {
		v = newest
		return web.Found{}
	}))
	return v, err
}
