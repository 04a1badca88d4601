package web

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// Refusal is an error together with the response to it.
type Refusal struct {
	Status    int
	Text      string // for the client; empty where the protocol wants an empty response
	MediaType string // of Text; empty means plain text
	Allow     string // the methods of the route, with 405
	unknown   bool   // it is unknown whether the write happened
	certain   bool   // it did not happen, although 500 leaves that open
	Retry     bool   // the same request may succeed soon
	Index     string // where to resume after fetching everything, with 410; in JSON only
	Cause     error  // for the log
	challenge bool   // asks the caller to authenticate, with 401
	denial    bool   // the caller is known, but may not do this
	consul    string // Text for Consul's API with status 403; if empty, both stay as they are
}

// Error says what was wrong, for the log.
func (r *Refusal) Error() string {
	switch {
	case r.Cause != nil:
		return r.Cause.Error()
	case r.Text != "":
		return r.Text
	}
	return http.StatusText(r.Status)
}

// Because returns a refusal that says more to the client; any other error is returned unchanged.
func Because(err error, why string) error {
	r, ok := errors.AsType[*Refusal](err)
	if !ok {
		return err
	}
	said := *r
	said.Text += why
	if said.consul != "" {
		said.consul += why
	}
	return &said
}

// BadRequest is a refusal with status 400.
func BadRequest(text string) error { return &Refusal{Status: http.StatusBadRequest, Text: text} }

// Unwrap returns the cause, which is not the client's business.
func (r *Refusal) Unwrap() error { return r.Cause }

// NotFound has no text on Eureka's routes: its clients decode whatever body they get.
var NotFound = &Refusal{Status: http.StatusNotFound}

// RefusalOf maps every error of every endpoint to the response.
func RefusalOf(err error) Refusal {
	var refused *Refusal
	var invalid *eureka.ValidationError
	var above *registry.LevelError
	switch {
	case errors.As(err, &refused):
		return *refused
	case errors.As(err, &invalid):
		return Refusal{Status: http.StatusBadRequest, Text: invalid.Text}
	case errors.Is(err, eureka.ErrTooManyItems):
		return Refusal{Status: http.StatusRequestEntityTooLarge, Text: eureka.ErrTooManyItems.Error()}
	case errors.Is(err, registry.ErrUnknownOutcome):
		return Refusal{Status: http.StatusGatewayTimeout, unknown: true}
	case errors.Is(err, registry.ErrNoLeader), errors.Is(err, registry.ErrClosed), errors.Is(err, registry.ErrGivenUp):
		return Refusal{Status: http.StatusServiceUnavailable, Retry: true}
	case errors.Is(err, registry.ErrTooLarge):
		return Refusal{Status: http.StatusRequestEntityTooLarge}
	case errors.As(err, &above):
		return Refusal{Status: http.StatusNotImplemented, Text: above.Text}
	case errors.Is(err, registry.ErrUnreadable):
		return Refusal{Status: http.StatusNotImplemented, Text: unreadable}
	case errors.Is(err, registry.ErrPanicked):
		return Refusal{Status: http.StatusInternalServerError, Text: panicked, certain: true}
	case errors.Is(err, registry.ErrFull):
		return Refusal{Status: http.StatusInsufficientStorage, Text: err.Error()}
	case errors.Is(err, registry.ErrRevoked):
		return *errNarrowed
	case errors.Is(err, registry.ErrName):
		return Refusal{Status: http.StatusBadRequest, Text: err.Error()}
	case errors.Is(err, registry.ErrTooOld):
		return Refusal{Status: http.StatusGone}
	case errors.Is(err, registry.ErrNotOffered):
		return Refusal{Status: http.StatusNotImplemented, Text: notOffered}
	}
	return Refusal{Status: http.StatusInternalServerError}
}

// notOffered is the text for a client that asks a node without consensus for more than the node can know.
const notOffered = "consistency=linearizable and consistency=leader need a cluster with consensus (mode cp): each node of this one accepts writes by itself, and none can know what the others have acknowledged; ask for consistency=stale, which is the default here"

// panicked is the text for an operation that hit a defect of ours.
const panicked = "the operation panicked on this node, which is a defect, and nothing was changed: see the log of the node, and docs/runbooks/Panics.md"

// unreadable is the text for an operation that the leader, which runs another build, does not know.
const unreadable = "the leader runs another version of Rollcall and does not know this operation, so nothing was done: try again when all nodes of the cluster run the same version"

// Form is how an API words its errors and sends its documents.
type Form uint8

// The forms of the APIs.
const (
	EmptyForm  Form = iota // only the status
	EurekaForm             // the protocol's text, if it has one
	JSONForm               // {"error": "…"}
	ConsulForm             // plain text, with the statuses that Consul's clients depend on
	PageForm               // a page for people, see Node.ErrorPage
)

