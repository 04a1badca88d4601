// Package catalog is the part of Consul's API beyond instances, as pure state: the nodes of its catalog, the services
// on them, and their checks with their consequences. It knows neither instances nor leases: a key stands for a
// service in the registry, and package registry keeps both in step.
//
//	service.go      the values: services and nodes
//	check.go        the values: checks, their state, lists of them
//	alias.go        the checks that follow others
//	tables.go       what readers see, and where to find services and checks
//	catalog.go      the mutable catalog: the ends of checks, and which checks were lost
//	registration.go the rules of registering: what is refused, what changes, and what stays
//	verify.go       verification of a catalog from a snapshot
package catalog
