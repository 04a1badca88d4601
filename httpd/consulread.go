package httpd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// leaderWait is how long Consul's API waits for a leader before it fails, and leaderPause the least
// time between two tries. The library of Consul's clients gives a lock up at the first error.
const (
	leaderWait  = 7 * time.Second
	leaderPause = 50 * time.Millisecond
)

// found is what a read found.
type found struct {
	// index is by what a blocking query for the same thing goes on.
	index uint64
	// absent: there is nothing. Who waits for something that stays absent is left waiting.
	absent bool
	answer func() (any, error) // its document
	// weight is what the answer will show, in bytes, about; nil: it is small, or written in pieces.
	weight func() int
	// age is how old what a stale read found can be: it was looked at before, so that nothing is older
	// than it says.
	age time.Duration
}

// source is what can be read, and waited for.
type source struct {
	// join begins to wait for a change. It is called before read, so that no change is missed.
	join func() (woken <-chan struct{}, leave func())
	read func(ctx context.Context, read registry.Consistency) (found, error)
}

// keySource is what show finds in the state of sessions and keys, which changes with topic.
func (h *Handler) keySource(topic kv.Topic, show func(*kv.View) found) source {
	return sourceOf(h, h.config.Coordination.View, show, func() (<-chan struct{}, func()) {
		wait := h.config.Coordination.Watch(topic)
		return wait.Woken(), wait.Leave
	})
}

// catalogSource is what show finds in the registry, which changes with an application (upper case; "":
// any), a node or a node's check.
func (h *Handler) catalogSource(app string, show func(*registry.View) found) source {
	return sourceOf(h, h.config.Service.View, show, func() (<-chan struct{}, func()) { return h.config.Coordination.WatchCatalog(app) })
}

// sourceOf is what show finds in views of one half of the state.
func sourceOf[V any](h *Handler, view viewer[V], show func(V) found, join func() (<-chan struct{}, func())) source {
	return source{join: join, read: func(ctx context.Context, read registry.Consistency) (found, error) {
		v, age, err := look(ctx, h, view, read)
		if err != nil {
			return found{}, err
		}
		f := show(v)
		f.age = age
		return f, nil
	}}
}

// consulRead answers a reading request of Consul's API from a source, at once or when it changes.
func (c *call) consulRead(s source) (any, error) {
	q := c.consulQuery()
	q.indexed = true
	return c.readConsul(q, s)
}

// answer is the document of what was found.
func (c *call) answer(f found) (any, error) {
	if f.weight != nil {
		if err := c.reserve(f.weight()); err != nil {
			return nil, err
		}
	}
	return f.answer()
}

// labelConsul says how fresh an answer is; staleAge is that of what a stale read found. All of it must be
// there: the official client stops reading at the first header that is missing.
func (c *call) labelConsul(read registry.Consistency, staleAge time.Duration) {
	health := c.config.Service.Health()
	age, consistency := health.Age, "consistent"
	if read == registry.Stale {
		age, consistency = staleAge, "stale"
	} else if health.Leads {
		age = 0
	}
	header := c.w.Header()
	header.Set("X-Consul-LastContact", strconv.FormatInt(age.Milliseconds(), 10))
	header.Set("X-Consul-KnownLeader", strconv.FormatBool(health.Quorum))
	header.Set("X-Consul-Default-ACL-Policy", "allow")
	header.Set("X-Consul-Effective-Consistency", consistency)
}

// findOrWait reads a source, and waits for a change if the request asks for one that is newer.
func (c *call) findOrWait(q consulQuery, s source) (found, error) {
	if q.after == 0 {
		return evaluate(c.r.Context(), q, s)
	}
	ctx, done, err := c.watches.begin(c.r)
	if err != nil {
		return found{}, err
	}
	defer done()
	// The server's time limit for a whole answer would cut a wait off.
	out := newWatchWriter(c.w, c.watches.pace)
	out.pause()
	defer out.end()
	return block(ctx, q, s)
}

// block reads a source until its index is higher than the query's, its time is over or the context
// ends: at shutdown, the answer is what was read last.
func block(ctx context.Context, q consulQuery, s source) (found, error) {
	timer := time.NewTimer(jittered(q.wait))
	defer timer.Stop()
	var last found
	for turn, over := 0, false; ; turn++ {
		woken, leave := s.join()
		now, err := evaluate(ctx, q, s)
		if err != nil {
			leave()
			return lastOr(last, turn, ctx, err)
		}
		if turn > 0 && last.absent && now.absent {
			q.after = max(q.after, now.index) // other keys changed, not this one
		}
		last = now
		if over || now.index > q.after {
			leave()
			return now, nil
		}
		select {
		case <-woken:
		case <-timer.C:
			over = true
		case <-ctx.Done():
			leave()
			return now, nil
		}
		leave()
	}
}

