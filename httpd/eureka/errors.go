package eureka

import (
	"errors"
	"fmt"
)

// ErrUnparsable says that a body is not the document that was expected: not well-formed, beyond the
// bounds, of another root name, or with a value that cannot be what its key says. It is answered
// with 400 and AppendParseError's body; the text around it says what was wrong, for the log.
var ErrUnparsable = errors.New("cannot parse request body")

func unparsable(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrUnparsable}, args...)...)
}

// ValidationError refuses a well-formed registration; it is answered with 400 and Text.
type ValidationError struct {
	Text string // upstream's text where upstream refuses too
}

// Error returns the text.
func (e *ValidationError) Error() string { return e.Text }

func invalid(format string, args ...any) error {
	return &ValidationError{Text: fmt.Sprintf(format, args...)}
}

// AppendParseError appends the body of the answer to an unparsable request, in the request's own
// media type (upstream: ApplicationResource.addInstance).
func AppendParseError(dst []byte, f Format) []byte {
	if f.XML {
		return append(dst, "<error><message>cannot parse request body</message></error>"...)
	}
	return append(dst, `{"error": "cannot parse request body"}`...)
}
