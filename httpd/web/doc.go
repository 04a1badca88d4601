// Package web is what the routes of every API of a node share: how requests are read, what they may cost, how they
// read and change the registry, and how errors become responses.
//
// It serves no route itself. Its files, from the request to the response:
//
//	call.go         a request under way, and the rows of the tables of routes
//	params.go       the parameters of a request
//	path.go         the path of a request
//	body.go         the body of a request
//	budget.go       the memory that requests and responses may take together
//	batches.go      the share of each server that sends batches
//	node.go         what the routes know of their node
//	credential.go   the credential of a request
//	principal.go    who makes a call
//	access.go       what a call needs, and whether its principal has it
//	failures.go     tries of bad credentials, by address
//	audit.go        what the audit has of calls
//	reads.go        views of the registry, as fresh as a request asks for
//	blocking.go     reads that wait for a change or for a leader
//	writes.go       operations on the registry, quotas, and their metrics
//	coordination.go operations on sessions, keys and locks
//	watches.go      the watches under way
//	lasting.go      how long it lasts that a call was let in
//	life.go         how long connections last
//	pieces.go       responses that are written in pieces
//	respond.go      responses that are complete, and leave in one piece; gzip
//	shared.go       lists that are made once for all who ask for them
//	response.go     what is known of a response when it is sent
//	requestid.go    the names of requests, and calls that are logged
//	errors.go       the response to every error
//	process.go      the process itself: its memory, and how long it has run
package web
