// Package transport is the client's way to its cluster: which server a call goes to, how the call is sent, bounded
// and repeated at other servers, and what its response means.
//
// It knows the form of calls and responses, not what the client's methods say in them. Its files, from the server to
// the response:
//
//	server.go    a server: its URLs and its user
//	servers.go   the order of the servers to ask, and the quarantine of those that fail
//	lookup.go    the source that looks up the servers again
//	call.go      a call, and the request that it becomes
//	dial.go      the HTTP client and its connections
//	response.go  a response, and what another server may do about a refusal
//	errors.go    the errors that users of the client compare, and those that end a call
//	patience.go  the bounds of one try
//	send.go      one try at one server
//	cluster.go   a Cluster: calls that go from server to server
//	ask.go       calls whose response is a document
//	metrics.go   the numbers of tries
package transport
