// Package eurekapeer is the link to a Netflix Eureka server, and finds out which peer a Eureka server is that sends
// here. A Eureka server gets what a server of its own kind would send it (upstream: PeerEurekaNode,
// ReplicationTaskProcessor): the same documents, and nothing beyond them, because it drops a whole batch over one key
// that it does not know. Requests that Eureka servers send here are served by package httpd/eurekaroutes.
//
//	parts.go        what a task becomes
//	calls.go        the link, and one call
//	sending.go      batches, single calls, and everything for a repair
//	replies.go      what responses ask for
//	registration.go this node as an instance of the application EUREKA
//	senders.go      which peer a sending server is
package eurekapeer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"

	"github.com/seed-20419f34/rollcall/replication/batcher"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// Link transmits to one Eureka server. It is safe for concurrent use.
type Link struct {
	env     link.Env
	service *url.URL // without user info and trailing slash
	user    *url.Userinfo
	client  *http.Client
	behind  atomic.Bool // newer instances of the server could not be taken over, which was logged
}

func New(env link.Env) link.Link {
	service, err := url.Parse(env.Peer.URLs[0])
	if err != nil {
		panic("replication: a peer's URL was not checked: " + err.Error())
	}
	l := &Link{env: env, user: service.User, client: link.NewClient(env.Peer)}
	service.User = nil
	l.service = service
	return l
}

func (l *Link) URL() string { return l.service.String() }

// maxResponse bounds how much of a Eureka server's response is read: 250 instances at their largest.
const maxResponse = 64 << 20

// response is a Eureka server's response.
type response struct {
	status int
	body   []byte
}

func (r response) ok() bool { return r.status/100 == 2 }

// ask makes one call below the service URL and reads the whole response. Its error is a link.CallError that
// names the URL without user info.
func (l *Link) ask(ctx context.Context, replicated bool, method, target string, body []byte) (response, error) {
	p := l.env.Peer
	ctx, cancel := context.WithTimeout(ctx, p.ConnectTimeout+p.ReadTimeout)
	defer cancel()
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	r, err := http.NewRequestWithContext(ctx, method, l.URL()+target, bytes.NewReader(body))
	if err != nil {
		return response{}, link.Failed(batcher.PermanentError, err)
	}
	r.Header.Set("Accept", "application/json")
	if len(body) > 0 {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("DiscoveryIdentity-Name", "DefaultServer")
	r.Header.Set("DiscoveryIdentity-Version", "1.0")
	if host, _, err := net.SplitHostPort(l.env.HTTP); err == nil {
		r.Header.Set("DiscoveryIdentity-Id", host)
	}
	if replicated {
		r.Header.Set("X-Netflix-Discovery-Replication", "true")
	}
	if l.user != nil {
		password, _ := l.user.Password()
		r.SetBasicAuth(l.user.Username(), password)
	}
	resp, err := l.exchange(r)
	if err != nil {
		return response{}, link.Failed(link.FailureOf(err, connected.Load()), err)
	}
	return resp, nil
}

func (l *Link) exchange(r *http.Request) (response, error) {
	resp, err := l.client.Do(r)
	if err != nil {
		return response{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	if err != nil {
		return response{}, fmt.Errorf("%s %s: the response was cut off: %w", r.Method, r.URL, err)
	}
	if len(body) > maxResponse {
		return response{}, fmt.Errorf("%s %s: %w", r.Method, r.URL, link.ErrResponseTooLarge)
	}
	return response{resp.StatusCode, body}, nil
}

// refusedCall returns the error of a response that is not a success.
func refusedCall(method, target string, r response) error {
	result := batcher.PermanentError
	if r.status == http.StatusServiceUnavailable {
		result = batcher.Congestion
	}
	return link.Failed(result, &statusError{method, target, r.status})
}

// statusError is the error of a response with a status that is not a success.
type statusError struct {
	method, target string
	status         int
}

// Error names the call and the status.
func (e *statusError) Error() string {
	return fmt.Sprintf("%s %s was answered %d %s", e.method, e.target, e.status, http.StatusText(e.status))
}

// refuseAlone records an item that the server refuses by the status of a call that had only that item. The dispatcher
// arranges for that: it tries the items of a refused batch one by one.
func (l *Link) refuseAlone(all []part, err error) {
	answer, ok := errors.AsType[*statusError](err)
	if ok && (answer.status == http.StatusBadRequest || answer.status == http.StatusRequestEntityTooLarge) && all[0].task.Key == all[len(all)-1].task.Key {
		l.env.Refused(all[0].task.Key, all[0].fact(), err.Error())
	}
}
