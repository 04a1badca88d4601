package httpd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

// Peers is the replication between this node and other servers. Messages and answers are its own; the
// Handler carries them. Errors: *PeerRefusal, or those of registry.Service.
type Peers interface {
	// Receive applies what a peer sends and returns the answer.
	Receive(ctx context.Context, message []byte) ([]byte, error)
	// Compare answers a peer's digests with what differs here.
	Compare(ctx context.Context, message []byte) ([]byte, error)
	// State writes everything that this node has, for a node of its own datacenter that starts.
	State(ctx context.Context, datacenter string, w io.Writer) error
	// Cut is how long a Eureka server may be silent before its link counts as cut.
	Cut(server string) time.Duration

	// Status is the answer of GET /v1/rollcall/peers. Diff and Repair compare with a peer, Repair sends
	// what it lacks. Pause stops the sending to a peer or resumes it. Forget forgets what is known of a
	// sender's clock.
	Status(ctx context.Context) (api.Peers, error)
	Diff(ctx context.Context, peer string) (api.PeerDiff, error)
	Repair(ctx context.Context, peer string) (api.PeerDiff, error)
	Pause(ctx context.Context, peer string, paused bool, by registry.Act) error
	Forget(ctx context.Context, sender string, by registry.Act) error
}

// PeerRefusal is an error of Peers whose answer it knows.
type PeerRefusal struct {
	Status int    // of HTTP
	Text   string // for the caller
}

// Error implements error.
func (r *PeerRefusal) Error() string { return r.Text }

// compareLimit is how long a comparison with a peer may take: it asks for every application that
// differs, over whatever distance.
const compareLimit = 2 * time.Minute

// peers is GET /v1/rollcall/peers.
func (c *call) peers() (any, error) { return c.config.Peers.Status(c.r.Context()) }

// diffPeer is GET /v1/rollcall/peers/{name}/diff.
func (c *call) diffPeer() (any, error) { return c.comparePeer(c.config.Peers.Diff) }

// repairPeer is POST /v1/rollcall/peers/{name}/repair.
func (c *call) repairPeer() (any, error) { return c.comparePeer(c.config.Peers.Repair) }

// pausePeer is POST /v1/rollcall/peers/{name}/pause.
func (c *call) pausePeer() (any, error) { return c.setPaused(true) }

// resumePeer is POST /v1/rollcall/peers/{name}/resume.
func (c *call) resumePeer() (any, error) { return c.setPaused(false) }

// forgetSender is POST /v1/rollcall/peers/{name}/forget.
func (c *call) forgetSender() (any, error) {
	sender, by := c.segment("name"), c.by()
	if c.err != nil {
		return nil, c.err
	}
	if err := c.config.Peers.Forget(c.r.Context(), sender, by); err != nil {
		return nil, writeOutcome(err)
	}
	c.config.Log.Warn("an operator had the clock of a sender forgotten", "sender", sender, "author", by.Author, "reason", by.Reason)
	c.w.WriteHeader(http.StatusNoContent)
	return answered, nil
}

func (c *call) comparePeer(compare func(ctx context.Context, peer string) (api.PeerDiff, error)) (any, error) {
	ctx, cancel := context.WithTimeout(c.r.Context(), compareLimit)
	defer cancel()
	// A server's limit is for answers that need nobody else. A failure shows at the write.
	_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(compareLimit + pieceLimit))
	diff, err := compare(ctx, c.segment("name"))
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, &refusal{status: http.StatusServiceUnavailable, text: fmt.Sprintf("the comparison did not end within %v", compareLimit), cause: err}
	}
	return diff, err
}

func (c *call) setPaused(paused bool) (any, error) {
	name, by := c.segment("name"), c.by()
	if c.err != nil {
		return nil, c.err
	}
	if err := c.config.Peers.Pause(c.r.Context(), name, paused, by); err != nil {
		return nil, writeOutcome(err)
	}
	c.config.Log.Info("an operator paused or resumed a peer", "peer", name, "paused", paused, "author", by.Author, "reason", by.Reason)
	c.w.WriteHeader(http.StatusNoContent)
	return answered, nil
}

// statusPatience bounds what a page or an explanation waits for the state of replication, which
// another node may have to be asked for.
const statusPatience = time.Second

// peerStatus is the state of replication; empty if there is none or it cannot be told.
func (h *Handler) peerStatus(ctx context.Context) (s api.Peers) {
	if h.config.Peers == nil {
		return s
	}
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	s, err := h.config.Peers.Status(ctx)
	if err != nil {
		h.config.Log.Warn("the state of the peers cannot be shown", "err", err)
	}
	return s
}

// onCut is the policy for the leases of a peer while its link is cut; "" if it is no peer.
func onCut(s api.Peers, peer string) string {
	for _, p := range s.Peers {
		if p.Name == peer && p.Incoming != nil {
			return p.Incoming.OnCut
		}
	}
	return ""
}

// shownPeer is a peer on the front page.
type shownPeer struct {
	Name, Kind, State, Reason string
	LagChanges                uint64
	Lag, LastSuccess          string // LastSuccess is empty if there was none
	Incoming                  *shownIncoming
}

// shownIncoming is what comes from another datacenter.
type shownIncoming struct {
	Instances, Kept int
	Heard, OnCut    string // Heard is empty if it never was
	Cut             bool
}

func shownPeers(s api.Peers) []shownPeer {
	var shown []shownPeer
	for _, p := range s.Peers {
		row := shownPeer{Name: p.Name, Kind: p.Kind, State: p.State, Reason: p.Reason, LagChanges: p.LagChanges, Lag: shownSpan(p.LagMS)}
		if p.LastSuccess != 0 {
			row.LastSuccess = shownTime(p.LastSuccess)
		}
		if in := p.Incoming; in != nil {
			row.Incoming = &shownIncoming{Instances: in.Instances, Kept: in.Kept, OnCut: in.OnCut, Cut: in.Cut}
			if in.HeardMS != nil {
				row.Incoming.Heard = shownSpan(*in.HeardMS)
			}
		}
		shown = append(shown, row)
	}
	return shown
}

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
