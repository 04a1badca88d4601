package httpd

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gorilla/mux"

	"github.com/seed-20419f34/rollcall/fsm/order"
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

const (
	maxURIBytes   = 2 << 10
	maxParams     = 32
	maxMetaParams = 256 // of the metadata route, whose parameters are data
)

var errURITooLong = &refusal{status: http.StatusRequestURITooLong}

// checkQuery bounds the number of parameters.
func checkQuery(query string, limit int) error {
	if query != "" && strings.Count(query, "&")+1 > limit {
		return badRequest("the request has more than " + strconv.Itoa(limit) + " parameters")
	}
	return nil
}

// query is a sticky reader of a request's parameters: after one that cannot be read, err says what is wrong with it, and
// every further reading finds nothing. So what is read first is refused first.
type query struct {
	raw string
	err error
}

func queryOf(r *http.Request) query { return query{raw: r.URL.RawQuery} }

// param returns the first value of a parameter, without building a map of all. ok is false if there
// is none.
func param(query, name string) (value string, ok bool, err error) {
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		key, value, _ := strings.Cut(pair, "=")
		if key, err = unescapeParam(key); err != nil {
			return "", false, err
		}
		if key == name {
			value, err = unescapeParam(value)
			return value, err == nil, err
		}
	}
	return "", false, nil
}

func unescapeParam(text string) (string, error) {
	if !strings.ContainsAny(text, "%+") {
		return text, nil
	}
	text, err := url.QueryUnescape(text)
	if err != nil {
		return "", badRequest("the query is not correctly escaped")
	}
	return text, nil
}

// refuse notes what is wrong with a parameter.
func (q *query) refuse(format string, args ...any) {
	if q.err == nil {
		q.err = badRequest(fmt.Sprintf(format, args...))
	}
}

// lookup reads the first value of a parameter.
func (q *query) lookup(name string) (value string, given bool) {
	if q.err == nil {
		value, given, q.err = param(q.raw, name)
	}
	return value, given
}

// text reads a parameter; "" if it is not given.
func (q *query) text(name string) string {
	value, _ := q.lookup(name)
	return value
}

// all reads all values of a parameter.
func (q *query) all(name string) (values []string) {
	for part := range strings.SplitSeq(q.raw, "&") {
		one := query{raw: part, err: q.err}
		if value, given := one.lookup(name); given {
			values = append(values, value)
		}
		q.err = one.err
	}
	return values
}

// given says whether a parameter is there, with whatever value. Where the query cannot be read, another reading says so.
func (q *query) given(name string) bool {
	_, given, _ := param(q.raw, name)
	return given
}

// number reads a number of 64 bits.
func (q *query) number(name string) (number uint64, given bool) {
	text, given := q.lookup(name)
	if !given {
		return 0, false
	}
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		q.refuse("%s: %v", name, err)
	}
	return number, err == nil
}

// duration reads a length of time between two bounds. wrong says which those are.
func (q *query) duration(name string, least, most time.Duration, wrong string) (d time.Duration, given bool) {
	text, given := q.lookup(name)
	if !given {
		return 0, false
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < least || d > most {
		q.refuse("%s", wrong)
		return 0, false
	}
	return d, true
}

// flag reads a parameter that is true or false; false if it is not given.
func (q *query) flag(name string) bool {
	word, given := q.lookup(name)
	if given && word != "true" && word != "false" {
		q.refuse("%s must be true or false", name)
	}
	return word == "true"
}

// present reads a parameter that is true where it is given without a value.
func (q *query) present(name string) bool {
	text, given := q.lookup(name)
	if !given || text == "" {
		return given
	}
	return q.truth(text, "Invalid value for %s: %q", name, text)
}

// truth reads a word for yes or no, in one of Go's spellings. wrong says which parameter it is.
func (q *query) truth(word, wrong string, args ...any) bool {
	value, err := strconv.ParseBool(word)
	if err != nil {
		q.refuse(wrong, args...)
	}
	return value
}

// dirty reads lastDirtyTimestamp, in ms; 0 if it is not given.
func (q *query) dirty() int64 {
	text, given := q.lookup("lastDirtyTimestamp")
	if !given {
		return 0
	}
	dirty, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		q.refuse("lastDirtyTimestamp must be a number of milliseconds")
	}
	return dirty
}

// statusValue reads the status in value; Unknown if it is not given and need not be.
func (q *query) statusValue(required bool) registry.Status {
	word, given := q.lookup("value")
	if !given && !required {
		return registry.Unknown
	}
	status, known := registry.ParseStatus(word)
	if !known {
		q.refuse("value must be one of UP, DOWN, STARTING, OUT_OF_SERVICE, UNKNOWN")
	}
	return status
}

// consistency reads how fresh an answer must be.
func (q *query) consistency() (read registry.Consistency, given bool) {
	word, given := q.lookup("consistency")
	if !given {
		return 0, false
	}
	read, known := order.ParseConsistency(word)
	if !known {
		q.refuse("consistency must be one of linearizable, leader, stale")
	}
	return read, known
}

// maxNameBytes bounds every segment of a path, so application and instance names too.
const maxNameBytes = 255

// cleanPath splits the escaped path, unescapes each segment and drops empty ones: clients send
// "apps", "apps/" and "//apps" for the same thing and follow no redirect. An escaped slash stays
// inside its segment. It returns the path in one form, for the router.
func cleanPath(u *url.URL) (*url.URL, error) {
	var plain, escaped strings.Builder
	for segment := range strings.SplitSeq(u.EscapedPath(), "/") {
		if segment == "" {
			continue
		}
		name, err := url.PathUnescape(segment)
		if err != nil {
			return nil, badRequest("the path is not correctly escaped")
		}
		if err := checkName(name); err != nil {
			return nil, err
		}
		plain.WriteString("/" + name)
		escaped.WriteString("/" + url.PathEscape(name))
	}
	clean := *u
	clean.Path, clean.RawPath = plain.String(), escaped.String()
	if clean.Path == "" {
		clean.Path, clean.RawPath = "/", "/"
	}
	return &clean, nil
}

// checkName refuses what no name in a path may be. Names never touch a file system; dots are refused
// all the same, because proxies resolve them.
func checkName(name string) error {
	switch {
	case name == "." || name == "..":
		return badRequest("a path segment must not be . or ..")
	case len(name) > maxNameBytes:
		return badRequest("a path segment is longer than 255 bytes")
	case !utf8.ValidString(name):
		return badRequest("a path segment is not UTF-8")
	case strings.IndexFunc(name, unicode.IsControl) >= 0:
		return badRequest("a path segment has a control character")
	}
	return nil
}

// unescaped is a segment of a path that net/http or cleanPath has checked.
func unescaped(segment string) string {
	name, _ := url.PathUnescape(segment)
	return name
}
