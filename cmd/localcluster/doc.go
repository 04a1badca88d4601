// Package localcluster runs clusters of server processes on 127.0.0.1, whose links can be cut: for `rollcall dev`,
// the benchmarks, the comparison of the modes and the integration tests. It knows the servers from outside, by
// their settings and by HTTP, and not what is measured or tested.
package localcluster
