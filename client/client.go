package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/client/internal/transport"
	"github.com/seed-20419f34/rollcall/fsm/order"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// Client talks to the servers of one cluster. Safe for concurrent use.
type Client struct {
	cluster     *transport.Cluster
	consistency string // as in Config.Consistency
	log         *slog.Logger
	metrics     *metrics
	lifecycle
}

// New returns a client. It sends nothing and starts nothing. The error joins every mistake in the configuration. A
// client that started anything must be closed.
func New(c Config) (*Client, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	log := cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	auth, err := c.auth(log)
	if err != nil {
		return nil, err
	}
	client := &Client{consistency: c.Consistency, log: log}
	client.cluster = transport.New(transport.Config{
		Servers: c.Servers, Source: transport.Source(c.Source), SourceInterval: SourceInterval, InOrder: c.InOrder,
		Timeout: cmp.Or(c.Timeout, DefaultTimeout), Consistency: c.Consistency,
		Auth: transport.Auth(auth), TLS: c.TLS, HTTPClient: c.HTTPClient, Log: log,
		Refused: func(r transport.Refusal) error {
			return &StatusError{Server: r.Server, Status: r.Status, Message: r.Message}
		},
	})
	if client.metrics, err = newMetrics(c.Registerer, client.cluster.Collectors(), client.gaugers); err != nil {
		return nil, err
	}
	return client, nil
}

// SetServers replaces the servers, given as in Config. Calls in progress end where they began. The error joins every
// mistake; then nothing has changed.
func (c *Client) SetServers(urls []string) error {
	return c.cluster.Replace(urls)
}

// DefaultTimeout bounds one try at one server. A server responds within 4 s even if it cannot learn the outcome of a
// write.
const DefaultTimeout = 5 * time.Second

// Config is what a Client needs. Servers or Source is required; every other field has a default.
type Config struct {
	// Servers are URLs such as http://10.0.0.1:8761. A path is where a proxy or a stock Eureka server has its
	// resources: one that ends in /eureka or /eureka/v2, as in http://host/eureka/v2, is used as it is; to any other
	// path /eureka is added. User and password in a URL are sent as basic authentication. unix:PATH is a server that
	// is called through a socket, such as the one in a node's data directory.
	Servers []string
	// Source returns the current servers. It is asked before the first call if Servers is empty, every
	// SourceInterval, and when no server responded. If it is nil, the servers do not change. See also
	// Client.SetServers.
	Source ServerSource
	// InOrder tries the servers in the given order. Otherwise each client starts with a random one, so that the
	// clients of a cluster spread over it.
	InOrder bool
	// Timeout bounds one try at one server: the time until its response begins, and each pause within the response.
	// Zero means DefaultTimeout.
	Timeout time.Duration
	// Consistency is what reads of the registry ask for: linearizable, leader or stale. If it is empty, the server's
	// setting decides.
	Consistency string
	// Auth signs each request. If it is nil, requests carry the user and password of their server's URL, if it has
	// them.
	Auth Auth
	// Token is sent with each request, as a bearer token. TokenFile names a file with the token. It is read for each
	// request, so that the token can be replaced; if the file can no longer be read, the last token stays in use,
	// which is logged to Log. Set at most one of Auth, Token and TokenFile.
	Token, TokenFile string
	// TLS decides which servers are trusted, and has this client's certificate if they require one. Nil means the
	// system's defaults.
	TLS *tls.Config
	// HTTPClient sends the requests. Nil means one of the client's own, with keep-alive connections, gzip, Config.TLS
	// and no redirects.
	HTTPClient *http.Client
	// Log receives what happens in the background, and what keeps it from happening. Nil discards it.
	Log *slog.Logger
	// Registerer takes the client's metrics until Close. If a process has several clients, give each a registerer
	// that tells them apart by the value of one label (prometheus.WrapRegistererWith). If it is nil, there are no
	// metrics.
	Registerer prometheus.Registerer
}

// SourceInterval is how long the result of a ServerSource is used (upstream's
// eureka.client.eurekaServiceUrlPollIntervalSeconds).
const SourceInterval = 5 * time.Minute

// ServerSource looks up the servers, for example in DNS or a file. After an error the known ones stay.
type ServerSource func(ctx context.Context) ([]string, error)

// Auth signs a request, in its header. An error keeps it from being sent.
type Auth func(r *http.Request) error

// BasicAuth signs with a user and a password.
func BasicAuth(user, password string) Auth {
	return func(r *http.Request) error {
		r.SetBasicAuth(user, password)
		return nil
	}
}

// auth returns how requests are signed, by Auth, Token or TokenFile, or nil if none is set. The error is about the
// token.
func (c Config) auth(log *slog.Logger) (Auth, error) {
	switch {
	case c.Token != "":
		if err := checkToken(c.Token); err != nil {
			return nil, fmt.Errorf("token: %w", err)
		}
		return bearer(func() string { return c.Token }), nil
	case c.TokenFile != "":
		token, err := readToken(c.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("file of the token: %w", err)
		}
		f := &tokenFile{path: c.TokenFile, last: token, outage: wait.Outage{Log: log}}
		return bearer(f.token), nil
	}
	return c.Auth, nil
}

func bearer(token func() string) Auth {
	return BearerAuth(func(context.Context) (string, error) { return token(), nil })
}

// BearerAuth signs with a token. It calls token before each request, so token should cache a token that is costly to
// get.
func BearerAuth(token func(ctx context.Context) (string, error)) Auth {
	return func(r *http.Request) error {
		t, err := token(r.Context())
		if err != nil {
			return fmt.Errorf("get a bearer token: %w", err)
		}
		r.Header.Set("Authorization", "Bearer "+t)
		return nil
	}
}

// Validate reports every mistake at once.
func (c Config) Validate() error {
	var errs []error
	if len(c.Servers) > 0 || c.Source == nil {
		errs = append(errs, transport.CheckServers(c.Servers)...)
	}
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("timeout %v is negative", c.Timeout))
	}
	if _, known := order.ParseConsistency(c.Consistency); !known && c.Consistency != "" {
		errs = append(errs, fmt.Errorf("consistency %q is not linearizable, leader or stale", c.Consistency))
	}
	given := slices.DeleteFunc([]bool{c.Auth != nil, c.Token != "", c.TokenFile != ""}, func(is bool) bool { return !is })
	if len(given) > 1 {
		errs = append(errs, errors.New("more than one of Auth, Token and TokenFile is given; each would sign requests"))
	} else if _, err := c.auth(nil); err != nil {
		errs = append(errs, err)
	}
	if c.HTTPClient != nil && slices.ContainsFunc(c.Servers, func(s string) bool { return strings.HasPrefix(s, transport.SocketScheme) }) {
		errs = append(errs, errors.New("a server is a socket (unix:PATH), which a given HTTPClient cannot call; leave HTTPClient out"))
	}
	if c.HTTPClient != nil && c.TLS != nil {
		errs = append(errs, errors.New("both HTTPClient and TLS are given; put the TLS configuration into the HTTPClient's transport"))
	}
	return errors.Join(errs...)
}
