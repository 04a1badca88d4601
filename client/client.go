package client

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"
)

// Client talks to the servers of one cluster. Safe for concurrent use.
type Client struct {
	servers     *serverList
	lookup      *lookup // nil: the servers stay as they are
	http        *http.Client
	endHTTP     func() // at the end
	auth        Auth   // nil: as each server's URL says
	timeout     time.Duration
	consistency string
	log         *slog.Logger
	metrics     *metrics
	lifecycle
}

// New returns a client. It sends nothing and starts nothing. The error joins every mistake of the
// configuration. A client that started anything must be closed.
func New(c Config) (*Client, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	client := &Client{
		servers:     newServers(c),
		timeout:     cmp.Or(c.Timeout, DefaultTimeout),
		consistency: c.Consistency,
		auth:        c.Auth,
		log:         cmp.Or(c.Log, slog.New(slog.DiscardHandler)),
	}
	client.http, client.endHTTP = c.httpClient()
	client.lookup = newLookup(c, client.servers, client.timeout, client.log)
	client.life, client.end = context.WithCancelCause(context.Background())
	var err error
	if client.metrics, err = newMetrics(c.Registerer, client); err != nil {
		return nil, err
	}
	return client, nil
}

// SetServers replaces the servers, given as in Config. What is under way ends where it began. The error
// joins every mistake; nothing has changed then.
func (c *Client) SetServers(urls []string) error {
	_, err := c.servers.replace(urls)
	return err
}
