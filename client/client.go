package client

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// DefaultTimeout bounds one try at one server. A server answers within 4 s even when it cannot learn
// the outcome of a write.
const DefaultTimeout = 5 * time.Second

// Config is what a Client needs. Servers is required; every other field has a default.
type Config struct {
	// Servers are base URLs such as http://10.0.0.1:8761, in the order in which they are tried.
	Servers []string
	// HTTPClient sends the requests. Nil: one with keep-alive connections and no cookies.
	HTTPClient *http.Client
	// Timeout bounds one try at one server. Zero: DefaultTimeout.
	Timeout time.Duration
	// Consistency is what reads of the registry ask for: linearizable, leader or stale. Empty: what
	// the server is set to.
	Consistency string
	// Log receives what Heartbeat does and what keeps it from doing it. Nil: discarded.
	Log *slog.Logger
}

// Client talks to the servers of one cluster. Safe for concurrent use.
type Client struct {
	servers     []string // base URLs without a slash at the end
	http        *http.Client
	timeout     time.Duration
	consistency string
	log         *slog.Logger
	current     atomic.Int64 // index of the server that answered last
}

// New returns a client. It sends nothing. The error joins every mistake of the configuration.
func New(c Config) (*Client, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	client := &Client{
		http:        cmp.Or(c.HTTPClient, &http.Client{}),
		timeout:     cmp.Or(c.Timeout, DefaultTimeout),
		consistency: c.Consistency,
		log:         cmp.Or(c.Log, slog.New(slog.DiscardHandler)),
	}
	for _, s := range c.Servers {
		client.servers = append(client.servers, strings.TrimRight(s, "/"))
	}
	return client, nil
}

// Validate reports every mistake at once.
func (c Config) Validate() error {
	var errs []error
	if len(c.Servers) == 0 {
		errs = append(errs, errors.New("no server is given; give a base URL such as http://127.0.0.1:8761"))
	}
	for _, s := range c.Servers {
		u, err := url.Parse(s)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			errs = append(errs, fmt.Errorf("server %q is not a base URL such as http://127.0.0.1:8761", s))
		}
	}
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("timeout %v is negative", c.Timeout))
	}
	return errors.Join(errs...)
}
