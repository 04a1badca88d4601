package httpd

import (
	"context"

	"github.com/seed-20419f34/rollcall/httpd/api"
)

// Cluster tells what this node knows about the nodes of its cluster.
type Cluster interface {
	// Status answers from memory where it can; the context bounds what it must ask of others. What
	// it cannot learn in time it leaves empty. The Handler fills in Node, Datacenter, Version, Ready and Quorum itself.
	Status(ctx context.Context) api.Status
}
