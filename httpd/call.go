package httpd

import (
	"encoding/json"
	"net/http"

	"github.com/gorilla/mux"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// call is a routed request under way: what it asks for, and where its answer goes. Its readings of parameters and
// body are sticky, see query: an endpoint reads all that it needs in the order in which mistakes are told, and looks
// at err once, before it does anything.
type call struct {
	*Handler
	query
	w      http.ResponseWriter
	r      *http.Request
	v1     bool // in version 1 of Eureka's protocol
	status int  // of a document that is answered; 0: 200
}

// endpoint returns the document that answers a call, which its API's writer sends, or what fail words.
type endpoint func(c *call) (document any, err error)

// answered is what an endpoint returns that has sent its answer itself.
var answered any = struct{}{}

// callOf is a call of a route. It lies in the answer, which is allocated anyway.
func (h *Handler) callOf(w http.ResponseWriter, r *http.Request, v1 bool) *call {
	a := answerUnder(w)
	if a == nil {
		a = new(answer)
	}
	a.call = call{Handler: h, query: queryOf(r), w: w, r: r, v1: v1}
	return &a.call
}

// send writes a document as an API does.
func (c *call) send(form errorForm, document any) error {
	switch {
	case document == answered:
		return nil
	case form == consulForm:
		return c.respondConsul(document)
	}
	body, err := json.Marshal(document)
	if err != nil {
		return err
	}
	respond(c.w, c.r, http.StatusOK, "application/json", append(body, '\n'))
	return nil
}

// body reads a body of at most limit bytes, see readBody; nil if an error was met.
func (c *call) body(limit int64) (body []byte) {
	if c.err == nil {
		body, c.err = readBody(c.w, c.r, limit)
	}
	return body
}

// decoded reads a body of at most limit bytes with decode.
func decoded[T any](c *call, limit int64, decode func(body []byte) (T, error)) (value T) {
	if body := c.body(limit); c.err == nil {
		value, c.err = decode(body)
	}
	return value
}

// noBody reads and drops a body that means nothing, see ignoreBody.
func (c *call) noBody() {
	if c.err == nil {
		c.err = ignoreBody(c.w, c.r, c.config.Limits.IgnoredBytes)
	}
}

// bodiless is an endpoint of calls whose body means nothing, see ignoreBody.
func bodiless(e endpoint) endpoint {
	return func(c *call) (any, error) {
		if c.noBody(); c.err != nil {
			return nil, c.err
		}
		return e(c)
	}
}

// segment is a segment of a routed path, unescaped. cleanPath escaped it, so it unescapes.
func (c *call) segment(name string) string { return unescaped(mux.Vars(c.r)[name]) }

// key is the instance that a path names.
func (c *call) key() registry.Key { return registry.NewKey(c.segment("app"), c.segment("id")) }

// rest is the variable at the end of a path that is taken as it came, unescaped once.
func (c *call) rest() string {
	for _, rest := range mux.Vars(c.r) {
		return unescaped(rest)
	}
	return ""
}

// document answers with a document of Eureka's protocol.
func (c *call) document(f eureka.Format, body []byte) (any, error) {
	respondEureka(c.w, c.r, http.StatusOK, f, body)
	return answered, nil
}

// decodedEureka is decoded for a body that may be in either of the protocol's formats.
func decodedEureka[T any](c *call, limit int64, decode func(body []byte, f eureka.Format) (T, error)) T {
	return decoded(c, limit, func(body []byte) (value T, err error) {
		f, err := bodyFormat(c.r.Header.Get("Content-Type"), body)
		if err != nil {
			return value, err
		}
		value, err = decode(body, f)
		return value, unparsable(f, err)
	})
}
