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
//	keys_test.go        keys by plain HTTP
//	aschild_test.go     the test program as another process: holders of locks that can be paused, and consul
//	stopself_linux_test.go how a process pauses itself (stopself_other_test.go: elsewhere)
//
// The tests, of clients:
//
//	clients_test.go     Eureka's clients in four languages
//	fixtures_test.go    registrations of real clients, and the conformance suite
//	stacks_test.go      older releases of the Java clients, beside a published server
//	eurekaserver_test.go a published Eureka server as a peer
//	eurekadiff_test.go  what it and Rollcall respond to the probes of eurekaprobes_test.go, and how that differs (eurekakinds_test.go)
//	consulgoclient_test.go Consul's official Go client, and its own tests
//	consulclients_test.go other clients of Consul
//	patroni_test.go     PostgreSQL with Patroni
//	goclient_test.go    the Go client under faults
//	goholder_test.go    its locks over pauses
//	gorecipes_test.go   its locks beside those of Consul's client
//	demo_test.go        the example docs/examples/orders
//
// of the programs:
//
//	cli_test.go         the operator's commands
//	dev_test.go         rollcall dev
//	top_test.go         rollcall top in a terminal
//	pictures_test.go    the pictures that documents show
//	watch_test.go       rollcall watch
//	snapshot_test.go    rollcall snapshot
//	recover_test.go     rollcall recover
//	compare_test.go     rollcall-bench: planted faults, and loads that add up
//
// of faults, with consensus or in both modes:
//
//	kill_test.go        nodes that are killed or stopped; the soak
//	pause_test.go       nodes that stand still, and a disk that hangs
//	partition_test.go   clusters whose links are slow or cut
//	unknown_test.go     writes of unknown outcome during pauses
//	linearizability_test.go pictures of histories
//	fromrelease_test.go upgrades from the last release (upgrade_test.go: to the next one)
//	disk_test.go        disks that are full, and damaged or foreign data directories
//	raftlog_test.go     both kinds of log: entries that are replaced, and conversions
//	blockedlog_test.go  log output that is not read
//	prometheus_test.go  the alerts of Prometheus, and the queries of the dashboard
//
// without consensus and between datacenters:
//
//	ap_test.go          nodes that replicate to each other
//	apfaults_test.go    the same under faults
//	datacenters_test.go datacenters that replicate to each other
//	badpeers_test.go    peers that misbehave, and messages that come twice
//
// of what the registry promises:
//
//	expiry_test.go      evictions while the leader is paused
//	preservation_test.go self-preservation on the command line
//	compat_test.go      settings that bring upstream's behaviour back
//	fencing_test.go     locks whose holders are paused
//	probes_test.go      checks that the leader runs, and aliases
//
// and of what it bounds and refuses:
//
//	quotas_test.go      budgets of memory
//	tls_test.go         mutual TLS
//	auth_test.go        modes of access control, bootstrap and recovery
//	authclients_test.go stock clients with their credentials
//	webpages_test.go    web pages of other sites
package integration
