package web

import (
	"context"
	"net/http"

	"golang.org/x/sync/semaphore"
)

// Response is a ResponseWriter that remembers what was sent, for the metrics.
type Response struct {
	http.ResponseWriter
	Route  string // its template; "none" until one matched
	Status int    // 0 until the header is written
	ID     string // of the request
	Waited bool   // the response waited for something to happen
	Err    error  // behind the response; nil if none

	request *http.Request // that is responded to
	call    Call          // of the route

	budget     *budget // nil without a budget
	chargeable int64   // most bytes of it that all requests may take when this one takes more
	charged    int64   // bytes of it that the request has taken

	pool     *semaphore.Weighted // nil if the response takes nothing from it
	reserved int64               // bytes of it, which also count against the budget
}

// NewResponse returns a response that writes to w, for a request that is charged to the node's budget.
func (n *Node) NewResponse(w http.ResponseWriter, r *http.Request) *Response {
	id := RequestID(r)
	w.Header().Set(RequestIDHeader, id)
	return &Response{ResponseWriter: w, request: r, ID: id, Route: "none", budget: &n.budget, chargeable: n.budget.limit.Load()}
}

// WriteHeader implements http.ResponseWriter.
func (a *Response) WriteHeader(status int) {
	if a.Status == 0 {
		a.Status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *Response) Write(p []byte) (int, error) {
	if a.Status == 0 {
		a.Status = http.StatusOK
	}
	return a.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the connection.
func (a *Response) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// recordError records the error behind w's response, and returns the request, or nil if a handler is called alone.
func recordError(w http.ResponseWriter, err error) *http.Request {
	resp := responseUnder(w)
	if resp == nil {
		return nil
	}
	resp.Err = err
	return resp.request
}

// responseUnder returns the Response underneath w, or nil if a handler is called alone.
func responseUnder(w http.ResponseWriter) *Response {
	for {
		switch of := w.(type) {
		case *Response:
			return of
		case interface{ Unwrap() http.ResponseWriter }:
			w = of.Unwrap()
		default:
			return nil
		}
	}
}

// Release gives back what the request was charged.
func (a *Response) Release() {
	if a.reserved > 0 {
		a.pool.Release(a.reserved)
		a.reserved = 0
	}
	if a.budget != nil {
		a.budget.taken.Add(-a.charged)
		a.charged = 0
	}
}

// gathererOf is the key of a connection's Gatherer in its context.
type gathererOf struct{}

// WithGatherer returns the context of a connection that can collect what is written to it.
func WithGatherer(ctx context.Context, g Gatherer) context.Context {
	return context.WithValue(ctx, gathererOf{}, g)
}

// gatherer returns the connection if it can collect what is written to it, or nil. Over TLS, net/http may write to it
// from two goroutines.
func (a *Response) gatherer() Gatherer {
	if a.request.TLS != nil {
		return nil
	}
	g, _ := a.request.Context().Value(gathererOf{}).(Gatherer)
	return g
}
