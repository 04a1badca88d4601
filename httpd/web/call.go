package web

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/gorilla/mux"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Call is a routed request under way: what the client asks for, and where the response goes. The first mistake in its
// parameters or body sticks in Err, see Params: an endpoint reads everything it needs, in the order that mistakes
// are reported, and checks Err once, before it does anything.
type Call struct {
	Params
	W      http.ResponseWriter
	R      *http.Request
	V1     bool // in version 1 of Eureka's protocol
	Status int  // of the response with the document that an endpoint of Consul's API returns; 0 means 200

	node      *Node
	principal *Principal // nil if anonymous
	by        tables     // that the call was authorized by
	needs     []access.Need
}

// Sent is returned by an endpoint that has sent its response itself. Any other document is sent by its API's writer,
// an error by Fail.
var Sent any = struct{}{}

// NewCall returns the call of a route. The call is a part of the Response, which is allocated anyway.
func (n *Node) NewCall(w http.ResponseWriter, r *http.Request, v1 bool) *Call {
	resp := responseUnder(w)
	if resp == nil {
		resp = new(Response)
	}
	resp.call = Call{Params: ParamsOf(r), W: w, R: r, V1: v1, node: n}
	return &resp.call
}

// Route is a row of a table of routes whose endpoints take calls of type C.
type Route[C any] struct {
	Needs   Needs // of the caller
	Methods []string
	Path    string
	Form    Form // of its errors, and of its document
	Do      func(c C) (document any, err error)
}

// Bind turns one package's table of routes into routes for any call: each endpoint gets the package's own type of
// call, which with makes from a *Call. R is Route[C], or a similar type declared by a package.
func Bind[C any, R ~struct {
	Needs   Needs
	Methods []string
	Path    string
	Form    Form
	Do      func(C) (any, error)
}](rows []R, with func(*Call) C) []Route[*Call] {
	bound := make([]Route[*Call], len(rows))
	for i, row := range rows {
		rt := Route[C](row)
		bound[i] = Route[*Call]{rt.Needs, rt.Methods, rt.Path, rt.Form, func(c *Call) (any, error) { return rt.Do(with(c)) }}
	}
	return bound
}

// Serve performs a route's call, if the caller may make it, and sends the document that its endpoint returns.
func (c *Call) Serve(rt Route[*Call]) error {
	if err := c.authorize(rt.Needs); err != nil {
		return err
	}
	if rt.Form == ConsulForm && c.R.Header.Get("Prefer") == "wait=0" {
		c.R = c.R.WithContext(context.WithValue(c.R.Context(), soonKey{}, true))
	}
	if err := c.admitUnheard(); err != nil {
		return err
	}
	document, err := rt.Do(c)
	if errors.Is(err, registry.ErrRevoked) {
		return c.node.lateDenial(c.R.Context())
	}
	if err != nil {
		return err
	}
	return c.send(rt.Form, document)
}

// soonKey marks the context of a caller that prefers another server to waiting for a leader (Prefer: wait=0, RFC
// 7240).
type soonKey struct{}

type unheardKey struct{}

// EvenUnheard returns a context for reads by people who look at a node that has not heard from a leader.
func EvenUnheard(ctx context.Context) context.Context {
	return context.WithValue(ctx, unheardKey{}, true)
}

// KnowsUnheard reports whether a context is for such a read.
func KnowsUnheard(ctx context.Context) bool { return ctx.Value(unheardKey{}) != nil }

// unheardHeader marks a response to such a read from a node that has not heard from a leader.
const unheardHeader = "X-Rollcall-Unheard"

// admitUnheard honors the parameter unheard, which only callers over the socket in the data directory may use.
func (c *Call) admitUnheard() error {
	if !strings.Contains(c.Raw, "unheard") || !c.Present("unheard") {
		return c.Err
	}
	if c.R.Context().Value(administratorKey{}) == nil {
		return BadRequest("unheard goes with requests by admin.sock in the data directory: it shows what a node has that has heard no leader")
	}
	if c.node.Service.Health().Unheard {
		c.W.Header().Set(unheardHeader, "true")
	}
	c.R = c.R.WithContext(EvenUnheard(c.R.Context()))
	return nil
}

// Caller is a *Call, or a package's own type of call, which embeds one.
type Caller interface{ baseCall() *Call }

func (c *Call) baseCall() *Call { return c }

// judgeRead calls StillAllowed on a context's call, if it has one.
func judgeRead(ctx context.Context) error {
	if c, _ := ctx.Value(readerKey{}).(*Call); c != nil {
		return c.StillAllowed()
	}
	return nil
}

type readerKey struct{}

// Bodiless makes an endpoint that drops a meaningless body, see DropBody, before it calls do.
func Bodiless[C Caller](do func(C) (any, error)) func(C) (any, error) {
	return func(call C) (any, error) {
		c := call.baseCall()
		if c.IgnoreBody(); c.Err != nil {
			return nil, c.Err
		}
		return do(call)
	}
}

