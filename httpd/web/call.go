package web

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"

	"github.com/gorilla/mux"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Call is a routed request under way: what the client asks for, and where the response goes. Its readings of parameters
// and body are sticky, see Params: an endpoint reads all that it needs in the order in which mistakes are reported, and
// checks Err once, before it does anything.
type Call struct {
	Params
	W      http.ResponseWriter
	R      *http.Request
	V1     bool // in version 1 of Eureka's protocol
	Status int  // of a document that an endpoint returns; 0: 200
	node   *Node
}

// Endpoint returns the document that responds to a call, which the API's writer sends, or an error, which Fail sends.
// Each package of routes has a type of its own for its calls: a *Call with what its routes need.
type Endpoint func(c *Call) (document any, err error)

// Sent is what an endpoint returns that has sent its response itself.
var Sent any = struct{}{}

// NewCall is a call of a route. It lies in the response, which is allocated anyway.
func (n *Node) NewCall(w http.ResponseWriter, r *http.Request, v1 bool) *Call {
	a := responseUnder(w)
	if a == nil {
		a = new(Response)
	}
	a.call = Call{Params: ParamsOf(r), W: w, R: r, V1: v1, node: n}
	return &a.call
}

// Route is a row of a table of routes, whose endpoints take calls of type C.
type Route[C any] struct {
	Methods []string
	Path    string
	Form    Form // of its errors, and of the document that it returns
	Do      func(c C) (document any, err error)
}

// Bind makes routes for any call out of a package's rows, whose endpoints take what with makes of a call.
func Bind[C any, R ~struct {
	Methods []string
	Path    string
	Form    Form
	Do      func(C) (any, error)
}](rows []R, with func(*Call) C) []Route[*Call] {
	bound := make([]Route[*Call], len(rows))
	for i, row := range rows {
		rt := Route[C](row)
		bound[i] = Route[*Call]{rt.Methods, rt.Path, rt.Form, func(c *Call) (any, error) { return rt.Do(with(c)) }}
	}
	return bound
}

// Serve performs a call of a route, and sends the document that its endpoint returns.
func (c *Call) Serve(rt Route[*Call]) error {
	document, err := rt.Do(c)
	if err != nil {
		return err
	}
	return c.send(rt.Form, document)
}

// Caller is a call with what the routes of a package need.
type Caller interface{ called() *Call }

func (c *Call) called() *Call { return c }

// Bodiless is an endpoint of calls whose body means nothing, see DropBody.
func Bodiless[C Caller](do func(C) (any, error)) func(C) (any, error) {
	return func(of C) (any, error) {
		c := of.called()
		if c.IgnoreBody(); c.Err != nil {
			return nil, c.Err
		}
		return do(of)
	}
}

// Viewed is an endpoint that shows a view, see Call.View.
func Viewed[C Caller](show func(c C, v FreshView) (any, error)) func(C) (any, error) {
	return func(of C) (any, error) {
		c := of.called()
		v := c.View()
		if c.Err != nil {
			return nil, c.Err
		}
		return show(of, v)
	}
}

// WithCoordination is an endpoint that only a node with consensus has.
func WithCoordination[C Caller](do func(C) (any, error)) func(C) (any, error) {
	return func(of C) (any, error) {
		if of.called().node.Coordination == nil {
			return nil, errNoCoordination
		}
		return do(of)
	}
}

// send writes a document as an API does.
func (c *Call) send(form Form, document any) error {
	switch {
	case document == Sent:
		return nil
	case form == ConsulForm:
		return c.respondConsul(document)
	}
	body, err := json.Marshal(document)
	if err != nil {
		return err
	}
	Respond(c.W, c.R, http.StatusOK, "application/json", append(body, '\n'))
	return nil
}

// Body reads a body of at most limit bytes, see readBody; nil if an error was met.
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

// IgnoreBody reads and drops a body that means nothing, see DropBody.
func (c *Call) IgnoreBody() {
	if c.Err == nil {
		c.Err = DropBody(c.W, c.R, c.node.Limits.IgnoredBytes)
	}
}

// Segment is a segment of a routed path, unescaped. CleanPath escaped it, so it unescapes.
func (c *Call) Segment(name string) string { return unescaped(mux.Vars(c.R)[name]) }

// Key is the instance that a path names.
func (c *Call) Key() registry.Key { return registry.NewKey(c.Segment("app"), c.Segment("id")) }

// Rest is the variable at the end of a path that is taken as it came, unescaped once.
func (c *Call) Rest() string {
	for _, rest := range mux.Vars(c.R) {
		return unescaped(rest)
	}
	return ""
}

// respondConsul sends a document as JSON, indented if the call asks for it with pretty. True and false it sends as they
// are: clients look for the word.
func (c *Call) respondConsul(document any) error {
	body, err := json.Marshal(document)
	if err != nil {
		return err
	}
	if _, word := document.(bool); !word && c.Given("pretty") {
		var indented bytes.Buffer
		_ = json.Indent(&indented, body, "", "    ") // it was just encoded
		body = append(indented.Bytes(), '\n')
	}
	Respond(c.W, c.R, cmp.Or(c.Status, http.StatusOK), "application/json", body)
	return nil
}

// SendText sends a text.
func (c *Call) SendText(text string) (any, error) {
	Respond(c.W, c.R, http.StatusOK, "text/plain; charset=utf-8", []byte(text))
	return Sent, nil
}

// Methods of routes.
var (
	Get      = []string{http.MethodGet, http.MethodHead}
	GetOnly  = []string{http.MethodGet} // where headers alone say nothing
	Put      = []string{http.MethodPut}
	Post     = []string{http.MethodPost}
	Delete   = []string{http.MethodDelete}
	PutOrGet = []string{http.MethodPut, http.MethodGet}
)
