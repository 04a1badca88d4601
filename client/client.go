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
	http        *http.Client
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
		http:        c.httpClient(),
		timeout:     cmp.Or(c.Timeout, DefaultTimeout),
		consistency: c.Consistency,
		log:         cmp.Or(c.Log, slog.New(slog.DiscardHandler)),
	}
	client.life, client.end = context.WithCancelCause(context.Background())
	var err error
	if client.metrics, err = newMetrics(c.Registerer, client); err != nil {
		return nil, err
	}
	client.servers = newServers(c, client.metrics)
	return client, nil
}

// SetServers replaces the servers, given as in Config. What is under way ends where it began. The error
// joins every mistake; nothing has changed then.
func (c *Client) SetServers(urls []string) error { return c.servers.replace(urls) }
