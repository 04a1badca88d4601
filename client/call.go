package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/httpd/api"
)

const jsonType = "application/json"

// call is one request, to whichever server.
type call struct {
	method string
	eureka bool     // the path is one of Eureka's resources
	path   []string // segments, not escaped
	query  url.Values
	body   []byte // JSON unless raw is set; nil: none
	raw    bool   // body is bytes
	accept string // the type of the answer; "": JSON
	write  bool   // it changes something
	// patience bounds one try; 0: the client's timeout.
	patience time.Duration
	// once makes a write that must not happen twice safe to repeat: servers answer it as they answered
	// the first one of that text. "": it may happen twice.
	once string
	// missing is what a 404 means; nil: a refusal like any other.
	missing error
	removes bool // a 404 after an earlier try is a success
	// consul: the route is one of Consul's, where 500 is also the answer to what makes no sense.
	consul bool
}

// answer is what a server said, if its status is below 500 or there is no use in asking another one.
type answer struct {
	server string
	status int
	header http.Header
	body   []byte
	sent   time.Time // when the try began that brought it
	// repeated: an earlier try of the same call, at another server, may have taken effect.
	repeated bool
}

// do sends a call to the best server, and to the others while none gives an answer. An unknown outcome ends
// it, because a server has spent its time on it already.
func (c *Client) do(ctx context.Context, q *call) (answer, error) {
	if c.life.Err() != nil {
		return answer{}, ErrClosed
	}
	servers, err := c.candidates(ctx)
	if err != nil {
		return answer{}, err
	}
	t := &tour{client: c, call: q}
	a, ok := t.visit(ctx, servers)
	if !ok && !t.over {
		a, ok = t.visit(ctx, c.newcomers(ctx, servers))
	}
	if !ok {
		return answer{}, t.failure()
	}
	return a, nil
}

// tour is a call on its way from server to server.
type tour struct {
	client *Client
	call   *call
	errs   []error
	maybe  bool // a try may have taken effect
	over   bool // no other server would do better
}

// visit asks servers until one gives an answer.
func (t *tour) visit(ctx context.Context, servers []*server) (answer, bool) {
	for _, s := range servers {
		a, err := t.client.try(ctx, s, t.call)
		if err == nil {
			a.repeated = t.maybe
			return a, true
		}
		t.maybe = t.maybe || t.call.write && t.call.mayHaveWritten(err)
		t.errs = append(t.errs, err)
		t.over = ctx.Err() != nil || errors.Is(err, ErrUnknownOutcome) || errors.Is(err, ErrClosed) || errors.As(err, new(conclusive))
		if t.over {
			break
		}
	}
	return answer{}, false
}

func (t *tour) failure() error {
	err := errors.Join(unlessAllForeign(t.errs)...)
	if t.maybe && !errors.Is(err, ErrUnknownOutcome) {
		err = fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	return err
}

// unlessAllForeign takes what ErrNeedsRollcall says of a server from those who look for it, unless all
// servers are like that: otherwise one that is Rollcall may answer the next time.
func unlessAllForeign(errs []error) []error {
	foreign := func(err error) bool { return errors.Is(err, ErrNeedsRollcall) }
	if !slices.ContainsFunc(errs, func(err error) bool { return !foreign(err) }) {
		return errs
	}
	said := slices.Clone(errs)
	for i, err := range said {
		if foreign(err) {
			said[i] = errors.New(err.Error())
		}
	}
	return said
}

// try asks one server, and notes how it fares.
func (c *Client) try(ctx context.Context, s *server, q *call) (answer, error) {
	sent := time.Now()
	a, err := c.exchange(ctx, s, q)
	if err == nil {
		err = q.judge(a)
	}
	c.metrics.request(q.operation(), outcomeOf(a.status, err), time.Since(sent))
	c.noteFate(ctx, s, q, err)
	if err != nil {
		return answer{}, err
	}
	a.sent = sent
	return a, nil
}

// exchange makes a request and reads the answer, whatever it is.
func (c *Client) exchange(ctx context.Context, s *server, q *call) (answer, error) {
	ctx, patience := withPatience(ctx, cmp.Or(q.patience, c.timeout), c.timeout)
	defer patience.stop()
	resp, done, err := c.begin(ctx, s, q)
	if err != nil {
		return answer{}, err
	}
	defer done()
	defer resp.Body.Close()
	return readAnswer(s, resp, patience.reader(resp.Body))
}

// readAnswer takes an answer whose body is read by way of body.
func readAnswer(s *server, resp *http.Response, body io.Reader) (answer, error) {
	text, err := readBounded(body, longestAnswer)
	if err != nil {
		return answer{}, fmt.Errorf("read the answer of %s: %w", s.url, err)
	}
	return answer{server: s.url, status: resp.StatusCode, header: resp.Header, body: text}, nil
}

// longestAnswer bounds what is read of an answer: some hundred thousand instances.
const longestAnswer = 256 << 20

// readBounded reads everything, unless it is more than longest.
func readBounded(from io.Reader, longest int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(from, longest+1))
	if err == nil && int64(len(text)) > longest {
		err = conclusive{fmt.Errorf("it is longer than %d bytes", longest)}
	}
	return text, err
}

// judge is nil for an answer that is one, a refusal included, and otherwise says why another server may do
// better.
func (q *call) judge(a answer) error {
	refused := a.refusal()
	switch {
	case a.header.Get(outcomeHeader) == "unknown":
		return fmt.Errorf("%s: %w", a.server, ErrUnknownOutcome)
	case refused == nil:
		return nil
	case q.elsewhere(refused):
		return refused
	case q.foreign(a):
		return fmt.Errorf("%w: %s answered %s %d", ErrNeedsRollcall, a.server, "/"+strings.Join(q.path, "/"), a.status)
	}
	return nil
}

