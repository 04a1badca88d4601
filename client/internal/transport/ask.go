package transport

import (
	"context"
	"fmt"

	"github.com/seed-20419f34/rollcall/internal/wait"
)

// Perform sends a call to the best server, and to the others while none responds. It returns an unsuccessful response
// together with an error. what and args name the call in the error, unless what is "".
func (c *Cluster) Perform(ctx context.Context, q *Call, what string, args ...any) (Response, error) {
	a, err := c.do(ctx, q)
	if err == nil {
		err = q.failure(a)
	}
	return a, wait.Annotate(err, what, args)
}

// PerformAt is Perform at one server only.
func (c *Cluster) PerformAt(ctx context.Context, s *Server, q *Call) (Response, error) {
	a, err := c.try(ctx, s, q)
	if err == nil {
		err = q.failure(a)
	}
	return a, err
}

// Ask performs a call and reads the document of its response.
func Ask[T any](ctx context.Context, c *Cluster, q *Call, what string, args ...any) (T, error) {
	document, _, err := AskWhole[T](ctx, c, q, what, args...)
	return document, err
}

// AskWhole is Ask, but also returns the response.
func AskWhole[T any](ctx context.Context, c *Cluster, q *Call, what string, args ...any) (T, Response, error) {
	var document T
	a, err := c.askInto(ctx, q, &document, what, args)
	if err != nil {
		document = *new(T)
	}
	return document, a, err
}

// AskAt is Ask at one server only.
func AskAt[T any](ctx context.Context, c *Cluster, s *Server, q *Call) (document T, err error) {
	a, err := c.PerformAt(ctx, s, q)
	if err != nil {
		return document, err
	}
	return document, a.decode(&document)
}

// askInto is AskWhole for any document, so that its code is not repeated for each type.
func (c *Cluster) askInto(ctx context.Context, q *Call, document any, what string, args []any) (Response, error) {
	a, err := c.Perform(ctx, q, what, args...)
	if err != nil {
		return a, err
	}
	if err = a.decode(document); err != nil && q.Write {
		err = fmt.Errorf("done, but %w", err)
	}
	return a, wait.Annotate(err, what, args)
}
