package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// lookup asks a ServerSource when a call needs it. It has no goroutine of its own.
type lookup struct {
	source  ServerSource
	servers *serverList
	timeout time.Duration
	log     *slog.Logger

	mu      sync.Mutex
	asked   time.Time // when the last answer came
	flight  *flight   // nil: nobody asks
	trouble trouble
}

// flight is one question, for all calls that wait for its answer.
type flight struct {
	done chan struct{} // closed when err is set
	err  error
	gone bool // who asked went away, which says nothing of the source
}

// newLookup takes the given servers for an answer that came now.
func newLookup(c Config, servers *serverList, timeout time.Duration, log *slog.Logger) *lookup {
	if c.Source == nil {
		return nil
	}
	return &lookup{source: c.Source, servers: servers, timeout: timeout, log: log, asked: time.Now(), trouble: trouble{log: log}}
}

// candidates are whom to ask, the best first; there is at least one.
func (c *Client) candidates(ctx context.Context) ([]*server, error) {
	if c.lookup == nil {
		return c.servers.order(), nil
	}
	ctx, done := c.alive(ctx)
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

// newcomers are servers that the source gives now that these ones gave no answer.
func (c *Client) newcomers(ctx context.Context, asked []*server) []*server {
	if c.lookup == nil {
		return nil
	}
	ctx, done := c.alive(ctx)
	defer done()
	if c.lookup.ask(ctx) != nil {
		return nil // which it logs
	}
	known := make(map[string]bool)
	for _, s := range asked {
		known[s.eureka] = true
	}
	var others []*server
	for _, s := range c.servers.order() {
		if !known[s.eureka] {
			others = append(others, s)
		}
	}
	return others
}

// askIfDue asks if the last answer is old, unless somebody does so already. What fails is logged, and
// leaves the servers that are known.
func (l *lookup) askIfDue(ctx context.Context) {
	l.mu.Lock()
	if l.flight != nil || time.Since(l.asked) < SourceInterval {
		l.mu.Unlock()
		return
	}
	f := l.takeOff()
	l.mu.Unlock()
	l.fly(ctx, f)
}

// ask asks, or waits for who does so already.
func (l *lookup) ask(ctx context.Context) error {
	for {
		l.mu.Lock()
		f := l.flight
		if f == nil {
			f = l.takeOff()
			l.mu.Unlock()
			l.fly(ctx, f)
			return f.err
		}
		l.mu.Unlock()
		select {
		case <-f.done:
			if !f.gone {
				return f.err
			}
		case <-ctx.Done():
			return fmt.Errorf("wait for the servers to be looked up: %w", context.Cause(ctx))
		}
	}
}

func (l *lookup) takeOff() *flight {
	l.flight = &flight{done: make(chan struct{}), err: errSourcePanicked}
	return l.flight
}

var errSourcePanicked = errors.New("the source of the servers panicked")

// fly asks the source and lets everybody know, also when it panics.
func (l *lookup) fly(ctx context.Context, f *flight) {
	defer l.land(ctx, f)
	bounded, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	urls, err := l.source(bounded)
	if err == nil {
		err = l.take(urls)
	}
	if err != nil {
		err = fmt.Errorf("look up the servers: %w", withCause(err, ctx))
	}
	f.err = err
}

func (l *lookup) take(urls []string) error {
	changed, err := l.servers.replace(urls)
	if changed {
		l.log.Info("the servers are others", "servers", l.servers.names())
	}
	return err
}

func (l *lookup) land(ctx context.Context, f *flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.gone = f.err != nil && ctx.Err() != nil
	if !f.gone {
		l.asked = time.Now()
		l.trouble.report(f.err, "the servers could not be looked up, those that are known stay", "the servers could be looked up again")
	}
	l.flight = nil
	close(f.done)
}

// server is one of the servers. It never changes.
type server struct {
	url    string // of Rollcall's own resources, without a slash at the end, user or password; its name for people
	eureka string // of Eureka's resources; its identity in a serverList
	auth   Auth   // of the URL's user and password; nil: it has none
}

// eurekaBases are the paths below which stock servers have Eureka's resources, each before what it ends
// with: Netflix's /eureka/v2 (/v2 where the application is mounted as eureka), Spring's /eureka.
var eurekaBases = [...]string{"/eureka/v2", "/eureka/v1", "/eureka", "/v2"}

// parseServer takes a URL of Config.Servers. Errors show no user and no password.
func parseServer(text string) (*server, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("server %q is not a URL such as http://127.0.0.1:8761", withoutUser(text))
	}
	if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.HasSuffix(text, "#") {
		return nil, fmt.Errorf("server %q has a query or a fragment; give scheme, host and path only", withoutUser(text))
	}
	s := &server{}
	s.url, s.eureka = bases(u)
	if u.User != nil {
		password, _ := u.User.Password()
		s.auth = BasicAuth(u.User.Username(), password)
	}
	return s, nil
}

// bases are the URLs of Rollcall's own resources and of Eureka's.
func bases(u *url.URL) (own, eureka string) {
	host, path := u.Scheme+"://"+u.Host, strings.TrimRight(u.EscapedPath(), "/")
	for _, base := range eurekaBases {
		if before, is := strings.CutSuffix(path, base); is {
			return host + strings.TrimRight(before, "/"), host + path
		}
	}
	return host + path, host + path + "/eureka"
}

// withoutUser hides what may be a user and a password in what may not be a URL.
func withoutUser(text string) string {
	at := strings.LastIndexByte(text, '@')
	if at < 0 {
		return text
	}
	scheme, _, is := strings.Cut(text[:at], "://")
	if !is || strings.ContainsAny(scheme, ":@/") {
		return "…" + text[at:]
	}
	return scheme + "://…" + text[at:]
}

// parseServers takes what is given for all servers. The error joins every mistake.
func parseServers(urls []string) ([]*server, error) {
	var all []*server
	var errs []error
	for _, text := range urls {
		s, err := parseServer(text)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, s)
	}
	if len(urls) == 0 {
		errs = append(errs, errNoServer)
	}
	return all, errors.Join(errs...)
}

var errNoServer = errors.New("no server is given; give a URL such as http://127.0.0.1:8761")

// sign adds what the server wants to know of who asks.
func (s *server) sign(r *http.Request, auth Auth) error {
	if auth == nil {
		auth = s.auth
	}
	if auth == nil {
		return nil
	}
	return auth(r)
}
