// Package membership is a node's part in its cluster: how it founds, finds or joins one, which nodes are its members,
// how they change, and whether their states are equal.
//
//   - identity.go: the identity in the data directory, as it changes on disk
//   - founding.go: agrees on the founders of a cluster; search.go: searches for one, and checks that it is still the
//     right one
//   - members.go: the committed members; joining.go: how the leader admits nodes; voters.go: how it gives and takes
//     votes; removal.go: how it removes nodes; transfer.go: how it hands leadership over
//   - upgrade.go: which levels of the formats the nodes read, and how the leader raises the cluster's
//   - leader.go: a leadership, which node leads as far as this node knows, and what it runs while it leads
//   - digests.go: digests of a node's state, at the same entries as those of the others; compare.go: all digests at one
//     entry must be equal
//   - state.go: what a node says of itself to the others; status.go: the cluster as one node sees it
//
// The package elects no leader: hashicorp/raft does.
package membership
