package httpd

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// statePiece is the size in bytes of what a node that copies the state is sent at a time.
const statePiece = 64 << 10

// withPeers is an endpoint of a node that has peers.
func withPeers(e endpoint) endpoint {
	return func(c *call) (any, error) {
		if c.config.Peers == nil {
			return nil, errNoPeers
		}
		return e(c)
	}
}

var errNoPeers = &refusal{status: http.StatusNotImplemented, text: "this node replicates nothing: no peer is configured (replication.nodes, replication.datacenters, replication.eureka)"}

// exchange is a message of a peer and its answer: POST /v1/rollcall/replication and …/digest. One
// whose outcome nobody knows is answered like one that was not applied: all that a peer sends can be
// sent again.
func exchange(answerTo func(p Peers, ctx context.Context, message []byte) ([]byte, error)) endpoint {
	return ofBatches(messagePatience, withPeers(func(c *call) (any, error) {
		message := c.body(c.config.Limits.BatchBytes)
		if c.err != nil {
			return nil, c.err
		}
		answer, err := answerTo(c.config.Peers, c.r.Context(), message)
		if err != nil {
			return nil, retryBatch(writeOutcome(err))
		}
		respond(c.w, c.r, http.StatusOK, "application/octet-stream", answer)
		return answered, nil
	}))
}

// replicationState is GET /v1/rollcall/replication/state: everything that this node has, for one that
// starts. An answer that has begun and cannot be finished breaks off.
func (c *call) replicationState() (any, error) {
	datacenter := c.text("datacenter")
	if c.err != nil {
		return nil, c.err
	}
	c.w.Header().Set("Content-Type", "application/octet-stream")
	c.w.Header().Set("X-Content-Type-Options", "nosniff")
	out := newPieceWriter(c.w)
	buffered := bufio.NewWriterSize(out, statePiece)
	err := c.config.Peers.State(c.r.Context(), datacenter, buffered)
	if err == nil {
		err = buffered.Flush()
	}
	if err != nil && out.begun {
		c.config.Log.Warn("a copy of the state broke off", "to", c.r.RemoteAddr, "err", err)
		panic(http.ErrAbortHandler)
	}
	return answered, err
}

// What Eureka servers send comes in two forms: batches, and single calls of clients' routes with a
// header. (Other Rollcall servers have an endpoint of their own.)

// isReplication says that another server had the request first. Exactly true counts, as upstream.
func isReplication(r *http.Request) bool {
	values := r.Header["X-Netflix-Discovery-Replication"]
	return len(values) > 0 && values[0] == "true"
}

// originOf says who sent a request of Eureka's protocol other than a batch.
func (h *Handler) originOf(r *http.Request) registry.Origin {
	if isReplication(r) {
		return h.serverOf(r)
	}
	return registry.FromClient
}

// serverOf is the origin of what a Eureka server sends: a datacenter of its own.
func (h *Handler) serverOf(r *http.Request) registry.Origin {
	if h.config.EurekaSender == nil {
		return registry.FromEureka
	}
	return registry.Origin{
		Kind: registry.RemoteDC,
		DC:   h.config.EurekaSender(r.Header.Get("DiscoveryIdentity-Id"), r.RemoteAddr),
	}
}

// contactEvery is how often it is noted that a Eureka server was heard, ms of lease clock.
const contactEvery = 1000

// perform applies operations of a request in order, as one unit of work. What a Eureka server sends
// also shows that its link is alive, which is noted with it.
func (h *Handler) perform(ctx context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	if !origin.Replicated() || !h.contactIsDue(origin.DC) {
		return h.config.Service.Apply(ctx, origin, ops...)
	}
	contact := registry.Contact{DC: origin.DC, Cut: h.config.Peers.Cut(origin.DC).Milliseconds()}
	results, err := h.config.Service.Apply(ctx, origin, append([]registry.Op{contact}, ops...)...)
	if err != nil {
		return nil, err
	}
	return results[1:], nil
}

// contactIsDue says whether the last contact with a Eureka server, as this node knows it, is old.
// Without replication nobody asks for it.
func (h *Handler) contactIsDue(server string) bool {
	if h.config.Peers == nil {
		return false
	}
	v := staleView(h.config.Service)
	if v == nil {
		return false
	}
	link, known := v.Link(server)
	return !known || h.config.Service.Health().Clock-link.Heard > contactEvery
}

