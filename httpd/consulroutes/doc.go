// Package consulroutes has the routes of Consul's HTTP API, /v1/, over the registry and over sessions, keys and locks.
//
// How the documents look is the business of package httpd/consul. Its files:
//
//	routes.go       the table of the routes
//	unserved.go     what of Consul's API is not served
//	call.go         a call, and what holds for all of them
//	read.go         reads: consistency, blocking queries, labels
//	filter.go       what a read selects by an expression
//	lists.go        long lists, which are written in pieces
//	keys.go         /v1/kv
//	txn.go          /v1/txn
//	sessions.go     /v1/session
//	agent.go        whose agent a call is for
//	catalog.go      the registry as Consul's catalog
//	catalogread.go  reads of /v1/catalog and /v1/health
//	catalogwrite.go registrations and deregistrations, by /v1/catalog and by agents
//	agentread.go    reads of /v1/agent, and /v1/status
//	agentwrite.go   writes of /v1/agent
package consulroutes
