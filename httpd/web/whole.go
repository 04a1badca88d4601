package web

import (
	"context"
	"net/http"
)

// net/http gives a connection 4 KiB of a response at a time: a list of a few more makes two system calls, and its client, which
// has nothing to do with the first 4 KiB, wakes up twice. To leave in one piece saves an eighth of what such a response costs
// (docs/benchmarks.md).

// A body of these sizes in bytes leaves in one piece with its header: a smaller one does anyway, and to copy a larger one is not
// worth it.
const (
	leastWhole = 2 << 10
	mostWhole  = 64 << 10
)

// Gatherer is a connection that can collect what is written to it.
type Gatherer interface {
	// Gather collects what is written from now on.
	Gather()
	// Send sends what was collected, and ends the collecting. If that fails, it closes the connection.
	Send()
}

// gathererOf is the key of a connection's Gatherer in its context.
type gathererOf struct{}

// WithGatherer is the context of a connection that can collect what is written to it.
func WithGatherer(ctx context.Context, g Gatherer) context.Context {
	return context.WithValue(ctx, gathererOf{}, g)
}

// SendBody sends the header and a body that is complete, of size bytes in all its parts.
func SendBody(w http.ResponseWriter, status int, size int64, parts ...[]byte) {
	w.WriteHeader(status)
	if g := gatherer(w, size); g != nil {
		g.Gather()
		defer g.Send()
		defer func() { _ = http.NewResponseController(w).Flush() }() // a client that went away is no error
	}
	for _, part := range parts {
		if _, err := w.Write(part); err != nil {
			return // the client went away
		}
	}
}

// gatherer is the connection of a response, if it is to collect a body of size bytes; else nil. Over TLS, net/http may write to
// it from two goroutines.
func gatherer(w http.ResponseWriter, size int64) Gatherer {
	resp := responseUnder(w)
	if size < leastWhole || size > mostWhole || resp == nil || resp.request.TLS != nil {
		return nil
	}
	g, _ := resp.request.Context().Value(gathererOf{}).(Gatherer)
	return g
}
