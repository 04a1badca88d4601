package httpd

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/order"
)

// bareWriter collects a response.
type bareWriter struct {
	header http.Header
	status int
	body   []byte
}

// Header implements http.ResponseWriter.
func (w *bareWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *bareWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

// Write implements http.ResponseWriter.
func (w *bareWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.body = append(w.body, p...)
	return len(p), nil
}

// appendTo writes the response as HTTP/1.1. If the handler wrote nothing, the status is 200.
func (w *bareWriter) appendTo(dst []byte) []byte {
	status := w.status
	if status == 0 {
		status = http.StatusOK
	}
	dst = append(dst, "HTTP/1.1 "...)
	dst = strconv.AppendInt(dst, int64(status), 10)
	dst = append(dst, ' ')
	dst = append(dst, http.StatusText(status)...)
	dst = append(dst, "\r\nDate: "...)
	dst = append(dst, httpDate(time.Now())...)
	for name, values := range w.header { // the order of fields does not matter
		for _, v := range values {
			dst = append(dst, "\r\n"...)
			dst = append(dst, name...)
			dst = append(dst, ": "...)
			dst = append(dst, v...)
		}
	}
	dst = append(dst, "\r\nContent-Length: "...)
	dst = strconv.AppendInt(dst, int64(len(w.body)), 10)
	dst = append(dst, "\r\n\r\n"...)
	return append(dst, w.body...)
}

// plainBeat holds the parts of a heartbeat's request line.
type plainBeat struct {
	target, path, query, app, id string
	beatFields
}

// beatFields are the header fields that matter to a heartbeat.
type beatFields struct{ host, authorization, token, accept []byte }

// lastFields are the header fields of the last heartbeat on a connection. On most connections they never change, so
// they are parsed once.
type lastFields struct {
	text       []byte
	beatFields // within text
}

// read reports whether header fields are plain, see plainFields, and returns their values.
func (l *lastFields) read(fields []byte) (f beatFields, ok bool) {
	if len(fields) > 0 && bytes.Equal(fields, l.text) {
		return l.beatFields, true
	}
	l.text = append(l.text[:0], fields...)
	if l.beatFields, ok = plainFields(l.text); !ok {
		l.text = l.text[:0]
	}
	return l.beatFields, ok
}

// parseBeat reads a heartbeat from the beginning of b and returns its size. ok is false for anything that is not
// plainly, completely and unmistakably a heartbeat: another request, an incomplete one, a body, a header field that
// might matter. last belongs to the heartbeats before.
func parseBeat(b []byte, prefixes []string, last *lastFields) (beat plainBeat, size int, ok bool) {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		return beat, 0, false
	}
	line, fields, _ := bytes.Cut(b[:end], []byte("\r\n"))
	if beat.beatFields, ok = last.read(fields); !ok {
		return beat, 0, false
	}
	line, isPut := bytes.CutPrefix(line, []byte("PUT "))
	line, isHTTP := bytes.CutSuffix(line, []byte(" HTTP/1.1"))
	if !isPut || !isHTTP || !plainTarget(line) {
		return beat, 0, false
	}
	beat.target = string(line)
	beat.path, beat.query = beat.target, ""
	if i := bytes.IndexByte(line, '?'); i >= 0 {
		beat.path, beat.query = beat.target[:i], beat.target[i+1:]
	}
	beat.app, beat.id, ok = matchPlain(beat.path, prefixes)
	return beat, end + len("\r\n\r\n"), ok
}

// plainTarget reports whether all characters in a target's path stand for themselves; the query is checked where it is
// read.
func plainTarget(target []byte) bool {
	inPath := true
	for _, c := range target {
		if c <= ' ' || c > '~' || c == '#' || (inPath && (c == '%' || c == '\\')) {
			return false
		}
		inPath = inPath && c != '?'
	}
	return true
}

// meaningful lists the header fields that matter to net/http or to a handler of this package when they come with a
// heartbeat: requests with one of them are left to net/http. plainFields returns Host, Content-Length, Connection,
// Accept and the credentials; all other fields are skipped, whatever they say.
var meaningful = map[string]bool{
	"transfer-encoding": true, "content-encoding": true, "trailer": true, "te": true, "expect": true, "upgrade": true,
	"origin": true, "sec-fetch-site": true,
	"x-netflix-discovery-replication": true, "x-request-id": true,
}

// plainFields reports whether header fields are well formed, with one host, at most one credential of each kind and
// one accepted format, and without any other field that matters.
func plainFields(fields []byte) (f beatFields, ok bool) {
	hosts := 0
	for len(fields) > 0 {
		var field []byte
		field, fields, _ = bytes.Cut(fields, []byte("\r\n"))
		name, value, found := bytes.Cut(field, []byte(":"))
		if !found || !plainValue(value) {
			return f, false
		}
		var lower [maxFieldName]byte
		if !lowerName(lower[:], name) {
			return f, false
		}
		value = bytes.TrimSpace(value)
		switch key := lower[:len(name)]; string(key) {
		case "host":
			hosts, f.host = hosts+1, value
		case "authorization":
			if f.authorization != nil || len(value) == 0 {
				return f, false
			}
			f.authorization = value
		case "x-consul-token":
			if f.token != nil || len(value) == 0 {
				return f, false
			}
			f.token = value
		case "accept":
			if f.accept != nil || len(value) == 0 {
				return f, false
			}
			f.accept = value
		case "content-length":
			if string(value) != "0" {
				return f, false
			}
		case "connection":
			if !bytes.EqualFold(value, []byte("keep-alive")) {
				return f, false
			}
		default:
			if meaningful[string(key)] {
				return f, false
			}
		}
	}
	return f, hosts == 1 && plainHost(f.host)
}

// maxFieldName is the longest name of a skipped field, in bytes.
const maxFieldName = 64

// lowerName writes a field's name in lower case, or returns false if it is not plainly a name.
func lowerName(lower, name []byte) bool {
	if len(name) == 0 || len(name) > len(lower) {
		return false
	}
	for i, c := range name {
		switch {
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return false
		}
		lower[i] = c
	}
	return true
}

func plainValue(value []byte) bool {
	for _, c := range value {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

func plainHost(host []byte) bool {
	for _, c := range host {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '-' || c == ':' || c == '[' || c == ']') {
			return false
		}
	}
	return len(host) > 0
}

// lastDate is the newest Date field, shared by all connections: it stays the same for a second.
var lastDate atomic.Pointer[datedText]

type datedText struct {
	second int64
	text   string
}

// httpDate formats a time for the Date field.
func httpDate(now time.Time) string {
	second := now.Unix()
	if d := lastDate.Load(); d != nil && d.second == second {
		return d.text
	}
	d := &datedText{second: second, text: now.UTC().Format(http.TimeFormat)}
	lastDate.Store(d)
	return d.text
}

func matchPlain(path string, prefixes []string) (app, id string, ok bool) {
	for _, prefix := range prefixes {
		if rest, found := strings.CutPrefix(path, prefix); found {
			app, id, _ = strings.Cut(rest, "/")
			return app, id, plainName(app) && plainName(id)
		}
	}
	return "", "", false
}

// plainName reports whether a name needs no further check.
func plainName(name string) bool {
	if name == "" || len(name) > order.MaxName || name == "." || name == ".." {
		return false
	}
	for i := range len(name) {
		if c := name[i]; c < ' ' || c > '~' || c == '/' {
			return false
		}
	}
	return true
}
