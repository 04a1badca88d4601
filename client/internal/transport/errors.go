package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Errors that users of the client compare. Package client declares them under the same names, and says what to do.
var (
	ErrClosed         = errors.New("closed")
	ErrNeedsRollcall  = errors.New("the server is not Rollcall, and only Rollcall offers this")
	ErrUnknownOutcome = errors.New("outcome unknown")
)

// Refusal is the error of a response that is not a success.
type Refusal struct {
	Server     string        // base URL of the server that responded
	Status     int           // HTTP status
	Message    string        // what the response says about it; may be empty
	RetryAfter time.Duration // when the server wants to be asked again; 0 if it does not say
	certain    bool          // the server says that nothing was done
	repeated   bool          // net/http had already sent the request once; the refusal does not cover that try
	denied     bool          // the caller lacks a permission, as Rollcall says (RFC 6750, insufficient_scope)

	public error // what Config.Refused made of it, for users of the client
}

// Error returns the text that users see.
func (r *Refusal) Error() string { return r.public.Error() }

// Unwrap returns the error that users see.
func (r *Refusal) Unwrap() error { return r.public }

// unsent wraps the error of a call that no server has seen.
type unsent struct{ error }

// Unwrap returns the wrapped error.
func (u unsent) Unwrap() error { return u.error }

// possible wraps the error of a call that a server may have seen, whatever came afterwards: net/http repeats a
// request with an Idempotency-Key when its connection is lost, and then returns the error of the second try.
type possible struct{ error }

// Unwrap returns the wrapped error.
func (p possible) Unwrap() error { return p.error }

// conclusive wraps an error that no other server would change.
type conclusive struct{ error }

// Unwrap returns the wrapped error.
func (c conclusive) Unwrap() error { return c.error }

// mayHaveWritten reports whether a write may have taken effect although err came back. A 503 or 507 says that nothing
// was done (docs/reference/outcomes.md), a server that is not Rollcall cannot have done it, and without a connection
// nothing was sent. A redirect says nothing: stock servers that are not UP respond with 307 and do what was asked
// (com.netflix.eureka.StatusFilter).
func (q *Call) mayHaveWritten(err error) bool {
	if refused, ok := errors.AsType[*Refusal](err); ok {
		return refused.repeated || !refused.certain && refused.Status != http.StatusInsufficientStorage && !q.unavailable(refused)
	}
	if errors.As(err, new(unsent)) || errors.Is(err, ErrNeedsRollcall) {
		return false
	}
	if errors.As(err, new(possible)) {
		return true
	}
	op, network := errors.AsType[*net.OpError](err)
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	return !untrusted && !(network && op.Op == "dial")
}

// withCause replaces the error of a call that was cut off with the cause of the first context that has ended. (A
// client's life ends before its connections do, and its calls slightly later.)
func withCause(err error, of ...context.Context) error {
	for _, ctx := range of {
		cause := context.Cause(ctx)
		if cause == nil {
			continue
		}
		if of, ok := errors.AsType[*url.Error](err); ok {
			return &url.Error{Op: of.Op, URL: of.URL, Err: cause}
		}
		return cause
	}
	return err
}
