package httpd

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seed-20419f34/rollcall/fsm/order"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

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
