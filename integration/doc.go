// Package integration runs clusters of real rollcall processes, with and without consensus and in several
// datacenters, and drives them as users do: through stock clients of Eureka and Consul in four languages, the Go
// client, the command line, and plain HTTP, while processes are killed, paused and cut off from each other. It does
// not test rules and formats of packages, which the packages do themselves.
//
// It imports nothing of the server but what clients import too: the documents of httpd/api, the types of
// fsm/registry, and the server as a program, which internal/localcluster starts. TestConformance runs the protocol's
// suite, httpd/httpdtest.
//
// The harness, which has no tests:
//
//	cluster.go          clusters, datacenters, and proxies between their nodes
//	node.go             one node and its process; waiting
//	call.go             one HTTP call, and what a client knows after it: done, not found, refused, unknown
//	instance.go         Eureka's calls
//	operator.go         calls of our own API
//	goclient.go         services and callers by the Go client
//	certificates.go     an authority and its certificates
//	credentials.go      roles, tokens, and the search for secrets that show
//
// What several tests share:
//
//	main_test.go        the programs under test, and the test program as another process: holders of locks that can be
//	                    paused, and consul
//	driver_test.go      stock clients in processes of other languages, step by step; modes of a test
//	listing_test.go     what nodes list, and whether they agree; keys by plain HTTP; instances that fall silent and
//	                    come back; registrations, renewals and cancels in flight during faults
//
// gate.txt lists the tests that make test runs, and what of a real machine each needs. make test-all runs the others,
// too.
//
// The tests, of clients:
//
//	clients_test.go     Eureka's clients in four languages, the conformance suite, and docs/examples/orders
//	stacks_test.go      older releases of the Java clients, beside a published server
//	eurekaserver_test.go a published Eureka server as a peer
//	eurekadiff_test.go  what it and Rollcall respond to the probes of eurekaprobes_test.go, and how that differs
//	consulgoclient_test.go Consul's official Go client, and its own tests
//	consulclients_test.go other clients of Consul; stock clients with their credentials
//	wild_test.go, wildprograms_test.go programs that others wrote for Consul, and PostgreSQL with Patroni
//	goclient_test.go    the Go client under faults, and its locks beside those of Consul's client
//
// of the programs and pages:
//
//	cli_test.go         the operator's commands, rollcall dev, and rollcall status --watch in a terminal
//	snapshot_test.go    rollcall snapshot, also of a large state, and rollcall recover
//	compare_test.go     rollcall-bench: planted faults, and loads that add up
//	readme_test.go      the commands of README and of other pages, the shell that runs them, and pictures in documents
//
// of faults, with consensus or in both modes:
//
//	kill_test.go        nodes that are killed or stopped, with consensus and without, rolling restarts behind haproxy;
//	                    nodes that hang, a disk that hangs, and writes that were abandoned during a pause
//	disk_test.go        full disks, damaged or foreign data directories, conversions of the log, operations that panic
//	blockedlog_test.go  log output that is not read (logkeys_test.go: what lines of a log may have)
//	upgrade_test.go     upgrades to the next level and from the last release
//	prometheus_test.go  Prometheus' alerts, the queries of the dashboard, checks that the leader runs, and aliases
//
// of what the registry bounds and refuses:
//
//	tls_test.go         memory budgets; mutual TLS; modes of access control, bootstrap and recovery
package integration
