// Package integration runs clusters of real rollcall processes, with and without consensus and in
// several datacenters, and drives them as users do: through stock Eureka clients of four languages, the
// command line, and plain HTTP, while processes are killed, paused and cut off from each other. The
// non-test files are the harness: clusters, nodes, datacenters, certificates, a TCP proxy and a small
// HTTP client that tells done, refused and unknown apart. It knows the server only by its binary and its
// wire formats, of which Rollcall's own are the documents of httpd/api; its tests run the protocol's suite, httpd/conformance.
package integration