// Viewed makes an endpoint from show, which gets the view that the call asks for, see Call.View.
func Viewed[C Caller](show func(c C, v FreshView) (any, error)) func(C) (any, error) {
	return func(call C) (any, error) {
		c := call.baseCall()
		v := c.View()
		if c.Err != nil {
			return nil, c.Err
		}
		return show(call, v)
	}
}

// WithCoordination makes an endpoint from do that refuses on a node without consensus.
func WithCoordination[C Caller](do func(C) (any, error)) func(C) (any, error) {
	return func(call C) (any, error) {
		if call.baseCall().node.Coordination == nil {
			return nil, errNoCoordination
		}
		return do(call)
	}
}

// send sends a document in the form of the route's API.
func (c *Call) send(form Form, document any) (err error) {
	var body []byte
	switch {
	case document == Sent:
		return nil
	case form == ConsulForm:
		body, err = c.EncodeConsul(document)
	default:
		body, err = json.Marshal(document)
		body = append(body, '\n')
	}
	if err == nil {
		Respond(c.W, c.R, cmp.Or(c.Status, http.StatusOK), "application/json", body)
	}
	return err
}

// Body reads a body of at most limit bytes, see readBody, or returns nil after an error.
func (c *Call) Body(limit int64) (body []byte) {
	if c.Err == nil {
		body, c.Err = readBody(c.W, c.R, limit)
	}
	return body
}

// Decode reads a body of at most limit bytes with decode.
func Decode[T any](c *Call, limit int64, decode func(body []byte) (T, error)) (value T) {
	if body := c.Body(limit); c.Err == nil {
		value, c.Err = decode(body)
	}
	return value
}

// IgnoreBody reads and drops a meaningless body, see DropBody.
func (c *Call) IgnoreBody() {
	if c.Err == nil {
		c.Err = DropBody(c.W, c.R, c.node.Limits().IgnoredBytes)
	}
}

// Segment returns a segment of a routed path, unescaped. That cannot fail, because CleanPath escaped the segment.
func (c *Call) Segment(name string) string { return unescaped(mux.Vars(c.R)[name]) }

// Key returns the instance that a path names.
func (c *Call) Key() registry.Key { return registry.NewKey(c.Segment("app"), c.Segment("id")) }

// Rest returns the variable at the end of a verbatim path, unescaped once.
func (c *Call) Rest() string {
	for _, rest := range mux.Vars(c.R) {
		return unescaped(rest)
	}
	return ""
}

// EncodeConsul encodes a document the way Consul's API sends it: as JSON, indented if the call asks for it with pretty.
// True and false are never indented: clients look for the bare word.
func (c *Call) EncodeConsul(document any) ([]byte, error) {
	body, err := json.Marshal(document)
	if _, word := document.(bool); err == nil && !word && c.Given("pretty") {
		var indented bytes.Buffer
		_ = json.Indent(&indented, body, "", "    ") // cannot fail: it was just encoded
		body = append(indented.Bytes(), '\n')
	}
	return body, err
}

// SendText sends a text.
func (c *Call) SendText(text string) (any, error) {
	Respond(c.W, c.R, http.StatusOK, "text/plain; charset=utf-8", []byte(text))
	return Sent, nil
}

// Methods of routes.
var (
	Get      = []string{http.MethodGet, http.MethodHead}
	GetOnly  = []string{http.MethodGet} // where a HEAD request would be useless
	Put      = []string{http.MethodPut}
	Post     = []string{http.MethodPost}
	Delete   = []string{http.MethodDelete}
	PutOrGet = []string{http.MethodPut, http.MethodGet}
)

// ignoreRest drops the unread rest of a body, like IgnoreBody.
func (c *Call) ignoreRest() error { return dropRest(c.W, c.R, c.node.Limits().IgnoredBytes) }

// Explain reads author and reason, as By does, for the audit of a call whose operations keep neither.
func (c *Call) Explain() {
	by := c.By()
	if a, _ := c.R.Context().Value(askerKey{}).(*asker); a != nil {
		a.by = by
	}
}

// noteAsker puts the request into the call's context if something may have to be recorded: in mode off most reads need
// nothing.
func (c *Call) noteAsker(wanted []access.Need) {
	n := c.node
	reads := len(wanted) > 0 && wanted[0].Verb == access.Read && wanted[0].Resource != access.Auth
	if n.Audit == nil || reads && !n.access.asks() {
		return
	}
	operates := slices.ContainsFunc(wanted, operating)
	c.R = c.R.WithContext(asking(c.R.Context(), c.R, c.W.Header().Get(RequestIDHeader), operates))
}

// Did records an operator's act that is not a client's operation, and returns its error.
func (c *Call) Did(operation, name string, by registry.Act, err error) error {
	return c.node.did(c.R.Context(), deed{operation: operation, needs: []access.Need{{Resource: access.Operator, Verb: access.Write}}, name: name, by: by}, err)
}
