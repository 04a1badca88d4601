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
	Status int    // 0 until the header was written
	ID     string // of the request
	Waited bool   // the response waited for something to happen
	Err    error  // that it is the response to; nil: none

	request *http.Request // that it is the response to
	call    Call          // of the route

	budget     *budget // nil: there is none
	chargeable int64   // bytes of it that may be taken when the request takes more
	charged    int64   // bytes of it that the request takes

	pool     *semaphore.Weighted // nil: the response takes nothing of it
	reserved int64               // bytes of it, which are charged to the budget, too
}

// NewResponse is a response that w writes, to a request that is charged to the node's budget.
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

// recordError keeps to which error w is the response, and returns the request; nil: a handler is called alone.
func recordError(w http.ResponseWriter, err error) *http.Request {
	resp := responseUnder(w)
	if resp == nil {
		return nil
	}
	resp.Err = err
	return resp.request
}

// responseUnder is the response that w writes; nil: a handler is called alone.
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

// WithGatherer is the context of a connection that can collect what is written to it.
func WithGatherer(ctx context.Context, g Gatherer) context.Context {
	return context.WithValue(ctx, gathererOf{}, g)
}

// gatherer is the connection, if it can collect what is written to it; else nil. Over TLS, net/http may write to it from two
// goroutines.
func (a *Response) gatherer() Gatherer {
	if a.request.TLS != nil {
		return nil
	}
	g, _ := a.request.Context().Value(gathererOf{}).(Gatherer)
	return g
}
