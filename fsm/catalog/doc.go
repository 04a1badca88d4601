// Package catalog is what Consul's API has beyond instances, as pure state: the nodes of its catalog, the services on
// them, and their checks with what follows from these. It knows neither instances nor leases: what stands for a service
// in the registry is a key of whatever type, and package registry keeps both in step.
//
//	service.go      the values: services and nodes
//	check.go        the values: checks, their state, lists of them
//	alias.go        the checks that follow others
//	tables.go       what readers see, and where services and checks are found
//	catalog.go      the mutable catalog: the ends of checks, and which checks were lost
//	registration.go the rules of registering: what is refused, what changes, and what stays
//	verify.go       what is verified of a catalog that is read from a snapshot
package catalog
