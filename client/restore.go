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

// SaveSnapshot writes a snapshot of the cluster's state, for Restore. With stale it shows the state of the server
// that responds, whether or not there is a leader. What was written before an error is useless. A body that ends
// early is noticed when the snapshot is read: see rollcall snapshot save.
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
			// whoever asks for stale data may see a node that has not heard from a leader
			q.Query.Set("unheard", "true")
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

// RestoreOptions say which part of a snapshot is restored.
type RestoreOptions struct {
	By             registry.Act // the reason is required, unless nothing is changed
	DryRun         bool         // change nothing, but return what would be changed
	KeysOnly       bool         // keys alone
	Prefix         string       // only keys that begin with it
	KeepSessions   bool         // sessions go on, with what they hold
	WithAuth       bool         // also roles, tokens and the mode of access control; what was revoked stays revoked
	AnotherCluster bool         // the snapshot may come from another cluster
}

// restorePatience bounds a restore.
const restorePatience = 5 * time.Minute

// Restore restores a snapshot that SaveSnapshot wrote. This package does not repeat it. An error that does not wrap
// ErrUnknownOutcome means that nothing was changed.
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
