// Package balance picks instances of a service, and calls them: with a Picker, or with an http.RoundTripper for an
// ordinary http.Client.
//
// It picks from the list of a client.Discovery, in memory, so calls go on while no registry can be reached, and an
// instance that left the list is not called again. When an instance has died and the list does not know it yet, a
// Transport finds out: it tries another one if it could not connect, and skips the dead one for some seconds. A
// request that was cut off without a response is sent again only if it is a GET or the like, or has an
// Idempotency-Key.
package balance
