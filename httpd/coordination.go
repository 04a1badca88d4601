package httpd

import (
	"github.com/seed-20419f34/rollcall/fsm/kv"
)

// Coordination is what Consul's API, and our own of sessions, locks and semaphores, need of a node
// beyond the registry. Only a node with consensus has it.
type Coordination interface {
	kv.Service
	// WatchCatalog begins to wait for a change of an application (upper case; "": of any), of a node or of
	// a check; see registry.Watchers.Join.
	WatchCatalog(app string) (woken <-chan struct{}, leave func())
	// RaftAddresses are the node-to-node addresses of the leader ("": none is known) and of all voters,
	// sorted.
	RaftAddresses() (leader string, all []string)
}
