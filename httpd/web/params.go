package web

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/order"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Bounds of a request line.
const (
	MaxURIBytes   = 2 << 10
	MaxParams     = 32
	MaxMetaParams = 256 // for the metadata route, whose parameters are data
)

// ErrURITooLong refuses a request line above MaxURIBytes, or above the bound of its API.
var ErrURITooLong = &Refusal{Status: http.StatusRequestURITooLong}

// CheckQuery bounds the number of parameters.
func CheckQuery(query string, limit int) error {
	if query != "" && strings.Count(query, "&")+1 > limit {
		return BadRequest("the request has more than " + strconv.Itoa(limit) + " parameters")
	}
	return nil
}

// Params is a sticky reader of a request's parameters: after the first unreadable one, Err says what is wrong with it,
// and every further read finds nothing. So what is read first is refused first.
type Params struct {
	Raw string
	Err error
}

// ParamsOf returns the parameters of a request.
func ParamsOf(r *http.Request) Params { return Params{Raw: r.URL.RawQuery} }

// param returns the first value of a parameter, without building a map of all. ok is false if it is missing.
func param(query, name string) (value string, ok bool, err error) {
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		key, value, _ := strings.Cut(pair, "=")
		if key, err = UnescapeParam(key); err != nil {
			return "", false, err
		}
		if key == name {
			value, err = UnescapeParam(value)
			return value, err == nil, err
		}
	}
	return "", false, nil
}

// UnescapeParam unescapes the name or the value of a parameter.
func UnescapeParam(text string) (string, error) {
	if !strings.ContainsAny(text, "%+") {
		return text, nil
	}
	text, err := url.QueryUnescape(text)
	if err != nil {
		return "", BadRequest("the query is not correctly escaped")
	}
	return text, nil
}

// Refuse records what is wrong with a parameter.
func (q *Params) Refuse(format string, args ...any) {
	if q.Err == nil {
		q.Err = BadRequest(fmt.Sprintf(format, args...))
	}
}

// Lookup reads the first value of a parameter.
func (q *Params) Lookup(name string) (value string, given bool) {
	if q.Err == nil {
		value, given, q.Err = param(q.Raw, name)
	}
	return value, given
}

// Text reads a parameter, or returns "" if it is not given.
func (q *Params) Text(name string) string {
	value, _ := q.Lookup(name)
	return value
}

// All reads all values of a parameter.
func (q *Params) All(name string) (values []string) {
	for part := range strings.SplitSeq(q.Raw, "&") {
		one := Params{Raw: part, Err: q.Err}
		if value, given := one.Lookup(name); given {
			values = append(values, value)
		}
		q.Err = one.Err
	}
	return values
}

// Given reports whether a parameter is there, with whatever value. A query that cannot be read is reported by another
// read.
func (q *Params) Given(name string) bool {
	_, given, _ := param(q.Raw, name)
	return given
}

// Number reads an unsigned 64-bit number.
func (q *Params) Number(name string) (number uint64, given bool) {
	text, given := q.Lookup(name)
	if !given {
		return 0, false
	}
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		q.Refuse("%s: %v", name, err)
	}
	return number, err == nil
}

// Duration reads a duration between two bounds. wrong is the text that states them.
func (q *Params) Duration(name string, least, most time.Duration, wrong string) (d time.Duration, given bool) {
	text, given := q.Lookup(name)
	if !given {
		return 0, false
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < least || d > most {
		q.Refuse("%s", wrong)
		return 0, false
	}
	return d, true
}

// Flag reads a boolean parameter, or returns false if it is not given.
func (q *Params) Flag(name string) bool {
	word, given := q.Lookup(name)
	if given && word != "true" && word != "false" {
		q.Refuse("%s must be true or false", name)
	}
	return word == "true"
}

// Present reads a boolean parameter that is true if given without a value.
func (q *Params) Present(name string) bool {
	text, given := q.Lookup(name)
	if !given || text == "" {
		return given
	}
	return q.ParseBool(text, "Invalid value for %s: %q", name, text)
}

// ParseBool reads a word for yes or no, in one of Go's spellings. wrong says which parameter it is.
func (q *Params) ParseBool(word, wrong string, args ...any) bool {
	value, err := strconv.ParseBool(word)
	if err != nil {
		q.Refuse(wrong, args...)
	}
	return value
}

// LastDirty reads lastDirtyTimestamp, in ms, or returns 0 if it is not given.
func (q *Params) LastDirty() int64 {
	text, given := q.Lookup("lastDirtyTimestamp")
	if !given {
		return 0
	}
	dirty, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		q.Refuse("lastDirtyTimestamp must be a number of milliseconds")
	}
	return dirty
}

// StatusValue reads the status in value, or returns Unknown if it is not given and not required.
func (q *Params) StatusValue(required bool) registry.Status {
	word, given := q.Lookup("value")
	if !given && !required {
		return registry.Unknown
	}
	status, known := registry.ParseStatus(word)
	if !known {
		q.Refuse("value must be one of %s", strings.Join(registry.StatusWords(), ", "))
	}
	return status
}

// Consistency reads how fresh a response must be.
func (q *Params) Consistency() (read registry.Consistency, given bool) {
	word, given := q.Lookup("consistency")
	if !given {
		return 0, false
	}
	read, known := order.ParseConsistency(word)
	if !known {
		q.Refuse("consistency must be one of linearizable, leader, stale")
	}
	return read, known
}

// Bounds of an operator's texts about an act, in bytes.
const (
	maxAuthor = 128
	maxReason = 512
)

// By reads the author of an act and the reason. The author is the principal, with the name that the caller gives
// beside it. For an anonymous caller the author is the name that it gives, or else its address: an act always has an
// author.
func (c *Call) By() (by registry.Act) {
	named := c.actText("author", maxAuthor)
	by.Reason = c.actText("reason", maxReason)
	switch {
	case c.principal != nil:
		by.Author, by.Says = c.principal.Name, named
	case named != "":
		by.Author = named
	default:
		host, _, _ := net.SplitHostPort(c.R.RemoteAddr)
		by.Author = "from " + host
	}
	return by
}

// actText reads a text that is shown to people.
func (q *Params) actText(name string, limit int) string {
	text := q.Text(name)
	switch {
	case len(text) > limit:
		q.Refuse("%s has %d bytes; at most %d are kept", name, len(text), limit)
	case !order.PlainText(text):
		q.Refuse("%s must be UTF-8 without control characters", name)
	}
	return text
}
