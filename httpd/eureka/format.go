// Package eureka turns the documents of Eureka's protocol, JSON and XML, full and compact, into
// values of package registry and back. docs/reference/protocol/eureka-documents.md describes them.
//
// Writers append to a slice, use no reflection and allocate nothing beyond it: a large document is
// put together from instances that were encoded when they last changed. They emit exactly the keys
// of the protocol, because some clients refuse a whole document for one key they do not know.
//
// Readers are tolerant in what clients are known to send, and strict in what only an attacker or a
// defect produces: duplicate keys, deep nesting, trailing data, text that is not UTF-8, DOCTYPE.
//
// The package knows nothing of HTTP: the form that a request asks for, and the status of an error, are the
// business of package httpd/eurekaroutes. Its files:
//
//	format.go       the formats, and the errors of readers
//	applications.go lists of applications and deltas
//	batch.go        batches of other servers, and the results of their items
//	status.go       the status document of a server
//	read.go         registrations and lists, from either format
//	draft.go        an instance while it is read
//	jsonscan.go     a scanner of JSON
//	readjson.go     instances from JSON
//	readxml.go      instances from XML
//	jsonwrite.go    instances and text in JSON
//	xmlwrite.go     instances and text in XML
//	ratelimit.go    the token bucket of the protocol, which server and client share
package eureka

import (
	"errors"
	"fmt"
)

// Format is the form of a document. The zero value is full JSON.
type Format struct {
	XML     bool // else JSON
	Compact bool // the reduced set of fields that X-Eureka-Accept: compact asks for
	V1      bool // XML only: statuses other than UP, DOWN and STARTING are written as DOWN
}

// The values of versions__delta. A delta's version is a counter.
const (
	// FullVersion is the version of a full fetch. With -1 Netflix's client would never ask for a delta.
	FullVersion = "1"
	// vipVersion is the version of the response to a query by VIP address.
	vipVersion = "-1"
)

// Class names in upstream's documents; upstream's readers require them.
const (
	ownDataCenterClass    = "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo"
	amazonDataCenterClass = "com.netflix.appinfo.AmazonInfo"
	emptyMapClass         = "java.util.Collections$EmptyMap"
	statusInfoClass       = "com.netflix.eureka.util.StatusInfo"
)

// ErrUnparsable says that a body is not the expected document: not well-formed, beyond the bounds, with another root
// name, or with a value that does not fit its key. It is answered with 400 and AppendParseError's body; the text
// around it says what was wrong, for the log.
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

// AppendParseError appends the body of the response to an unparsable request, in the request's own
// media type (upstream: ApplicationResource.addInstance).
func AppendParseError(dst []byte, f Format) []byte {
	if f.XML {
		return append(dst, "<error><message>cannot parse request body</message></error>"...)
	}
	return append(dst, `{"error": "cannot parse request body"}`...)
}
