package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/transport"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// snapshotType is the media type of a snapshot.
const snapshotType = "application/vnd.rollcall.snapshot"

// SaveSnapshot writes a snapshot of the cluster's state, from which Restore restores it. With stale it is of what the server
// that responds has, whether or not there is a leader. What was written before an error is of no use. A body that ends early
// is found when the snapshot is read: see rollcall snapshot save.
func (c *Client) SaveSnapshot(ctx context.Context, w io.Writer, stale bool) error {
	q := transport.Own(http.MethodGet, "snapshot").With()
	q.Accept = snapshotType
	if stale {
		q.Query.Set("stale", "")
	}
	servers, err := c.cluster.Candidates(ctx)
	if err != nil {
		return fmt.Errorf("save a snapshot: %w", err)
	}
	var errs []error
	for _, s := range servers {
		if q.Query.Del("unheard"); stale && strings.HasPrefix(s.URL, transport.SocketScheme) {
			q.Query.Set("unheard", "true") // who reaches it may look at a node that has heard no leader
		}
		body, final, err := c.cluster.OpenStream(ctx, s, q)
		if err != nil {
			if errs = append(errs, err); final {
				break
			}
			continue
		}
		_, err = io.Copy(w, body)
		if err = errors.Join(err, body.Close()); err != nil {
			return fmt.Errorf("save a snapshot: %w", err)
		}
		return nil
	}
	return fmt.Errorf("save a snapshot: %w", errors.Join(errs...))
}

// RestoreOptions say what of a snapshot is restored.
type RestoreOptions struct {
	By             registry.Act // the reason is required, unless nothing is changed
	DryRun         bool         // change nothing, and say what would be changed
	KeysOnly       bool         // keys alone
	Prefix         string       // of those, the ones that begin with it
	KeepSessions   bool         // sessions go on, with what they hold
	WithAuth       bool         // roles, tokens and the mode of access control, too; what was revoked stays so
	AnotherCluster bool         // the snapshot may be of another cluster
}

// restorePatience bounds a restore.
const restorePatience = 5 * time.Minute

// Restore restores a snapshot that SaveSnapshot wrote. It is not repeated by this package. An error that does not wrap
// ErrUnknownOutcome says that nothing was changed.
func (c *Client) Restore(ctx context.Context, snapshot []byte, o RestoreOptions) (Restored, error) {
	q := signed(transport.Own(http.MethodPut, "snapshot").With("prefix", o.Prefix), o.By, 0)
	for name, given := range map[string]bool{"dry-run": o.DryRun, "keys-only": o.KeysOnly, "keep-sessions": o.KeepSessions, "auth": o.WithAuth, "another-cluster": o.AnotherCluster} {
		if given {
			q.Query.Set(name, "")
		}
	}
	q.Body, q.Raw, q.Patience = snapshot, true, restorePatience
	return transport.Ask[Restored](ctx, c.cluster, q, "restore a snapshot")
}
