// Package balance chooses among the instances of a service, and calls them: as a Picker, or as the
// http.RoundTripper of an ordinary http.Client.
//
// It chooses from the list of a client.Discovery, in memory, so that calls go on while no registry can
// be reached, and an instance that left the list is not called again. What the list does not know yet,
// that an instance has died, a Transport finds out by itself: it tries another one if it could not
// connect, and passes the dead one over for some seconds. What was cut off without an answer it sends
// again only if it is a GET or the like, or has an Idempotency-Key.
package balance
