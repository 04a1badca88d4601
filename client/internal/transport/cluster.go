package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/internal/wait"
)

// Config holds the settings of client.Config with their defaults, already checked by client.Config.Validate.
type Config struct {
	Servers        []string
	Source         Source // nil if the servers do not change
	SourceInterval time.Duration
	InOrder        bool
	Timeout        time.Duration
	Consistency    string
	Auth           Auth // nil for what each server's URL says
	TLS            *tls.Config
	HTTPClient     *http.Client // nil for one with connections of its own
	Log            *slog.Logger
	// Refused turns a refusal into the error that users see.
	Refused func(Refusal) error
}

// Cluster sends calls to the servers of one cluster. It is safe for concurrent use.
type Cluster struct {
	config  Config
	servers *serverList
	lookup  *lookup // nil if the servers do not change
	http    *http.Client
	endHTTP func() // at the end

	requests    *prometheus.HistogramVec // seconds of tries, by operation and outcome
	quarantined prometheus.GaugeFunc

	life   context.Context // ends with Close, with the cause ErrClosed
	cancel context.CancelCauseFunc
}

// New returns a Cluster. It sends nothing and starts nothing.
func New(config Config) *Cluster {
	c := &Cluster{config: config, servers: newServerList(config.Servers, config.InOrder)}
	c.http, c.endHTTP = config.httpClient()
	if config.Source != nil {
		c.lookup = &lookup{
			source: config.Source, interval: config.SourceInterval, servers: c.servers, timeout: config.Timeout, log: config.Log,
			asked: time.Now(), outage: wait.Outage{Log: config.Log},
		}
	}
	c.requests = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "rollcall_client_request_duration_seconds", Help: "Time that one try at one server took, by operation and outcome.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
	}, []string{"operation", "outcome"})
	c.quarantined = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rollcall_client_servers_quarantined", Help: "Servers that are asked last because they gave no answer.",
	}, func() float64 { return float64(c.Quarantined()) })
	c.life, c.cancel = context.WithCancelCause(context.Background())
	return c
}

// Close cuts off every call in progress (ErrClosed), and closes the connections, unless Config.HTTPClient was given.
func (c *Cluster) Close() {
	c.cancel(ErrClosed)
	c.endHTTP()
}

// Life returns a context that ends with Close.
func (c *Cluster) Life() context.Context { return c.life }

func (c *Cluster) Timeout() time.Duration { return c.config.Timeout }

// Reading makes a call a read at Config.Consistency.
func (c *Cluster) Reading(q *Call) *Call { return q.With("consistency", c.config.Consistency) }

// Replace replaces the servers. The error joins every mistake; then nothing has changed.
func (c *Cluster) Replace(urls []string) error {
	_, err := c.servers.replace(urls)
	return err
}

// Known returns the servers known now, the best first, without asking Config.Source.
func (c *Cluster) Known() []*Server { return c.servers.order() }

// Sibling returns the server at another address (host:port) of the cluster.
func (c *Cluster) Sibling(address string) *Server { return c.servers.sibling(address) }

// Responded records that a server has responded, if that is known before a try ends.
func (c *Cluster) Responded(s *Server) { c.servers.responded(s) }

// Quarantined returns how many servers are asked last because they did not respond.
func (c *Cluster) Quarantined() int { return c.servers.quarantined() }

// Candidates returns the servers to ask, the best first. There is at least one.
func (c *Cluster) Candidates(ctx context.Context) ([]*Server, error) {
	if c.lookup == nil {
		return c.servers.order(), nil
	}
	ctx, done := wait.Either(ctx, c.life)
	defer done()
	if c.servers.empty() {
		if err := c.lookup.ask(ctx); err != nil {
			return nil, err
		}
	} else {
		c.lookup.askIfDue(ctx)
	}
	return c.servers.order(), nil
}

// newcomers returns the servers that the source names now, after those asked did not respond.
func (c *Cluster) newcomers(ctx context.Context, asked []*Server) []*Server {
	if c.lookup == nil {
		return nil
	}
	ctx, done := wait.Either(ctx, c.life)
	defer done()
	if c.lookup.ask(ctx) != nil {
		return nil // which it logs
	}
	return slices.DeleteFunc(c.servers.order(), func(s *Server) bool { return slices.ContainsFunc(asked, s.same) })
}

// ToWatch returns the servers to watch, the best first, after a number of failures in a row. There is at least
// one. As for a call, the source is asked for others when all may have failed.
func (c *Cluster) ToWatch(ctx context.Context, failures int) ([]*Server, error) {
	servers, err := c.Candidates(ctx)
	if err != nil {
		return nil, err
	}
	if failures >= len(servers) {
		servers = append(c.newcomers(ctx, servers), servers...)
	}
	return servers, nil
}

// Has reports whether a server still belongs to the cluster.
func (c *Cluster) Has(ctx context.Context, s *Server) bool {
	servers, err := c.Candidates(ctx)
	return err != nil || slices.ContainsFunc(servers, s.same)
}

// ServerOf returns the server that sent a response, or nil if it no longer belongs to the cluster.
func (c *Cluster) ServerOf(a Response) *Server {
	for _, s := range c.servers.order() {
		if s.URL == a.Server {
			return s
		}
	}
	return nil
}

// do sends a call to the best server, and to the others while none responds. It stops at an unknown outcome, because
// a server has already spent its time on the call.
func (c *Cluster) do(ctx context.Context, q *Call) (Response, error) {
	if c.life.Err() != nil {
		return Response{}, ErrClosed
	}
	servers, err := c.Candidates(ctx)
	if err != nil {
		return Response{}, err
	}
	t := &tour{cluster: c, call: q}
	a, ok := t.visit(ctx, servers)
	if !ok && !t.over {
		a, ok = t.visit(ctx, c.newcomers(ctx, servers))
	}
	if !ok {
		return Response{}, t.failure()
	}
	return a, nil
}

// tour is a call on its way from server to server.
type tour struct {
	cluster  *Cluster
	call     *Call
	errs     []error // one for each server that was visited
	possible bool    // a try may have taken effect
	over     bool    // no other server would do better
}

// visit asks servers until one responds.
func (t *tour) visit(ctx context.Context, servers []*Server) (Response, bool) {
	for _, s := range servers {
		a, err := t.cluster.try(ctx, s, t.call)
		if err == nil {
			a.Repeated = a.Repeated || t.possible
			return a, true
		}
		t.possible = t.possible || t.call.Write && t.call.mayHaveWritten(err)
		t.errs = append(t.errs, err)
		t.over = ctx.Err() != nil || errors.Is(err, ErrUnknownOutcome) || errors.Is(err, ErrClosed) || errors.As(err, new(conclusive)) || t.possible && t.call.Once
		if t.over {
			break
		}
	}
	return Response{}, false
}

// failure joins the errors of the visits. It hides ErrNeedsRollcall from errors.Is, unless all servers are foreign:
// otherwise a Rollcall server may respond the next time.
func (t *tour) failure() error {
	foreign := func(err error) bool { return errors.Is(err, ErrNeedsRollcall) }
	if slices.ContainsFunc(t.errs, func(err error) bool { return !foreign(err) }) {
		for i, err := range t.errs {
			if foreign(err) {
				t.errs[i] = errors.New(err.Error())
			}
		}
	}
	err := errors.Join(t.errs...)
	if t.possible && !errors.Is(err, ErrUnknownOutcome) {
		err = fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	return err
}