// lastOr is what was read last, for those whom a shutdown disturbs in a later turn.
func lastOr(last found, turn int, ctx context.Context, err error) (found, error) {
	if ctx.Err() == nil {
		return found{}, err
	}
	if turn == 0 {
		return found{}, errors.Join(registry.ErrClosed, err)
	}
	return last, nil
}

// evaluate reads a source once, as fresh as the query asks for.
func evaluate(ctx context.Context, q consulQuery, s source) (found, error) {
	if q.read == registry.Stale || q.soon {
		return s.read(ctx, q.read)
	}
	return untilLeader(ctx, func(ctx context.Context) (found, error) {
		ctx, cancel := context.WithTimeout(ctx, leaderWait)
		defer cancel()
		return s.read(ctx, q.read)
	})
}

// untilLeader tries until a leader was there, for up to leaderWait. What failed for want of one was not
// done, so it can be done again.
func untilLeader[T any](ctx context.Context, try func(context.Context) (T, error)) (T, error) {
	end := time.Now().Add(leaderWait)
	for {
		got, err := try(ctx)
		if !errors.Is(err, registry.ErrNoLeader) || errors.Is(err, registry.ErrUnknownOutcome) || time.Until(end) < leaderPause {
			return got, err
		}
		select {
		case <-time.After(leaderPause):
		case <-ctx.Done():
			return got, err
		}
	}
}

// readConsul answers a read as fresh as its query asks for, at once or when what is read changes.
func (c *call) readConsul(q consulQuery, s source) (any, error) {
	if c.err != nil {
		return nil, c.err
	}
	f, err := c.findOrWait(q, s)
	if err != nil {
		return nil, err
	}
	if q.indexed {
		c.w.Header().Set("X-Consul-Index", strconv.FormatUint(max(f.index, 1), 10))
	}
	c.labelConsul(q.read, f.age)
	return c.answer(f)
}

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

// Consul's clients show the text of an error, and take some texts and statuses for signs: whoever holds a
// lock goes on after a 500, and after nothing else (hashicorp/consul, api/api.go, IsRetryableError).

// consulError is a request that was understood and cannot be done.
func consulError(text string) error {
	return &refusal{status: http.StatusInternalServerError, text: text}
}

// errNoCoordination is the answer of a node without consensus.
var errNoCoordination = &refusal{
	status: http.StatusNotImplemented,
	text: "sessions, keys, locks and Consul's API need a cluster with consensus (mode cp): each node of this one accepts writes by itself, " +
		"so no lock could be exclusive; ask a cluster in mode cp",
}

// consulFailure is failureOf for Consul's API.
func consulFailure(err error) refusal {
	f := failureOf(err)
	switch {
	case f.text != "":
		if f.status == http.StatusServiceUnavailable {
			f.status = http.StatusInternalServerError // a lock holder would give up
		}
	case f.unknown:
		f.text = unknownText
	case errors.Is(err, registry.ErrClosed):
		f = refusal{status: http.StatusInternalServerError, text: "this node is shutting down; ask another one"}
	case errors.Is(err, registry.ErrNoLeader):
		f = refusal{status: http.StatusInternalServerError, text: "No cluster leader"}
	case f.status != http.StatusInternalServerError: // of which nothing is said
		f.text = http.StatusText(f.status)
	}
	return f
}

// respondConsul sends a document as JSON, indented if the call asks for it with pretty. True and false it sends as they
// are: clients look for the word.
func (c *call) respondConsul(document any) error {
	body, err := json.Marshal(document)
	if err != nil {
		return err
	}
	if _, word := document.(bool); !word && c.given("pretty") {
		var indented bytes.Buffer
		_ = json.Indent(&indented, body, "", "    ") // it was just encoded
		body = append(indented.Bytes(), '\n')
	}
	respond(c.w, c.r, cmp.Or(c.status, http.StatusOK), "application/json", body)
	return nil
}

// maxValue bounds the value of a key and the body of a transaction, in bytes.
const maxValue = 512 << 10

// readValue reads a body of at most maxValue bytes as it is.
func (c *call) readValue() ([]byte, error) {
	if c.r.ContentLength > maxValue {
		return nil, valueTooLarge(fmt.Sprintf("%d", c.r.ContentLength))
	}
	value, err := io.ReadAll(chargedReader{io.LimitReader(c.r.Body, maxValue+1), c.w})
	if err != nil {
		return nil, bodyError(err)
	}
	if len(value) > maxValue {
		return nil, valueTooLarge(fmt.Sprintf("more than %d", maxValue))
	}
	return value, nil
}

func valueTooLarge(size string) error {
	text := fmt.Sprintf("Request body(%s bytes) too large, max size: %d bytes. See docs/protocol/coordination.md.", size, maxValue)
	return &refusal{status: http.StatusRequestEntityTooLarge, text: text}
}
