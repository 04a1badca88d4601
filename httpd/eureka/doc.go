// Package eureka turns the documents of Eureka's protocol, JSON and XML, full and compact, into
// values of package registry and back. docs/protocol/eureka-documents.md describes them.
//
// Writers append to a slice, use no reflection and allocate nothing beyond it: a large document is
// put together from instances that were encoded when they last changed. They emit exactly the keys
// of the protocol, because some clients refuse a whole document for one key they do not know.
//
// Readers are tolerant in what clients are known to send, and strict in what only an attacker or a
// defect produces: duplicate keys, deep nesting, trailing data, text that is not UTF-8, DOCTYPE.
//
// The package knows nothing of HTTP: which form a request asks for, and which status an error is
// answered with, is the business of package httpd.
package eureka
