package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// CallLimit bounds one HTTP call: twice the time after which the server responds that the outcome is unknown.
const CallLimit = 10 * time.Second

// Response is the result of one HTTP call. Status 0 means that no response arrived; Err says why.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
	Err    error
	Took   time.Duration
}

// Outcome is what a client knows after a call about the operation that it asked for.
type Outcome int

// Outcomes of a call. Only Unknown leaves open whether the operation took effect.
const (
	Done Outcome = iota
	NotFound
	Refused
	Unknown
)

// String names the outcome in failures.
func (o Outcome) String() string {
	return [...]string{"done", "not found", "refused", "unknown"}[o]
}

// Outcome returns what the response to a write means. Nothing was sent on a connection that could not be made; a
// broken one may have carried the request.
func (r Response) Outcome() Outcome {
	var op *net.OpError
	switch {
	case r.Status/100 == 2:
		return Done
	case r.Status == http.StatusNotFound:
		return NotFound
	case r.Status == http.StatusServiceUnavailable:
		return Refused
	case r.Status == 0 && errors.As(r.Err, &op) && op.Op == "dial":
		return Refused
	}
	return Unknown
}

// errRefused is wrapped by the errors of responses that decide nothing: there is currently no leader, or it did not
// respond in time, as happens on a busy machine.
var errRefused = errors.New("refused")

// failure returns the error of a response that does not answer a read.
func (r Response) failure(n *Node, what string) error {
	if r.Outcome() == Refused || r.Status == http.StatusGatewayTimeout {
		return fmt.Errorf("node %s: %s: %w: %v", n.Name, what, errRefused, r)
	}
	return fmt.Errorf("node %s: %s: %v", n.Name, what, r)
}

// untilTaken repeats ask until it is not refused, and returns its last error.
func untilTaken(ask func() error) error {
	var err error
	_ = Poll(ReadyLimit, func() error { // err has the result
		if err = ask(); errors.Is(err, errRefused) {
			return err
		}
		return nil
	})
	return err
}

// untilNotRefused repeats ask until the call is not refused: a refused call did nothing.
func untilNotRefused(ask func() Response) (response Response) {
	_ = Poll(ReadyLimit, func() error { // the response has the result
		if response = ask(); response.Outcome() == Refused {
			return errRefused
		}
		return nil
	})
	return response
}

// readUntilTaken is untilTaken for a read.
func readUntilTaken[T any](ask func() (T, error)) (v T, err error) {
	err = untilTaken(func() (err error) {
		v, err = ask()
		return err
	})
	return v, err
}

// String shows the response in failures.
func (r Response) String() string {
	if r.Err != nil {
		return r.Err.Error()
	}
	return fmt.Sprintf("%d %.200q after %v", r.Status, r.Body, r.Took.Round(time.Millisecond))
}

// Request is one call to a node; an empty Method is GET.
type Request struct {
	Method      string
	Path        string
	Body        []byte
	ContentType string
	Accept      string
	Identity    string // of a DiscoveryIdentity-Name header, as Java clients send it; empty for none
	Bearer      string // a token; empty for the node's
}

// transport is shared by all plain calls, so that connections are kept alive.
var transport = &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute}

// CloseIdleConnections ends the kept-alive connections of all calls, and those used to wait for nodes.
func CloseIdleConnections() {
	transport.CloseIdleConnections()
	http.DefaultClient.CloseIdleConnections()
}

// Do performs a call; every failure is in the response.
func (n *Node) Do(r Request) Response {
	ctx, cancel := context.WithTimeout(context.Background(), CallLimit)
	defer cancel()
	began := time.Now()
	response := n.do(ctx, r)
	if n.secrets != nil {
		n.secrets.look(fmt.Sprintf("%s's %d to %s %s", n.Name, response.Status, r.Method, r.Path), response.Body)
	}
	response.Took = time.Since(began)
	return response
}

// PutWithin writes with a time limit of its own, after which it closes the connection.
func (n *Node) PutWithin(path, body string, limit time.Duration) Response {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return n.do(ctx, Request{Method: http.MethodPut, Path: path, Body: []byte(body)})
}

func (n *Node) do(ctx context.Context, r Request) Response {
	if r.Bearer == "" {
		r.Bearer = n.Token
	}
	return request(ctx, n.roundTripper(), n.URL(), r)
}

// request performs a call at a base URL.
func request(ctx context.Context, by http.RoundTripper, base string, r Request) Response {
	req, err := http.NewRequestWithContext(ctx, r.Method, base+r.Path, bytes.NewReader(r.Body))
	if err != nil {
		return Response{Err: err}
	}
	if r.ContentType != "" {
		req.Header.Set("Content-Type", r.ContentType)
	}
	req.Header.Set("Accept", "application/json")
	if r.Accept != "" {
		req.Header.Set("Accept", r.Accept)
	}
	if r.Identity != "" {
		req.Header.Set("DiscoveryIdentity-Name", r.Identity)
	}
	if r.Bearer != "" {
		req.Header.Set("Authorization", "Bearer "+r.Bearer)
	}
	resp, err := by.RoundTrip(req)
	if err != nil {
		return Response{Err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return Response{Err: err}
	}
	return Response{Status: resp.StatusCode, Header: resp.Header, Body: body}
}

func (n *Node) roundTripper() http.RoundTripper {
	if n.Client != nil {
		return n.Client.Transport
	}
	return transport
}

// Get is Do for a GET that asks for JSON.
func (n *Node) Get(path string) Response { return n.Do(Request{Path: path}) }

// is returns nil if the response has a status.
func (r Response) is(status int) error {
	return unless(r.Status == status, "%v, want %d", r, status)
}
