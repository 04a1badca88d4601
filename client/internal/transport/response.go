package transport

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/httpd/api"
)

// Response is what a server said with a status below 500, or with one that no other server would better.
type Response struct {
	Server string // base URL
	Status int
	Header http.Header
	Body   []byte
	Sent   time.Time // when the try that brought it began
	// Repeated is set if an earlier try may have taken effect, at another server or over a connection that was lost.
	Repeated bool

	refused func(Refusal) error // as in Config.Refused
}

// Refusal returns the response as an error, or nil if it is a success.
func (a Response) Refusal() *Refusal {
	if a.Status < 300 {
		return nil
	}
	const longest = 300
	var doc api.Error // of Rollcall's own API; otherwise the beginning of a text is shown
	if err := json.Unmarshal(a.Body, &doc); err != nil || doc.Error == "" {
		doc.Error = strings.TrimSpace(string(a.Body[:min(len(a.Body), longest)]))
	}
	r := &Refusal{Server: a.Server, Status: a.Status, Message: doc.Error, RetryAfter: seconds(a.Header.Get("Retry-After"))}
	r.repeated = a.Repeated
	r.certain = a.Header.Get(outcomeHeader) == "refused"
	r.denied = strings.Contains(a.Header.Get("WWW-Authenticate"), "insufficient_scope")
	r.public = a.refused(*r)
	return r
}

// seconds reads Retry-After; a missing one or a date counts as 0.
func seconds(text string) time.Duration {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0
	}
	return time.Duration(n) * time.Second
}

// decode reads a JSON document.
func (a Response) decode(into any) error {
	if err := json.Unmarshal(a.Body, into); err != nil {
		return fmt.Errorf("response of %s: %w", a.Server, err)
	}
	return nil
}

// longestResponse bounds how much of a response is read: some hundred thousand instances.
const longestResponse = 256 << 20

// readBounded reads everything, unless it is more than longest.
func readBounded(from io.Reader, longest int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(from, longest+1))
	if err == nil && int64(len(text)) > longest {
		err = conclusive{fmt.Errorf("it is longer than %d bytes", longest)}
	}
	return text, err
}

// outcomeHeader says that a write may have taken effect (with a 504), or did not (with a 500).
const outcomeHeader = "X-Rollcall-Outcome"

// insufficient returns nil for a response that ends the call, including a refusal, and otherwise why another server
// may do better.
func (q *Call) insufficient(a Response) error {
	refused := a.Refusal()
	switch {
	case a.Header.Get(outcomeHeader) == "unknown":
		return fmt.Errorf("%s: %w", a.Server, ErrUnknownOutcome)
	case refused == nil:
		return nil
	case q.elsewhere(refused):
		return refused
	case q.foreign(a):
		return fmt.Errorf("%w: %s answered %s %d", ErrNeedsRollcall, a.Server, "/"+strings.Join(q.path, "/"), a.Status)
	}
	return nil
}

// failure turns a response that is not a success into an error.
func (q *Call) failure(a Response) error {
	switch refusal := a.Refusal(); {
	case refusal == nil:
		return nil
	case a.Status == http.StatusNotFound && q.missing != nil && q.Removes && a.Repeated:
		return nil // an earlier try has probably removed it; either way it is gone
	case a.Status == http.StatusNotFound && q.missing != nil:
		return q.missing
	case a.Repeated:
		return fmt.Errorf("%w: an earlier try may have done it, and the last one was refused: %w", ErrUnknownOutcome, refusal)
	default:
		return refusal
	}
}

// Texts with which Consul's routes respond 500 when nothing was done and another server may do it.
const (
	noLeader     = "No cluster leader"
	shuttingDown = "this node is shutting down; ask another one"
)

// unavailable reports whether a server was unavailable, so that it has done nothing.
func (q *Call) unavailable(refused *Refusal) bool {
	if q.consul && refused.Status == http.StatusInternalServerError { // the 503 of Consul's routes, with Retry-After
		return refused.RetryAfter > 0 || refused.Message == noLeader || refused.Message == shuttingDown
	}
	return refused.Status == http.StatusServiceUnavailable
}

// elsewhere reports whether another server may do better.
func (q *Call) elsewhere(refused *Refusal) bool {
	switch status := refused.Status; {
	case status == http.StatusNotImplemented:
		return false // all servers of a cluster run in the same mode
	case q.consul && status == http.StatusInternalServerError:
		return q.unavailable(refused)
	case status >= 300 && status < 400, status >= 500:
		return true
	}
	return q.gated(refused)
}

// gated reports whether a stock Eureka server withholds its lists because it has not yet copied those of its peers
// (com.netflix.eureka.registry.PeerAwareInstanceRegistryImpl.shouldAllowAccess). It refuses a delta the same way when
// the whole list must be fetched, so a refused delta does not make the client ask another server.
func (q *Call) gated(refused *Refusal) bool {
	return q.eureka && q.method == http.MethodGet && refused.Status == http.StatusForbidden && !refused.denied && q.operation() != "delta"
}

// foreign reports whether a response to a call of Rollcall's own API, or of Consul's, comes from a server that does
// not know that API: it has no such path or method. Many of Rollcall's responses have the same statuses, but name the
// thing that does not exist.
func (q *Call) foreign(a Response) bool {
	if q.eureka || a.Status != http.StatusNotFound && a.Status != http.StatusMethodNotAllowed {
		return false
	}
	return a.Header.Get("X-Consul-Index") == "" && !ownError(a.Body)
}

// ownError reports whether a body is an error in the form of Rollcall's own API: an object with an error and nothing
// else. Spring's errors have an error too, but also timestamp, status and path; Netflix's server responds with HTML,
// as proxies do.
func ownError(body []byte) bool {
	var doc map[string]json.RawMessage
	var text string
	return json.Unmarshal(body, &doc) == nil && len(doc) == 1 && json.Unmarshal(doc["error"], &text) == nil
}
