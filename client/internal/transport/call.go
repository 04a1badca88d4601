package transport

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

const jsonType = "application/json"

// Call is one request, to any server.
type Call struct {
	method string
	eureka bool // the path is one of Eureka's resources
	// consul is set for Consul's routes, which also respond with 500 to invalid requests.
	consul bool
	path   []string // segments, not escaped
	Query  url.Values
	Body   []byte // JSON unless Raw is set; may be nil
	Raw    bool   // Body is not JSON
	Accept string // type of the response; "" means JSON
	Write  bool   // it changes something
	// Patience bounds one try. 0 means Config.Timeout.
	Patience time.Duration
	// once makes it safe to repeat a write that must not happen twice: servers answer it as they answered the first
	// one with that text. "" if it may happen twice.
	once    string
	missing error // what a 404 means; nil if it is a refusal like any other
	Removes bool  // a 404 after an earlier try is a success
	// Once is set if a try that may have taken effect must be the last one, because another one would do something
	// else.
	Once bool
}

// Own returns a call of Rollcall's own API.
func Own(method string, path ...string) *Call {
	return &Call{method: method, path: append([]string{"v1", "rollcall"}, path...), Write: method != http.MethodGet}
}

// Eureka returns a call of Eureka's API.
func Eureka(method string, path ...string) *Call {
	return &Call{method: method, eureka: true, path: path, Write: method != http.MethodGet}
}

// EurekaInstance returns a call of Eureka's API about one instance.
func EurekaInstance(method string, key registry.Key, resource ...string) *Call {
	return Eureka(method, append([]string{"apps", key.App, key.ID}, resource...)...)
}

// Consul returns a call of Consul's API, below /v1. A write takes effect once, however often it is tried.
func Consul(method string, path ...string) *Call {
	q := &Call{method: method, consul: true, path: append([]string{"v1"}, path...)}
	if method != http.MethodGet {
		q.Write, q.once = true, rand.Text()
	}
	return q
}

// With adds parameters, given as alternating names and values. It leaves out those with an empty value.
func (q *Call) With(parameters ...string) *Call {
	if q.Query == nil {
		q.Query = make(url.Values)
	}
	for ; len(parameters) > 0; parameters = parameters[2:] {
		if parameters[1] != "" {
			q.Query.Set(parameters[0], parameters[1])
		}
	}
	return q
}

// Or sets what a 404 means.
func (q *Call) Or(missing error) *Call {
	q.missing = missing
	return q
}

func (q *Call) request(ctx context.Context, s *Server) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, q.method, q.url(s), bytes.NewReader(q.Body))
	if err != nil {
		return nil, err
	}
	if s.socket != "" {
		req.Host = "localhost"
	}
	req.Header.Set("Accept", cmp.Or(q.Accept, jsonType))
	switch {
	case q.Body == nil:
	case q.Raw:
		req.Header.Set("Content-Type", "application/octet-stream")
	default:
		req.Header.Set("Content-Type", jsonType)
	}
	if q.consul {
		req.Header.Set("Prefer", "wait=0") // another server may have a leader sooner
	}
	if q.once != "" {
		req.Header.Set("Idempotency-Key", q.once)
	}
	return req, nil
}

// url escapes each segment separately, because an id may contain a slash.
func (q *Call) url(s *Server) string {
	var b strings.Builder
	if q.eureka {
		b.WriteString(s.eureka)
	} else {
		b.WriteString(s.own())
	}
	for _, segment := range q.path {
		b.WriteString("/" + url.PathEscape(segment))
	}
	if len(q.Query) > 0 {
		b.WriteString("?" + q.Query.Encode())
	}
	return b.String()
}
