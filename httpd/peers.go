package httpd

import (
	"context"
	"io"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

// Peers is the replication between this node and other servers. Messages and answers are its own; the
// Handler carries them. Errors: *PeerRefusal, or those of registry.Service.
type Peers interface {
	// Receive applies what a peer sends and returns the answer.
	Receive(ctx context.Context, message []byte) ([]byte, error)
	// Compare answers a peer's digests with what differs here.
	Compare(ctx context.Context, message []byte) ([]byte, error)
	// State writes everything that this node has, for a node of its own datacenter that starts.
	State(ctx context.Context, datacenter string, w io.Writer) error
	// Cut is how long a Eureka server may be silent before its link counts as cut.
	Cut(server string) time.Duration

	// Status is the answer of GET /v1/rollcall/peers. Diff and Repair compare with a peer, Repair sends
	// what it lacks. Pause stops the sending to a peer or resumes it. Forget forgets what is known of a
	// sender's clock.
	Status(ctx context.Context) (api.Peers, error)
	Diff(ctx context.Context, peer string) (api.PeerDiff, error)
	Repair(ctx context.Context, peer string) (api.PeerDiff, error)
	Pause(ctx context.Context, peer string, paused bool, by registry.Act) error
	Forget(ctx context.Context, sender string, by registry.Act) error
}

// PeerRefusal is an error of Peers whose answer it knows.
type PeerRefusal struct {
	Status int    // of HTTP
	Text   string // for the caller
}

// Error implements error.
func (r *PeerRefusal) Error() string { return r.Text }
