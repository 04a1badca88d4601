// Package replication carries a registry's changes to its peers: nodes of the own datacenter (without
// consensus), other datacenters, and Netflix Eureka servers. It reads the registry's change list, keeps
// a durable cursor per peer, and repairs by digest what the list no longer tells; a batching dispatcher
// per peer (package batcher) sends. It also answers what peers of the same kind send here. It orders
// nothing and stores nothing by itself: all goes through registry.Service.
package replication
