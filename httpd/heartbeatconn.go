package httpd

import (
	"bufio"
	"bytes"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"
)

// takeOver serves further heartbeats on the connection of r, if r is at least the second one in a
// row and the connection can be taken over. w is answered by the caller before.
func (h *Handler) takeOver(w http.ResponseWriter, r *http.Request, status int) bool {
	b := h.heartbeats.Load()
	if b == nil || h.draining.Load() || r.TLS != nil || r.ProtoMajor != 1 || r.ProtoMinor != 1 || r.Close || r.ContentLength != 0 || status != http.StatusOK {
		return false
	}
	count, ok := r.Context().Value(beatsInARow{}).(*int)
	if !ok {
		return false
	}
	if *count++; *count < 2 {
		return false
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return false
	}
	c := &beatConn{h: h, b: b, conn: conn, host: r.Host, in: buffered.Reader, w: bareWriter{header: w.Header()}, account: countedOf(conn)}
	c.r = (&http.Request{Method: http.MethodPut, URL: &url.URL{}, Header: http.Header{}, Body: http.NoBody, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, RemoteAddr: r.RemoteAddr}).WithContext(r.Context())
	c.w.status = status
	if !b.begin(c) {
		c.w.header.Set("Connection", "close")
		c.write()
		conn.Close()
		return true
	}
	c.serve()
	return true
}

// beatConn is a connection that was taken over.
type beatConn struct {
	h       *Handler
	b       *heartbeats
	conn    net.Conn
	host    string // that was asked for, and that net/http's side of the handler let pass
	in      *bufio.Reader
	r       *http.Request // used again for each heartbeat
	w       bareWriter
	out     []byte
	set     time.Time // when the time limits were set
	idle    atomic.Bool
	account *countedConn // nil: nobody counts connections
	last    bool         // the answer under way is the last one
}

// serve answers the heartbeat that net/http read, and then those that follow.
func (c *beatConn) serve() {
	back := false
	served := 0
	defer func() { c.b.end(c, back, served < worthTakingOver) }()
	for ; c.write() && !c.last; served++ {
		if !c.wait() {
			return
		}
		beat, size, ok := parseBeat(c.ahead(), c.h.appsPrefixes)
		if !ok || string(beat.host) != c.host {
			back = true
			return
		}
		c.r.URL.Path, c.r.URL.RawQuery, c.r.RequestURI = beat.path, beat.query, beat.target
		c.w.reset()
		if c.last = c.h.draining.Load() || c.b.closing.Load(); c.last {
			c.w.header.Set("Connection", "close")
		}
		c.h.beat(&c.w, c.r, beat.app, beat.id)
		if _, err := c.in.Discard(size); err != nil {
			return
		}
	}
}

// wait returns when something was sent; false means that the connection has ended.
func (c *beatConn) wait() bool {
	if c.in.Buffered() > 0 {
		return true
	}
	now := time.Now()
	if now.Sub(c.set) > beatRefresh {
		c.set = now
		if err := c.conn.SetDeadline(now.Add(beatTimeout)); err != nil {
			return false
		}
	}
	if c.account != nil {
		c.account.idle(now)
		defer c.account.busy()
	}
	// Whichever comes second, this mark or the shutdown's, sees the other.
	c.idle.Store(true)
	defer c.idle.Store(false)
	if !c.b.closing.Load() {
		if _, err := c.in.Peek(1); err == nil {
			return true
		}
		if !c.b.closing.Load() {
			return false
		}
	}
	return c.lastLook()
}

// lastLook is what shutdown lets an idle connection have: a heartbeat that is on its way already is
// answered. It is also where a connection whose time ran out at that moment ends.
func (c *beatConn) lastLook() bool {
	if err := c.conn.SetReadDeadline(time.Now().Add(beatLastLook)); err != nil {
		return false
	}
	_, err := c.in.Peek(1)
	return err == nil
}

func (c *beatConn) ahead() []byte {
	ahead, _ := c.in.Peek(c.in.Buffered())
	return ahead
}

// write sends the answer that w holds; false means that the connection has ended.
func (c *beatConn) write() bool {
	c.out = c.w.appendTo(c.out[:0])
	_, err := c.conn.Write(c.out)
	return err == nil
}

// bareWriter collects an answer.
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

func (w *bareWriter) reset() {
	clear(w.header)
	w.status, w.body = 0, w.body[:0]
}

// appendTo writes the answer as HTTP/1.1. A handler that wrote nothing has answered 200.
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
	for name, values := range w.header { // the order of different fields has no meaning
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

// plainBeat is a heartbeat's request line, taken apart.
type plainBeat struct {
	target, path, query, app, id string
	host                         []byte // within what was read
}

// parseBeat reads a heartbeat from the beginning of b and returns its size. ok is false for whatever
// is not plainly, completely and unmistakably one: another request, an incomplete one, a body, a
// header field that might mean something.
func parseBeat(b []byte, prefixes []string) (beat plainBeat, size int, ok bool) {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		return beat, 0, false
	}
	line, fields, _ := bytes.Cut(b[:end], []byte("\r\n"))
	host, ok := plainFields(fields)
	if !ok {
		return beat, 0, false
	}
	beat.host = host
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

// plainTarget says that a target has only characters that stand for themselves in its path; the
// query is judged by those who read it.
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

// meaningful are the header fields that mean something for a heartbeat, to net/http or to a handler of
// this package: requests with one of them are left to net/http. All other fields are skipped, whatever
// they say: credentials, for example, have no meaning yet, and will be looked at where fields are
// read (plainFields) when they have. Host, Content-Length and Connection are judged by their values.
var meaningful = map[string]bool{
	"transfer-encoding": true, "content-encoding": true, "trailer": true, "te": true, "expect": true, "upgrade": true,
	"origin": true, "sec-fetch-site": true,
	"x-netflix-discovery-replication": true,
}

// plainFields says that header fields are well formed, name one host, and that no other one means
// anything.
func plainFields(fields []byte) (host []byte, ok bool) {
	hosts := 0
	for len(fields) > 0 {
		var field []byte
		field, fields, _ = bytes.Cut(fields, []byte("\r\n"))
		name, value, found := bytes.Cut(field, []byte(":"))
		if !found || !plainValue(value) {
			return nil, false
		}
		var lower [maxFieldName]byte
		if !lowerName(lower[:], name) {
			return nil, false
		}
		value = bytes.TrimSpace(value)
		switch key := lower[:len(name)]; string(key) {
		case "host":
			hosts, host = hosts+1, value
		case "content-length":
			if string(value) != "0" {
				return nil, false
			}
		case "connection":
			if !bytes.EqualFold(value, []byte("keep-alive")) {
				return nil, false
			}
		default:
			if meaningful[string(key)] {
				return nil, false
			}
		}
	}
	return host, hosts == 1 && plainHost(host)
}

// maxFieldName is the longest name of a field that is skipped, in bytes.
const maxFieldName = 64

// lowerName writes a field's name in lower case; false means that it is not plainly a name.
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

// lastDate is the newest Date field, for all connections: it is the same for a second.
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
