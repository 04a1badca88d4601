package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// own is a call of Rollcall's own API.
func own(method string, path ...string) *call {
	return &call{method: method, path: append([]string{"v1", "rollcall"}, path...), write: method != http.MethodGet}
}

// ofEureka is a call of Eureka's API.
func ofEureka(method string, path ...string) *call {
	return &call{method: method, eureka: true, path: path, write: method != http.MethodGet}
}

// ofInstance is a call about one instance, of Eureka's API.
func ofInstance(method string, key registry.Key, resource ...string) *call {
	q := ofEureka(method, append([]string{"apps", key.App, key.ID}, resource...)...)
	q.missing = ErrNotRegistered
	return q
}

// with adds parameters, name after value. Those without a value are left out.
func (q *call) with(parameters ...string) *call {
	if q.query == nil {
		q.query = make(url.Values)
	}
	for ; len(parameters) > 0; parameters = parameters[2:] {
		if parameters[1] != "" {
			q.query.Set(parameters[0], parameters[1])
		}
	}
	return q
}

// or says what a 404 to a call means.
func (q *call) or(missing error) *call {
	q.missing = missing
	return q
}

// reading makes a call a read at the client's consistency.
func (c *Client) reading(q *call) *call { return q.with("consistency", c.consistency) }

// ask performs a call and reads the document that it is answered with. what and args name the call in its
// error; "": nothing does.
func ask[T any](ctx context.Context, c *Client, q *call, what string, args ...any) (T, error) {
	document, _, err := askWhole[T](ctx, c, q, what, args...)
	return document, err
}

// askWhole is ask with the answer.
func askWhole[T any](ctx context.Context, c *Client, q *call, what string, args ...any) (T, answer, error) {
	var document T
	a, err := c.askInto(ctx, q, &document, what, args)
	if err != nil {
		document = *new(T)
	}
	return document, a, err
}

// askInto is askWhole for any document: code that is not there once for each type.
func (c *Client) askInto(ctx context.Context, q *call, document any, what string, args []any) (answer, error) {
	a, err := c.tell(ctx, q, what, args...)
	if err != nil {
		return a, err
	}
	if err = a.decode(document); err != nil && q.write {
		err = fmt.Errorf("done, but %w", err)
	}
	return a, annotate(err, what, args)
}

// tell performs a call. The error is also that of an answer that is no success; the answer comes with it.
func (c *Client) tell(ctx context.Context, q *call, what string, args ...any) (answer, error) {
	a, err := c.do(ctx, q)
	if err == nil {
		err = q.failure(a)
	}
	return a, annotate(err, what, args)
}

// annotate says what was to be done when an error came.
func annotate(err error, what string, args []any) error {
	if err == nil || what == "" {
		return err
	}
	return fmt.Errorf(what+": %w", append(args, err)...)
}

// failure turns an answer that is no success into an error.
func (q *call) failure(a answer) error {
	switch refusal := a.refusal(); {
	case refusal == nil:
		return nil
	case a.status != http.StatusNotFound || q.missing == nil:
		return refusal
	case q.removes && a.repeated:
		return nil // an earlier try did it, as far as anybody can tell, and it is gone
	}
	return q.missing
}

// decode reads a JSON document.
func (a answer) decode(into any) error {
	if err := json.Unmarshal(a.body, into); err != nil {
		return fmt.Errorf("answer of %s: %w", a.server, err)
	}
	return nil
}