// noteFate remembers for the next calls what came of a try.
func (c *Client) noteFate(ctx context.Context, s *server, q *call, err error) {
	var refused *StatusError
	switch {
	case err == nil:
		c.servers.answered(s)
	case errors.Is(err, ErrClosed), errors.As(err, new(conclusive)), q.interrupted(ctx, c.timeout):
	case errors.Is(err, ErrNeedsRollcall):
		c.servers.unfit(s)
	case errors.As(err, &refused) && (refused.Status == http.StatusServiceUnavailable || q.unavailable(refused)):
		c.servers.unavailable(s, retryAfter(refused.retryAfter))
	default:
		c.servers.failed(s)
	}
}

// interrupted says that a try ended for a reason that says nothing of the server: its caller went away, or
// had time for less than the server was to wait. (A caller who never has much time must get away from a
// silent server all the same.)
func (q *call) interrupted(ctx context.Context, timeout time.Duration) bool {
	return errors.Is(ctx.Err(), context.Canceled) || ctx.Err() != nil && q.patience > timeout
}

// outcomeHeader says of a 504 that a write may have taken effect.
const outcomeHeader = "X-Rollcall-Outcome"

func (q *call) request(ctx context.Context, s *server) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, q.method, q.url(s), bytes.NewReader(q.body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", cmp.Or(q.accept, jsonType))
	if q.body != nil {
		req.Header.Set("Content-Type", q.contentType())
	}
	if q.once != "" {
		req.Header.Set("Idempotency-Key", q.once)
	}
	return req, nil
}

func (q *call) contentType() string {
	if q.raw {
		return "application/octet-stream"
	}
	return jsonType
}

// What Consul's routes say with a 500 when nothing was done, and another server may do it.
const (
	noLeader     = "No cluster leader"
	shuttingDown = "this node is shutting down; ask another one"
)

// unavailable says that a server is, in the form of Consul's routes.
func (q *call) unavailable(refused *StatusError) bool {
	return q.consul && refused.Status == http.StatusInternalServerError && (refused.Message == noLeader || refused.Message == shuttingDown)
}

// elsewhere says whether another server may do better.
func (q *call) elsewhere(refused *StatusError) bool {
	if q.consul && refused.Status == http.StatusInternalServerError {
		return q.unavailable(refused)
	}
	return refused.elsewhere() || q.gated(refused)
}

// gated says that a stock Eureka server keeps its lists back, because it has not copied those of its peers
// yet (com.netflix.eureka.registry.PeerAwareInstanceRegistryImpl.shouldAllowAccess). A delta is refused
// like that where the whole list is to be fetched, so that one is an answer.
func (q *call) gated(refused *StatusError) bool {
	return q.eureka && q.method == http.MethodGet && refused.Status == http.StatusForbidden && q.operation() != "delta"
}

// mayHaveWritten says whether a write may have taken effect although this came back.
func (q *call) mayHaveWritten(err error) bool {
	var refused *StatusError
	if errors.As(err, &refused) && q.unavailable(refused) {
		return false
	}
	return mayHaveWritten(err)
}

// url escapes each segment by itself, because an id may contain a slash.
func (q *call) url(s *server) string {
	var b strings.Builder
	if q.eureka {
		b.WriteString(s.eureka)
	} else {
		b.WriteString(s.url)
	}
	for _, segment := range q.path {
		b.WriteString("/" + url.PathEscape(segment))
	}
	if len(q.query) > 0 {
		b.WriteString("?" + q.query.Encode())
	}
	return b.String()
}

// refusal is the answer as an error, nil if it is a success.
func (a answer) refusal() *StatusError {
	if a.status < 300 {
		return nil
	}
	return &StatusError{Server: a.server, Status: a.status, Message: a.message(), retryAfter: seconds(a.header.Get("Retry-After"))}
}

// seconds reads Retry-After; 0: there is none, or it is a date.
func seconds(text string) time.Duration {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0
	}
	return time.Duration(n) * time.Second
}

// message is what the server says: the error of Rollcall's own API, or the beginning of a text.
func (a answer) message() string {
	var doc api.Error
	if err := json.Unmarshal(a.body, &doc); err == nil && doc.Error != "" {
		return doc.Error
	}
	const longest = 300
	return strings.TrimSpace(string(a.body[:min(len(a.body), longest)]))
}

// foreign says that an answer to a call of Rollcall's own API, or of Consul's, is of a server that does not
// know that API: it has no such path, or no such method of it. Many of Rollcall's own answers have the same
// statuses, and tell what there is no such thing of.
func (q *call) foreign(a answer) bool {
	if q.eureka || a.status != http.StatusNotFound && a.status != http.StatusMethodNotAllowed {
		return false
	}
	return a.header.Get("X-Consul-Index") == "" && !ownError(a.body)
}

// ownError says whether a body is an error in the form of Rollcall's own API: an object with an error and
// nothing else. Spring's errors have an error too, beside timestamp, status and path; Netflix's server
// answers in HTML, as proxies do.
func ownError(body []byte) bool {
	var doc map[string]json.RawMessage
	var text string
	return json.Unmarshal(body, &doc) == nil && len(doc) == 1 && json.Unmarshal(doc["error"], &text) == nil
}
