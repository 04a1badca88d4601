package client

import (
	"net/http"
	"time"
)

// Of the client's own transport. Upstream keeps 50 connections per host, each for 45 s.
const (
	idlePerHost = 64
	idleTimeout = 45 * time.Second
	// An HTTP/2 connection that carries nothing for pingAfter is asked whether it still leads anywhere;
	// otherwise all calls would go on over one that was cut silently, until TCP notices.
	pingAfter   = 15 * time.Second
	pingTimeout = 5 * time.Second
)

// httpClient is the one that Config asks for, and what to do with it at the end: a given one stays as it
// is, because others may use it.
func (c Config) httpClient() (client *http.Client, end func()) {
	if c.HTTPClient != nil {
		return c.HTTPClient, func() {}
	}
	transport := c.transport()
	dials := newDials(transport.DialContext)
	transport.DialContext = dials.connect
	own := &http.Client{
		Transport: transport,
		// A redirect would repeat a write where nobody asked for it; it is an answer like others.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return own, func() {
		own.CloseIdleConnections()
		dials.close()
	}
}

func (c Config) transport() *http.Transport {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
	if standard, ok := http.DefaultTransport.(*http.Transport); ok { // a program may have put its own there
		t = standard.Clone()
	}
	if c.TLS != nil {
		t.TLSClientConfig = c.TLS.Clone()
	}
	t.MaxIdleConns = 0 // of all hosts together: as many as they are worth one by one
	t.MaxIdleConnsPerHost = idlePerHost
	t.IdleConnTimeout = idleTimeout
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
	return t
}
