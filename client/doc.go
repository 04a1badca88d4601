// Package client is the Go SDK for Rollcall: register an instance and keep its lease alive, look up
// the others, read and write keys, hold locks and semaphores, and ask the cluster about itself.
//
// A [Client] talks Eureka's protocol for the registry and Rollcall's own API for the rest. It fails
// over between the servers that it is given and stays with one that answers. It caches nothing: each
// read is answered by a server, as fresh as that server's settings or [Config.Consistency] say.
//
// A write has three outcomes: done (nil), not done (an error) and unknown ([ErrUnknownOutcome]).
// Every write of this package may be repeated without harm.
package client
