// Package registry is the service registry as a pure state machine: instances, leases and how
// they end, self-preservation, status overrides, quarantines, their conflict rules, the change list and
// the delta that is cut from it.
//
// State changes only through [Registry.Apply], which is told the time and never reads a clock,
// draws a random number or starts a goroutine; the same operations in the same order give the same
// bytes on every node. Readers get a [View], which is immutable and never blocks a writer.
//
// The rules are those of Netflix Eureka's registry (AbstractInstanceRegistry, Lease and the status
// override rules of eureka-core), without the defects listed in docs/protocol/eureka-registry.md. How
// operations are ordered and made durable is the business of package store; how they look on the
// wire is the business of package httpd.
package registry
