// Files of this package, from the bottom up:
//
//	errors.go, documents.go, instance.go    what callers compare, get and register
//	client.go, lifecycle.go, metrics.go     a Client, the parts that it ends, and its numbers
//	auth.go                                 the token that it sends; roles, tokens and the audit
//	eureka.go, operator.go, drain.go        calls about instances, for services and for operators
//	registration.go, registrationstate.go   a Registration, and what it knows of its instance
//	heartbeat.go, replicator.go             its two loops, and its end
//	snapshot.go, guard.go                   a list at one moment, and what a full response must not take from it
//	discovery.go, refresh.go                a Discovery: its list, and how it is kept up to date
//	listfile.go                             its last list on disk
//	watch.go                                a Watch, and the stream of changes of one server
//	sessions.go, keeper.go                  sessions, and how one is kept
//	kv.go, permits.go                       keys; locks and semaphores as they are
//	lock.go                                 a lock that is held, its place in the queue, and elections
//
// Calls go through package internal/transport; waits and pauses through internal/wait.

// Package client is the Go SDK for Rollcall: register a service and keep it registered, find the others in a list
// that is kept up to date in memory, hold locks and lead elections, read and write keys, and ask the cluster about
// itself.
//
// [New] makes a [Client]; it sends nothing and starts nothing. What the client starts later
// ([Client.StartRegistration], [Client.StartDiscovery], locks and sessions) it ends with [Client.Close].
//
// The package picks no instance and sends no request to one. Packages client/balance (a picker, and an
// http.RoundTripper) and client/grpcresolver (a resolver for gRPC, a module of its own) do, from the list that this
// one keeps.
//
// # Registration
//
// A [Registration] registers an instance, renews its lease, registers it again when the cluster does not know it, and
// tells the cluster what changes: through [Registration.SetStatus] and [Registration.SetMetadata], or through a
// callback that is asked for the status ([RegistrationConfig].Health). [Registration.Drain] takes it out of service
// before it ends, so that no call fails. [NewInstance] describes this machine.
//
// # Discovery
//
// A [Discovery] keeps the list of one application, or of all: by watching a Rollcall server, by deltas from a stock
// one. [Discovery.Snapshot] is the list at one moment, by application, VIP address and zone; [Discovery.Age] says how
// old it may be. A [Guard] keeps a suddenly empty response from emptying the list, and a file keeps the list over
// restarts of the process.
//
// [Client.Apps], [Client.Instances] and [Client.List] ask a server instead, each time, and [Client.Watch] reports
// changes without keeping anything.
//
// # Coordination
//
// [Client.AcquireLock] and [Client.AcquireSemaphore] return a [Held], which lasts until it is released or lost, with
// a context that ends then. [Client.Elect] leads while it holds a lock, [Client.KeepSession] keeps a session for keys
// that are acquired with it, and [Client.KV] reads, writes and watches keys. They need a cluster in mode cp.
//
// A context can end only what checks it. Anything that a holder must not do after a pause has to check its token
// ([Held.Fence]): a [Write] of a key does.
//
// # Failures
//
// A call goes to the server that the client stays with, and on to the others while none responds. Servers that did
// not respond are asked last for a while; none is left out. A call ends when every server was asked once, or its
// context ends. What runs in the background keeps trying, and so does what waits: for a lock, for leadership, for a
// change.
//
// A write has three outcomes: done (nil), not done (an error) and unknown ([ErrUnknownOutcome]). Every write of this
// package may be repeated without harm.
//
// Whatever a caller can act on is one of this package's errors, to be tested with [errors.Is]; any other answer is a
// [StatusError].
//
// # Stock Eureka
//
// Registration, discovery and the calls for them work with Netflix's and Spring Cloud's servers too, and between
// servers of both kinds. Everything else returns [ErrNeedsRollcall] there.
//
// # Goroutines and Close
//
// A Client has no goroutine of its own: what runs in the background belongs to a Registration, a Discovery or a
// session that is kept. Close stops all of it and waits for it, lets the cluster know, closes the transport and takes
// back the metrics, in that order. Its context bounds the waiting. A program that calls neither Close nor what ends
// one part (Deregister, Release, Discovery.Close) leaves its instance and its locks to expire, a lease or a TTL
// later.
package client
