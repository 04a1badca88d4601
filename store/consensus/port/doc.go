// Package port is the node-to-node port: connections between the nodes of a cluster, and calls over them.
//
// Each connection begins with a handshake: both sides say which node of which cluster they are. The port
// hands connections for Raft to hashicorp/raft, and performs calls on the others.
//
//   - port.go: the port, which listens, dials, and knows every open connection
//   - hello.go: what both sides say first; handshake.go: whether they go on; admission.go: how many connections
//     others may open
//   - nodes.go: the connections to the other nodes, and calls over them; callserver.go: incoming calls
//
// The package does not know what the calls do.
package port
