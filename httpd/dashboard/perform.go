package dashboard

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// request is a call of an API.
type request struct {
	method, path string
	query        url.Values
	body         string
}

// response is the response of an API call.
type response struct {
	status int
	header http.Header
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *response) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *response) WriteHeader(status int) { a.status = cmp.Or(a.status, status) }

// Write implements http.ResponseWriter.
func (a *response) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// words returns the error text of a response.
func (a *response) words() string {
	var refused api.Error
	if json.Unmarshal(a.body.Bytes(), &refused) == nil && refused.Error != "" {
		return refused.Error
	}
	if text := strings.TrimSpace(a.body.String()); text != "" {
		return text
	}
	if a.status == http.StatusNotFound {
		return "it is not there any more"
	}
	return http.StatusText(a.status)
}

// perform performs a call of an API in the reader's name.
func (c call) perform(q request) *response {
	target := &url.URL{Path: q.path, RawQuery: q.query.Encode()}
	if path, err := url.PathUnescape(q.path); err == nil {
		target.Path, target.RawPath = path, q.path
	}
	r := &http.Request{
		Method: q.method, URL: target, RequestURI: target.RequestURI(), Proto: c.R.Proto, ProtoMajor: c.R.ProtoMajor, ProtoMinor: c.R.ProtoMinor,
		Header: http.Header{}, Body: http.NoBody, Host: c.R.Host, RemoteAddr: c.R.RemoteAddr, TLS: c.R.TLS,
	}
	if q.body != "" {
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(q.body)), int64(len(q.body))
	}
	if token := c.CredentialOf(); token != "" {
		r.Header.Set("X-Consul-Token", token)
	}
	if id := c.W.Header().Get(web.RequestIDHeader); id != "" {
		r.Header.Set(web.RequestIDHeader, id)
	}
	a := &response{header: http.Header{}}
	c.config.Do(a, r.WithContext(c.R.Context()))
	if q.method != http.MethodGet {
		c.monitor.forget()
	}
	return a
}

// cutIndex splits an index of the form epoch-number.
func cutIndex(index string) (epoch string, number uint64) {
	dash := strings.LastIndexByte(index, '-')
	if dash < 0 {
		return index, 0
	}
	number, _ = strconv.ParseUint(index[dash+1:], 10, 64)
	return index[:dash], number
}

// raw is GET /ui/raw/{what}: a document of an API, which a page links to. A login only works on the pages, not for the
// APIs.
func (c call) raw() (any, error) {
	f := c.R.URL.Query()
	q, known := map[string]request{
		"app":      {path: "/v1/rollcall/apps", query: url.Values{"consistency": {"stale"}, "app": {f.Get("app")}}},
		"instance": {path: ofInstance("/explain")(f), query: url.Values{"consistency": {"stale"}}},
		"settings": {path: "/v1/rollcall/settings"},
		"metrics":  {path: "/metrics"},
	}[c.Segment("what")]
	if !known {
		return nil, &web.Refusal{Status: http.StatusNotFound, Text: "there is no such document"}
	}
	q.method = http.MethodGet
	response := c.perform(q)
	if !succeeded(response.status) {
		return nil, &web.Refusal{Status: response.status, Text: response.words()}
	}
	c.W.Header().Set("Content-Type", response.header.Get("Content-Type"))
	c.W.Header().Set("X-Content-Type-Options", "nosniff")
	c.W.Header().Set("Cache-Control", "no-store")
	_, _ = c.W.Write(response.body.Bytes()) // not an error: the reader went away
	return web.Sent, nil
}

// notBefore reports whether an index, as epoch-index, belongs to the same history as another one and is not before it.
func notBefore(index, other string) bool {
	a, aIndex := cutIndex(index)
	b, bIndex := cutIndex(other)
	return a == b && aIndex >= bIndex && index != ""
}

// succeeded reports whether a status means success.
func succeeded(status int) bool {
	return status >= http.StatusOK && status < http.StatusMultipleChoices
}
