// Package leadership knows which node leads a cluster: this node, from its first committed entry to the loss of its leadership, or another one.
//
//   - leadership.go: a leadership, and until when a batch may take effect in one
//   - state.go: which node leads, as far as this node knows, and what it runs while it leads
//
// The package holds no elections: hashicorp/raft does.
package leadership
