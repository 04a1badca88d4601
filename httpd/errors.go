package httpd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/consul"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// refusal is an error whose answer the one who found it knows best.
type refusal struct {
	status    int
	text      string // for the client; "" where the protocol wants an empty answer
	mediaType string // of text; "": plain text
	allow     string // the methods of the route, with 405
	unknown   bool   // nobody knows whether the write happened
	retry     bool   // the same request may succeed soon
	index     string // where to go on after everything was fetched, with 410; in JSON only
	cause     error  // for the log
}

// Error says what was wrong, for the log.
func (r *refusal) Error() string {
	switch {
	case r.cause != nil:
		return r.cause.Error()
	case r.text != "":
		return r.text
	}
	return http.StatusText(r.status)
}

func badRequest(text string) error { return &refusal{status: http.StatusBadRequest, text: text} }

// Unwrap returns what is not the client's business.
func (r *refusal) Unwrap() error { return r.cause }

// notFound is empty on Eureka's routes: its clients decode whatever body they get.
var notFound = &refusal{status: http.StatusNotFound}

// failureOf maps every error of every handler to its answer.
func failureOf(err error) refusal {
	var refused *refusal
	var byPeers *PeerRefusal
	var invalid *eureka.ValidationError
	var malformed consul.Malformed
	var rejected consul.Rejected
	var tooMany consul.TooManyOps
	switch {
	case errors.As(err, &refused):
		return *refused
	case errors.As(err, &byPeers):
		return refusal{status: byPeers.Status, text: byPeers.Text, retry: byPeers.Status == http.StatusServiceUnavailable}
	case errors.As(err, &invalid):
		return refusal{status: http.StatusBadRequest, text: invalid.Text}
	case errors.As(err, &malformed):
		return refusal{status: http.StatusBadRequest, text: string(malformed)}
	case errors.As(err, &rejected):
		return refusal{status: http.StatusInternalServerError, text: string(rejected)}
	case errors.As(err, &tooMany):
		return refusal{status: http.StatusRequestEntityTooLarge, text: string(tooMany)}
	case errors.Is(err, eureka.ErrTooManyItems):
		return refusal{status: http.StatusRequestEntityTooLarge, text: eureka.ErrTooManyItems.Error()}
	case errors.Is(err, registry.ErrUnknownOutcome):
		return refusal{status: http.StatusGatewayTimeout, unknown: true}
	case errors.Is(err, registry.ErrNoLeader), errors.Is(err, registry.ErrClosed):
		return refusal{status: http.StatusServiceUnavailable, retry: true}
	case errors.Is(err, registry.ErrTooLarge):
		return refusal{status: http.StatusRequestEntityTooLarge}
	case errors.Is(err, registry.ErrUnreadable):
		return refusal{status: http.StatusNotImplemented, text: unreadable}
	case errors.Is(err, registry.ErrFull):
		return refusal{status: http.StatusInsufficientStorage, text: err.Error()}
	case errors.Is(err, registry.ErrTooOld):
		return refusal{status: http.StatusGone}
	case errors.Is(err, registry.ErrNotOffered):
		return refusal{status: http.StatusNotImplemented, text: notOffered}
	}
	return refusal{status: http.StatusInternalServerError}
}

// notOffered is for those who ask a node without consensus for more than it can know.
const notOffered = "consistency=linearizable and consistency=leader need a cluster with consensus (mode cp): each node of this one accepts writes by itself, and none can know what the others have acknowledged; ask for consistency=stale, which is the default here"

// unreadable is for those who ask a node for what the leader, which runs another build, does not know.
const unreadable = "the leader runs another version of Rollcall and does not know this operation, so nothing was done: try again when all nodes of the cluster run the same version"

// writeOutcome settles the error of an Apply: a wait that ended says nothing about the effect.
func writeOutcome(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return errors.Join(registry.ErrUnknownOutcome, err)
	}
	return err
}

// readOutcome settles the error of a View: a read that took too long has no other outcome.
func readOutcome(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return errors.Join(registry.ErrNoLeader, err)
	}
	return err
}

// errorForm is how an API words its errors.
type errorForm uint8

const (
	emptyForm  errorForm = iota // nothing but the status
	eurekaForm                  // the protocol's text, if it has one
	jsonForm                    // {"error": "…"}
	consulForm                  // plain text, with the statuses that Consul's clients depend on
)

