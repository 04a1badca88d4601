// Package consul is Consul's HTTP API, /v1/, over the registry and over sessions, keys and locks: its routes, and its
// documents, which become domain values and are made of them.
//
// Requests are read leniently, as Consul's clients need it: unknown fields are ignored, names compared without case.
// Responses have the fields and the spelling that its official Go client decodes. Its files:
//
//	routes.go           the table of the routes
//	unserved.go         what of Consul's API is not served
//	call.go             a call, and what holds for all of them
//	read.go             reads: consistency, blocking queries, labels
//	lists.go            long lists, which are written in pieces
//	fields.go           fields of a body, by their names without case
//	filter.go           what a read selects by an expression
//	acl.go              /v1/acl
//	keys.go             /v1/kv
//	txn.go              /v1/txn
//	sessions.go         /v1/session
//	agent.go            whose agent a call is for
//	agentread.go        reads of /v1/agent, and /v1/status
//	agentwrite.go       writes of /v1/agent
//	agentdocuments.go   the agent: itself, its members, services and checks
//	catalog.go          the registry as Consul's catalog
//	catalogread.go      reads of /v1/catalog and /v1/health
//	catalogwrite.go     registrations and deregistrations, by /v1/catalog and by agents
//	catalogdocuments.go registrations and deregistrations of the catalog, as they are sent
//	check.go            checks as they are registered
//	service.go          services as they are registered, with the settings of a mesh's proxies and gateways
//	listed.go           services and checks as they are listed, and what services are worth by their checks
package consul
