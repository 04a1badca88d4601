// Package integration runs clusters of real rollcall processes, with and without consensus and in several datacenters,
// and drives them as users do: through stock clients of Eureka and Consul in four languages, the Go client, the command
// line, and plain HTTP, while processes are killed, paused and cut off from each other. It does not test rules and formats
// of packages, which the packages do themselves.
//
// It imports nothing of the server but what clients import too: the documents of httpd/api, the types of
// fsm/registry, and the server as a program, which internal/localcluster starts. Tests that speak as another Rollcall server
// encode its messages by replication/wire, and TestConformance runs the protocol's suite, httpd/conformance.
//
// The harness, which is no test:
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
//	main_test.go        the programs under test
//	driver_test.go      stock clients in processes of other languages; modes of a test
//	lifecycle_test.go   the life of one instance of a stock client, step by step
//	load_test.go        registrations, renewals and cancels under way during faults
//	herd_test.go        instances with short leases that fall silent and come back
//	listing_test.go     what nodes list, and whether they agree
//	keys_test.go        keys by plain HTTP
//	reader_test.go      a shell that runs the commands of a page
//	aschild_test.go     the test program as another process: holders of locks that can be paused, and consul
//	stopself_linux_test.go how a process pauses itself (stopself_other_test.go: elsewhere)
//
// gate.txt lists the tests that make test runs, and what of a real machine each needs. make test-all runs the others, too.
//
// The tests, of clients:
//
//	conformance_test.go the conformance suite
//	clients_test.go     Eureka's clients in four languages
//	stacks_test.go      older releases of the Java clients, beside a published server
//	eurekaserver_test.go, eurekamixed_test.go, eurekatable_test.go a published Eureka server as a peer
//	eurekadiff_test.go  what it and Rollcall respond to the probes of eurekaprobes_test.go, and how that differs (eurekakinds_test.go)
//	consulgoclient_test.go Consul's official Go client, and its own tests (consulowntests_test.go)
//	consulclients_test.go other clients of Consul
//	wild_test.go, wildprograms_test.go programs that others wrote for Consul
//	patroni_test.go     PostgreSQL with Patroni
//	goclient_test.go    the Go client under faults
//	goholder_test.go    its locks over pauses
//	gorecipes_test.go   its locks beside those of Consul's client
//	demo_test.go        the example docs/examples/orders
//
// of the programs and pages:
//
//	cli_test.go         the operator's commands
//	dev_test.go         rollcall dev
//	top_test.go         rollcall top in a terminal
//	watch_test.go       rollcall watch
//	snapshot_test.go    rollcall snapshot (snapshotnumbers_test.go: of a large state)
//	recover_test.go     rollcall recover
//	compare_test.go     rollcall-bench: planted faults, and loads that add up
//	readme_test.go, examples_test.go, threemachines_test.go the commands of README and of other pages
//	pictures_test.go    the pictures that documents show
//
// of faults, with consensus or in both modes:
//
//	kill_test.go        nodes that are killed or stopped
//	apfaults_test.go    the same without consensus
//	pause_test.go       nodes that stand still, and a disk that hangs
//	expiry_test.go      evictions while the leader is paused
//	unknown_test.go     writes that were given up during a pause
//	fencing_test.go     locks whose holders are paused (linearizability_test.go: pictures of histories)
//	panics_test.go      operations that panic
//	disk_test.go        disks that are full, and damaged or foreign data directories
//	raftlog_test.go     conversions of the log
//	blockedlog_test.go  log output that is not read (logkeys_test.go: what lines of a log may have)
//	upgrade_test.go     upgrades to the next level (fromrelease_test.go: from the last release)
//	restarts_test.go    rolling restarts behind haproxy
//	prometheus_test.go  the alerts of Prometheus, and the queries of the dashboard
//	probes_test.go      checks that the leader runs, and aliases
//
// of what the registry bounds and refuses:
//
//	quotas_test.go      budgets of memory
//	tls_test.go         mutual TLS
//	auth_test.go        modes of access control, bootstrap and recovery
//	authclients_test.go stock clients with their credentials (tokens_test.go)
//
// and benchmarks:
//
//	heartbeats_test.go  heartbeats with credentials and over TLS
//	fewrenewals_linux_test.go renewals that wait for each other
package integration
