package client

import (
	"encoding/json"
	"net/http"
)

// foreign says that an answer to a call of Rollcall's own API, or of Consul's, is of a server that does not
// know that API: it has no such path, or no such method of it. Many of Rollcall's own answers have the same
// statuses, and tell what there is no such thing of.
func (q call) foreign(a answer) bool {
	if q.eureka || a.status != http.StatusNotFound && a.status != http.StatusMethodNotAllowed {
		return false
	}
	return a.header.Get("X-Consul-Index") == "" && !ownError(a.body)
}

// ownError says whether a body is an error in the form of Rollcall's own API: an object with an error and
// nothing else. Spring's errors have an error too, beside timestamp, status and path; Netflix's server
// answers in HTML, as proxies do.
func ownError(body []byte) bool {
	var doc map[string]json.RawMessage
	var text string
	return json.Unmarshal(body, &doc) == nil && len(doc) == 1 && json.Unmarshal(doc["error"], &text) == nil
}