// fail answers err.
func (h *Handler) fail(w http.ResponseWriter, form errorForm, err error) {
	f := failureOf(err)
	if form == consulForm {
		f = consulFailure(err)
	}
	if f.status == http.StatusInternalServerError && f.text == "" {
		h.config.Log.Error("request failed", "err", err)
	} else {
		h.config.Log.Debug("request refused", "status", f.status, "err", err)
	}
	f.headers(w.Header())
	body := f.text
	switch form {
	case emptyForm:
		body = ""
	case jsonForm:
		body, f.mediaType = jsonError(f, err), "application/json"
	}
	if body == "" {
		w.WriteHeader(f.status)
		return
	}
	if f.mediaType == "" {
		f.mediaType = "text/plain; charset=utf-8"
	}
	w.Header().Set("Content-Type", f.mediaType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(f.status)
	_, _ = w.Write([]byte(body)) // a client that went away is nobody's error
}

func (f refusal) headers(header http.Header) {
	if f.unknown {
		header.Set("X-Rollcall-Outcome", "unknown")
	}
	if f.retry {
		header.Set("Retry-After", "1")
	}
	if f.allow != "" {
		header.Set("Allow", f.allow)
	}
	if f.status == http.StatusRequestEntityTooLarge {
		// What is left of the body is not worth reading.
		header.Set("Connection", "close")
	}
}

const unknownText = "nobody knows whether the operation took effect; read before trying again"

// jsonError words an error for our own API; what is not the client's business stays in the log.
func jsonError(f refusal, err error) string {
	text := f.text
	switch {
	case text != "":
	case f.status == http.StatusInternalServerError || f.status == http.StatusNotFound || f.status == http.StatusMethodNotAllowed:
		text = http.StatusText(f.status)
	case f.unknown:
		text = unknownText
	case errors.Is(err, registry.ErrClosed):
		text = "this node is shutting down; ask another one"
	case errors.Is(err, registry.ErrNoLeader):
		text = "no leader could be reached; try again, or read with consistency=stale"
	default:
		text = http.StatusText(f.status)
	}
	said := map[string]string{"error": text}
	if f.index != "" {
		said["index"] = f.index
	}
	encoded, _ := json.Marshal(said) // strings always encode
	return string(encoded)
}

// minCompressed is the size in bytes from which an answer is worth compressing.
const minCompressed = 1 << 10

// respond sends a body that is complete, compressed if the client asked for it.
func respond(w http.ResponseWriter, r *http.Request, status int, contentType string, body []byte) {
	header := w.Header()
	header.Set("Content-Type", contentType)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Add("Vary", "Accept-Encoding")
	if len(body) > minCompressed && wantsGzip(r) {
		header.Set("Content-Encoding", "gzip")
		body = compress(body)
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	built(w, len(body))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that went away is nobody's error
}

// respondReady sends parts that are encoded already.
func respondReady(w http.ResponseWriter, rep representation, size int64, parts ...[]byte) {
	header := w.Header()
	header.Set("Content-Type", mediaType(rep.format))
	header.Add("Vary", varyEureka)
	header.Add("Vary", "Accept-Encoding")
	if rep.gzip {
		header.Set("Content-Encoding", "gzip")
	}
	header.Set("Content-Length", strconv.FormatInt(size, 10))
	w.WriteHeader(http.StatusOK)
	for _, part := range parts {
		if _, err := w.Write(part); err != nil {
			return // the client went away
		}
	}
}

// varyEureka are the request headers that choose among Eureka's documents.
const varyEureka = "Accept, X-Eureka-Accept"

// respondEureka sends a document of the protocol.
func respondEureka(w http.ResponseWriter, r *http.Request, status int, f eureka.Format, body []byte) {
	w.Header().Add("Vary", varyEureka)
	respond(w, r, status, mediaType(f), body)
}

var gzipWriters = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
	return w
}}

// compress returns text as a gzip stream. Writing to memory does not fail.
func compress(text []byte) []byte {
	w := gzipWriters.Get().(*gzip.Writer)
	defer gzipWriters.Put(w)
	var buf bytes.Buffer
	w.Reset(&buf)
	_, _ = w.Write(text)
	_ = w.Close()
	return buf.Bytes()
}

// formatOf reads which document a client asks for. Everything that does not say json gets XML
// (upstream: ApplicationsResource), so a bare curl does. Version 1 differs in XML only.
func formatOf(r *http.Request, v1 bool) eureka.Format {
	xml := !acceptsJSON(r)
	return eureka.Format{
		XML:     xml,
		Compact: strings.EqualFold(r.Header.Get("X-Eureka-Accept"), "compact"),
		V1:      xml && v1,
	}
}

// fullFormat is formatOf for the routes that know no compact form.
func fullFormat(r *http.Request, v1 bool) eureka.Format {
	f := formatOf(r, v1)
	f.Compact = false
	return f
}

// mediaType is the Content-Type of a format. Jersey clients find no reader for any other.
func mediaType(f eureka.Format) string {
	if f.XML {
		return "application/xml"
	}
	return "application/json"
}

func acceptsJSON(r *http.Request) bool {
	for _, accept := range r.Header["Accept"] {
		if strings.Contains(accept, "json") {
			return true
		}
	}
	return false
}

// wantsGzip says whether the client accepts gzip; a quality of 0 is a refusal.
func wantsGzip(r *http.Request) bool {
	for _, line := range r.Header["Accept-Encoding"] {
		for coding := range strings.SplitSeq(line, ",") {
			name, params, _ := strings.Cut(coding, ";")
			if strings.EqualFold(strings.TrimSpace(name), "gzip") {
				return !zeroQuality(params)
			}
		}
	}
	return false
}

func zeroQuality(params string) bool {
	_, q, ok := strings.Cut(params, "q=")
	quality, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
	return ok && err == nil && quality == 0
}
