// Package port is the node-to-node port: connections between the nodes of a cluster, and calls over them.
//
// Each connection begins with a handshake, in which both sides say which node of which cluster they are. The port hands on to
// hashicorp/raft the connections for Raft, and performs calls on the others.
//
//   - port.go: the port, which listens, dials, and knows every open connection
//   - hello.go: what both sides say first; handshake.go: whether they go on; admission.go: how many connections others may open
//   - nodes.go: the connections to the other nodes, and calls over them; callserver.go: calls that come in
//
// The package knows nothing of what is called.
package port
