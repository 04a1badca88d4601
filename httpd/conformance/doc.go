// Package conformance is the test of Eureka's protocol as its clients and peers see it, and of what
// Rollcall adds for watchers and operators: a suite that is run against the URL of a server, whatever
// orders its operations. It says nothing about durability, freshness across nodes or faults.
//
// The suite needs a server that nobody else changes meanwhile; what is registered there before does
// not matter.
package conformance
