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
	"strings"
	"time"
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
	write  bool   // it changes something
	// patience bounds one try; 0: the client's timeout.
	patience time.Duration
	// once makes a write that must not happen twice safe to repeat: servers answer it as they answered
	// the first one of that text. "": it may happen twice.
	once string
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

// do sends a call to the server that answered last, and to the others in order while none gives an
// answer. An unknown outcome ends it, because a server has spent its time on it already.
func (c *Client) do(ctx context.Context, q call) (answer, error) {
	var errs []error
	maybe := false
	for _, s := range c.servers.order() {
		a, err := c.try(ctx, s, q)
		if err == nil {
			c.servers.answered(s)
			a.repeated = maybe
			return a, nil
		}
		c.servers.failed(s)
		maybe = maybe || q.write && q.mayHaveWritten(err)
		errs = append(errs, err)
		if errors.Is(err, ErrUnknownOutcome) || ctx.Err() != nil {
			break
		}
	}
	err := errors.Join(errs...)
	if maybe && !errors.Is(err, ErrUnknownOutcome) {
		err = fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	return answer{}, err
}

func (c *Client) try(ctx context.Context, s *server, q call) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(q.patience, c.timeout))
	defer cancel()
	req, err := q.request(ctx, s)
	if err != nil {
		return answer{}, err
	}
	sent := time.Now()
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	if resp.Header.Get(outcomeHeader) == "unknown" {
		return answer{}, fmt.Errorf("%s: %w", s.url, ErrUnknownOutcome)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, fmt.Errorf("read the answer of %s: %w", s.url, err)
	}
	a := answer{server: s.url, status: resp.StatusCode, header: resp.Header, body: body, sent: sent}
	if err := a.refusal(); err != nil && q.elsewhere(err) {
		return answer{}, err
	}
	return a, nil
}

// outcomeHeader says of a 504 that a write may have taken effect.
const outcomeHeader = "X-Rollcall-Outcome"

func (q call) request(ctx context.Context, s *server) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, q.method, q.url(s), bytes.NewReader(q.body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", jsonType)
	if q.body != nil {
		req.Header.Set("Content-Type", q.contentType())
	}
	if q.once != "" {
		req.Header.Set("Idempotency-Key", q.once)
	}
	return req, nil
}

func (q call) contentType() string {
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
func (q call) unavailable(refused *StatusError) bool {
	return q.consul && refused.Status == http.StatusInternalServerError && (refused.Message == noLeader || refused.Message == shuttingDown)
}

// elsewhere says whether another server may do better.
func (q call) elsewhere(refused *StatusError) bool {
	if q.consul && refused.Status == http.StatusInternalServerError {
		return q.unavailable(refused)
	}
	return refused.elsewhere()
}

// mayHaveWritten says whether a write may have taken effect although this came back.
func (q call) mayHaveWritten(err error) bool {
	var refused *StatusError
	if errors.As(err, &refused) && q.unavailable(refused) {
		return false
	}
	return mayHaveWritten(err)
}

// url escapes each segment by itself, because an id may contain a slash.
func (q call) url(s *server) string {
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
	return &StatusError{Server: a.server, Status: a.status, Message: a.message()}
}

// message is what the server says: the error of Rollcall's own API, or the beginning of a text.
func (a answer) message() string {
	var doc struct{ Error string }
	if err := json.Unmarshal(a.body, &doc); err == nil && doc.Error != "" {
		return doc.Error
	}
	const longest = 300
	return strings.TrimSpace(string(a.body[:min(len(a.body), longest)]))
}

// want turns an answer that is no success into an error.
func (a answer) want() error {
	switch {
	case a.status < 300:
		return nil
	case a.status == http.StatusNotFound:
		return ErrNotRegistered
	}
	return a.refusal()
}
