package consul

// NodeName is the name of the logical node: one agent stands for the whole cluster, whichever server
// is asked. In domain values its name is empty.
const NodeName = "rollcall"

// ShownNode is a node's name in answers.
func ShownNode(node string) string {
	if node == "" {
		return NodeName
	}
	return node
}

// NodeOf is the inverse of ShownNode.
func NodeOf(shown string) string {
	if shown == NodeName {
		return ""
	}
	return shown
}