// Fail sends the response to err.
func (n *Node) Fail(w http.ResponseWriter, form Form, err error) {
	f := RefusalOf(err)
	if form == ConsulForm {
		f = consulFailure(err)
	}
	id := w.Header().Get(RequestIDHeader)
	r := recordError(w, err)
	n.Log.Debug("request refused", "request", id, "status", f.Status, "err", err)
	f.headers(w.Header())
	if f.Status < http.StatusInternalServerError {
		id = ""
	}
	if form == PageForm && n.ErrorPage != nil {
		w.Header().Del("WWW-Authenticate") // keeps browsers from asking for a password: the page says how to log in
		n.ErrorPage(w, r, f.Status, jsonText(f, err))
		return
	}
	body := f.Text
	switch form {
	case EmptyForm:
		body = ""
	case EurekaForm:
		if f.Status == http.StatusUnauthorized || f.Status == http.StatusForbidden && f.consul != "" {
			body = "" // its clients decode whatever body they get
		}
	case JSONForm:
		body, f.MediaType = jsonError(f, err, id), "application/json"
	} // clients of Eureka and Consul recognize the other statuses by their words, and find the id in the header
	if body == "" {
		w.WriteHeader(f.Status)
		return
	}
	if f.MediaType == "" {
		f.MediaType = "text/plain; charset=utf-8"
	}
	w.Header().Set("Content-Type", f.MediaType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(f.Status)
	_, _ = w.Write([]byte(body)) // not an error: the client went away
}

func (f Refusal) headers(header http.Header) {
	switch {
	case f.unknown:
		header.Set("X-Rollcall-Outcome", "unknown")
	case f.certain:
		header.Set("X-Rollcall-Outcome", "refused")
	}
	if f.Retry {
		header.Set("Retry-After", "1")
	}
	if f.Allow != "" {
		header.Set("Allow", f.Allow)
	}
	switch {
	case f.challenge:
		header.Set("WWW-Authenticate", `Basic realm="rollcall"`)
	case f.denial: // Eureka's 403 has no text, and would look like a server's that withholds its lists
		header.Set("WWW-Authenticate", `Bearer realm="rollcall", error="insufficient_scope"`)
	}
	if f.Status == http.StatusRequestEntityTooLarge {
		// The rest of the body is not worth reading.
		header.Set("Connection", "close")
	}
}

const unknownText = "it is not known whether the operation took effect; read before trying again"

// jsonError words an error for our own API, with the id of the request, if given; what is not the client's business
// stays in the log.
func jsonError(f Refusal, err error, id string) string {
	fields := map[string]string{"error": jsonText(f, err)}
	if f.Index != "" {
		fields["index"] = f.Index
	}
	if id != "" {
		fields["request"] = id
	}
	encoded, _ := json.Marshal(fields) // cannot fail: strings always encode
	return string(encoded)
}

// jsonText returns an error's sentence for our own API and for people.
func jsonText(f Refusal, err error) string {
	switch {
	case f.Text != "":
		return f.Text
	case f.Status == http.StatusInternalServerError || f.Status == http.StatusNotFound || f.Status == http.StatusMethodNotAllowed:
		return http.StatusText(f.Status)
	case f.unknown:
		return unknownText
	case errors.Is(err, registry.ErrClosed):
		return "this node is shutting down; ask another one"
	case errors.Is(err, errUnheard):
		return errUnheard.Error() + ": what it lacks may be there; try again, or read by admin.sock with unheard=true"
	case errors.Is(err, registry.ErrNoLeader):
		return "no leader could be reached; try again, or read with consistency=stale"
	}
	return http.StatusText(f.Status)
}

// consulFailure is RefusalOf for Consul's API.
func consulFailure(err error) Refusal {
	f := RefusalOf(err)
	switch {
	case f.consul != "":
		f.Status, f.Text, f.challenge = http.StatusForbidden, f.consul, false
	case f.Text != "":
		if _, above := errors.AsType[*registry.LevelError](err); above || f.Status == http.StatusServiceUnavailable {
			f.Status = http.StatusInternalServerError // otherwise a lock holder would give up
		}
	case f.unknown:
		f.Text = unknownText
	case errors.Is(err, registry.ErrClosed):
		f = Refusal{Status: http.StatusInternalServerError, Text: "this node is shutting down; ask another one"}
	case errors.Is(err, registry.ErrNoLeader), errors.Is(err, registry.ErrGivenUp):
		f = Refusal{Status: http.StatusInternalServerError, Text: "No cluster leader"}
	case f.Status != http.StatusInternalServerError: // without a text of its own
		f.Text = http.StatusText(f.Status)
	}
	return f
}

// WriteError adds the outcome to the error of an Apply: an expired wait says nothing about the effect, unless it ended
// before anything was proposed.
func WriteError(err error) error {
	if errors.Is(err, registry.ErrGivenUp) {
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return errors.Join(registry.ErrUnknownOutcome, err)
	}
	return err
}

// errRevoked refuses an operation whose sender has lost the token since, errNarrowed one whose sender's roles have
// changed.
var errRevoked = &Refusal{Status: http.StatusUnauthorized, Text: errUnknownCredential.Error(), challenge: true, consul: "ACL not found: " + errUnknownCredential.Error()}

var errNarrowed = &Refusal{Status: http.StatusForbidden, Text: narrowed, consul: narrowed, denial: true}

const narrowed = "Permission denied: the roles of the token changed while the call was under way, and it may not do this any more"

// errNoCoordination is the response of a node without consensus.
var errNoCoordination = &Refusal{
	Status: http.StatusNotImplemented,
	Text: "sessions, keys, locks and Consul's API need a cluster with consensus (mode cp): each node of this one accepts writes by itself, " +
		"so no lock could be exclusive; ask a cluster in mode cp",
}