// errForeign: a position belongs to another history than this node's. Fetch everything.
var errForeign = errors.New("index of another history")

// maxRead bounds what a feed returns at once, in changes: what a watcher holds in memory while it is
// sent to.
const maxRead = 2048

// feed reads the change list for one watcher. It has no queue of its own: what it did not read yet
// stays in the change list, which has each instance once, however far the watcher is behind.
type feed struct {
	service registry.Service
	which   registry.Selector
	at      position // everything selected up to here was returned
	more    bool     // the last read was cut off at maxRead
}

// next returns the next changes, oldest first, at most maxRead, and moves the feed behind them. It
// waits for them, but not longer than patience; none means that nothing selected changed up to where
// the feed is now. Errors: registry.ErrTooOld, errForeign, registry.ErrClosed or ctx's.
func (f *feed) next(ctx context.Context, patience time.Duration) ([]registry.Change, error) {
	changes, err := f.read()
	if err != nil || len(changes) > 0 || patience == 0 {
		return changes, err
	}
	waiting, stop := context.WithTimeout(ctx, patience)
	defer stop()
	news, err := f.service.Changes(waiting, f.at.index, f.which)
	switch {
	case err == nil:
		return f.take(news.View, news.Items)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		return f.read()
	}
	return nil, err
}

// read is next without the wait.
func (f *feed) read() ([]registry.Change, error) {
	v := staleView(f.service)
	if v == nil {
		return nil, registry.ErrClosed
	}
	if v.Epoch() != f.at.epoch {
		return nil, errForeign // its index says nothing here
	}
	changes, err := v.ChangesOf(f.at.index, f.which)
	if err != nil {
		return nil, err
	}
	return f.take(v, changes)
}

// take moves the feed behind changes, which v contains.
func (f *feed) take(v *registry.View, changes []registry.Change) ([]registry.Change, error) {
	if v.Epoch() != f.at.epoch {
		return nil, errForeign
	}
	if f.more = len(changes) > maxRead; f.more {
		changes = slices.Clone(changes[:maxRead]) // the rest is not to be kept alive
		f.at.index = changes[maxRead-1].Index
		return changes, nil
	}
	f.at.index = max(f.at.index, v.Index())
	return changes, nil
}

// restart makes the feed go on from what this node has now, after everything was fetched.
func (f *feed) restart() error {
	v := staleView(f.service)
	if v == nil {
		return registry.ErrClosed
	}
	f.at, f.more = positionOf(v), false
	return nil
}

// lost is the metrics' word for why a watcher must fetch everything; "" if err says no such thing.
func lost(err error) string {
	switch {
	case errors.Is(err, registry.ErrTooOld):
		return "too_old"
	case errors.Is(err, errForeign):
		return "foreign"
	}
	return ""
}

// lostText is lost for whoever watches.
var lostText = map[string]string{
	"too_old": "the index is too old: removals after it are forgotten; fetch everything and go on from this index",
	"foreign": "the index belongs to another history of the registry; fetch everything and go on from this index",
	"slow":    "you read too slowly; fetch everything and watch again",
}

// position is an index with the history that it belongs to: what a watcher names to go on from.
type position struct {
	epoch string
	index registry.Index
}

func positionOf(v *registry.View) position { return position{v.Epoch(), v.Index()} }

// String is the form on the wire, epoch-index, as in X-Rollcall-Index.
func (p position) String() string { return formatIndex(p.epoch, p.index) }

// parsePosition is the inverse of String and takes nothing else: an index has one spelling. The
// epoch is cut off at the last dash, for it may have dashes of its own.
func parsePosition(text string) (position, error) {
	dash := strings.LastIndexByte(text, '-')
	if dash < 0 || len(text) > maxNameBytes || !utf8.ValidString(text) || strings.IndexFunc(text, unicode.IsControl) >= 0 {
		return position{}, errPosition
	}
	number, err := strconv.ParseUint(text[dash+1:], 10, 64)
	if err != nil || strconv.FormatUint(number, 10) != text[dash+1:] {
		return position{}, errPosition
	}
	return position{epoch: text[:dash], index: registry.Index(number)}, nil
}

var errPosition = badRequest("index must be one that an answer or an event gave: epoch-index, with the index in decimal")

// position reads a position from a text that a caller gave.
func (q *query) position(text string) (p position) {
	if q.err == nil {
		p, q.err = parsePosition(text)
	}
	return p
}
