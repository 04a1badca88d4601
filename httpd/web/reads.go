package web

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// FreshView is a view and how it was read.
type FreshView struct {
	*registry.View
	read registry.Consistency
	age  time.Duration // time since this node was known to be current; for leader and stale reads
}

// View is Read with a label in the response's header that says how fresh the view is.
func (c *Call) View() FreshView {
	v := c.Read()
	if c.Err == nil {
		v.Label(c.W.Header(), v.Index())
	}
	return v
}

// Newest returns a linearizable view; without consensus, which offers no such reads, it returns what this node has.
func (n *Node) Newest(ctx context.Context) (FreshView, error) {
	v, err := n.ViewAt(ctx, registry.Linearizable)
	if errors.Is(err, registry.ErrNotOffered) {
		return n.ViewAt(ctx, registry.Stale)
	}
	return v, err
}

// newestOrStale is Newest, but does not wait for a quorum that is known to be lost.
func (n *Node) newestOrStale(ctx context.Context) (FreshView, error) {
	if n.Service.Health().Quorum {
		v, err := n.Newest(ctx)
		if err == nil || !errors.Is(err, registry.ErrNoLeader) {
			return v, err
		}
	}
	return n.ViewAt(ctx, registry.Stale)
}

// ViewAt returns a view as fresh as read says.
func (n *Node) ViewAt(ctx context.Context, read registry.Consistency) (FreshView, error) {
	v, age, err := ViewWithAge(ctx, n, n.Service.View, read)
	return FreshView{View: v, read: read, age: age}, err
}

// viewer shows one half of the state: instances, or sessions and keys.
type viewer[V any] func(ctx context.Context, read registry.Consistency) (V, error)

// ViewWithAge returns a view of one half of the state. The age is read first, so no view is older than it says.
func ViewWithAge[V any](ctx context.Context, n *Node, view viewer[V], read registry.Consistency) (v V, age time.Duration, err error) {
	health := n.Service.Health()
	if read == registry.Stale && health.Unheard {
		if err := n.Known(ctx); err != nil {
			return v, 0, err
		}
		health = n.Service.Health()
	}
	v, err = view(ctx, read)
	return v, health.Age, readError(err)
}

// errUnheard is the cause of a stale read's refusal.
var errUnheard = errors.New("this node has started, and has not caught up with a leader yet")

// Known makes sure that this node has heard from a leader since its start: until then its state may lack anything. It
// waits as a linearizable read does.
func (n *Node) Known(ctx context.Context) error {
	if KnowsUnheard(ctx) || !n.Service.Health().Unheard {
		return nil
	}
	if _, err := n.Service.View(ctx, registry.Linearizable); err != nil {
		return errors.Join(errUnheard, readError(err))
	}
	return nil
}

// Find looks something up in this node's state. Only a state with everything acknowledged before proves that it is
// missing, which costs a round trip in this case alone; without consensus, nothing can prove it.
func Find[T any](ctx context.Context, n *Node, find func() *T) (*T, error) {
	if found := find(); found != nil {
		return found, nil
	}
	if _, err := n.Newest(ctx); err != nil {
		return nil, err
	}
	return find(), judgeRead(ctx)
}

// Label puts the view's freshness into the response's header. index belongs to the document sent, which may be newer
// than the view.
func (v FreshView) Label(header http.Header, index registry.Index) {
	LabelFreshness(header, FormatIndex(v.Epoch(), index), v.read, v.age)
}

// LabelFreshness says in a response's header how fresh the response is.
func LabelFreshness(header http.Header, index string, read registry.Consistency, age time.Duration) {
	header.Set("X-Rollcall-Index", index)
	header.Set("X-Rollcall-Consistency", read.String())
	if read != registry.Linearizable {
		header.Set("X-Rollcall-Age", strconv.FormatFloat(age.Seconds(), 'f', 3, 64))
	}
}

// FormatIndex writes an index with the history that it belongs to.
func FormatIndex(epoch string, index registry.Index) string {
	return epoch + "-" + strconv.FormatUint(uint64(index), 10)
}

// Read reads the registry as fresh as the call asks for, or as the settings say.
func (c *Call) Read() (v FreshView) {
	read, asked := c.Consistency()
	switch {
	case c.Err != nil:
	case asked:
		v, c.Err = c.node.ViewAt(c.R.Context(), read)
	case c.node.Reads == ReadsStale:
		v, c.Err = c.node.ViewAt(c.R.Context(), registry.Stale)
	case c.node.Reads == ReadsStaleWithoutQuorum:
		v, c.Err = c.node.newestOrStale(c.R.Context())
	default:
		v, c.Err = c.node.Newest(c.R.Context())
	}
	if c.Err == nil {
		c.Err = judgeRead(c.R.Context())
	}
	return v
}

// Epoch names the history that this node's indexes belong to.
func (n *Node) Epoch() string {
	if v := StaleView(n.Service); v != nil {
		return v.Epoch()
	}
	return ""
}

// EurekaReads says how fresh the reads of stock Eureka clients are, which cannot ask for it themselves (setting
// reads.eureka).
type EurekaReads string

// The settings of reads.eureka.
const (
	// ReadsLinearizable, the default, responds with 503 without a quorum; stock clients then go on with what they
	// have.
	ReadsLinearizable EurekaReads = "linearizable"
	// ReadsStaleWithoutQuorum is linearizable, but without a quorum shows what this node has, labelled stale.
	ReadsStaleWithoutQuorum EurekaReads = "stale-without-quorum"
	// ReadsStale always shows what this node has.
	ReadsStale EurekaReads = "stale"
)

// LeasesOf returns the leases of one application, or of all if app is empty.
func LeasesOf(v *registry.View, app string) iter.Seq[*registry.Lease] {
	if app == "" {
		return v.Leases()
	}
	a, ok := v.App(app)
	if !ok {
		return func(func(*registry.Lease) bool) {}
	}
	return a.Leases()
}

// ViewAfterWrite shows at least what was just written; without a quorum, what this node has.
func (n *Node) ViewAfterWrite(ctx context.Context) (FreshView, error) {
	return n.newestOrStale(EvenUnheard(ctx))
}

// readError adds the outcome to the error of a View: a read that took too long found no leader.
func readError(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return errors.Join(registry.ErrNoLeader, err)
	}
	return err
}

// WeightOf returns the approximate size of leases in a response, in bytes.
func WeightOf(leases iter.Seq[*registry.Lease]) (bytes int) {
	for l := range leases {
		bytes += l.Weight()
	}
	return bytes
}

// leaderWait is how long Consul's API waits for a leader before it fails, and leaderPause the shortest time between
// two tries. Consul's client library gives up a lock at the first error.
const (
	leaderWait  = 7 * time.Second
	leaderPause = 50 * time.Millisecond
)

// untilLeader tries until there is a leader, for up to leaderWait. A try that failed without a leader did nothing, so
// it can be repeated.
func untilLeader[T any](ctx context.Context, try func(context.Context) (T, error)) (T, error) {
	end := time.Now().Add(leaderWait)
	if ctx.Value(soonKey{}) != nil {
		end = time.Now()
	}
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
