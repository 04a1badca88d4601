package own

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// Snapshots saves and restores snapshots for people.
type Snapshots interface {
	// Save returns the state, at least as new as read demands, ready to write itself. Errors: those of
	// registry.Service.
	Save(ctx context.Context, read registry.Consistency) (SavedSnapshot, error)
	// Restore restores the snapshot in a body. Errors: ErrSnapshotUnreadable, ErrRestoreRefused, those of
	// registry.Service.
	Restore(ctx context.Context, body io.Reader, o RestoreOptions) (api.Restored, error)
}

// SavedSnapshot writes a state that no longer changes.
type SavedSnapshot = io.WriterTo

// RestoreOptions say which parts of a snapshot are restored.
type RestoreOptions struct {
	By             registry.Act
	DryRun         bool // change nothing, and respond with what would change
	KeysOnly       bool
	Prefix         string // of keys; with KeysOnly
	KeepSessions   bool
	WithAuth       bool // also restore roles, tokens and the mode of access control
	AnotherCluster bool // accept a snapshot of another cluster
}

// Errors of Snapshots, whose texts are shown to the caller. Nothing was changed.
var (
	ErrSnapshotUnreadable = errors.New("the snapshot cannot be read")
	ErrRestoreRefused     = errors.New("the restore was refused")
)

// snapshotType is the media type of a snapshot.
const snapshotType = "application/vnd.rollcall.snapshot"

func (c call) snapshots() (Snapshots, error) {
	if c.config.Snapshots == nil {
		return nil, &web.Refusal{Status: http.StatusNotImplemented, Text: "this node has no snapshots for people"}
	}
	return c.config.Snapshots, nil
}

// saveSnapshot is GET /v1/rollcall/snapshot, of a linearizable view or (stale) of what this node has.
func (c call) saveSnapshot() (any, error) {
	stale := c.Present("stale")
	s, err := c.snapshots()
	if err != nil || c.Err != nil {
		return nil, errors.Join(c.Err, err)
	}
	read := registry.Linearizable
	if stale || c.WithoutConsensus {
		read, err = registry.Stale, c.Known(c.R.Context())
	}
	if err != nil {
		return nil, err
	}
	saved, err := s.Save(c.R.Context(), read)
	if err != nil {
		err = snapshotRefusal(err)
	} else {
		err = c.StillAllowed()
	}
	if c.Did("snapshot_save", "", registry.Act{}, err) != nil {
		return nil, err
	}
	c.W.Header().Set("Content-Type", snapshotType)
	if c.R.Method == http.MethodHead {
		return web.Sent, nil
	}
	return c.sendPieces("a snapshot broke off", func(w io.Writer) error {
		_, err := saved.WriteTo(w)
		return err
	})
}

// restoreSnapshot is PUT /v1/rollcall/snapshot.
func (c call) restoreSnapshot() (any, error) {
	s, err := c.snapshots()
	if err != nil {
		return nil, err
	}
	o := RestoreOptions{
		By: c.By(), DryRun: c.Present("dry-run"), KeysOnly: c.Present("keys-only"), Prefix: c.Text("prefix"),
		KeepSessions: c.Present("keep-sessions"), AnotherCluster: c.Present("another-cluster"), WithAuth: c.Present("auth"),
	}
	switch {
	case o.Prefix != "" && !o.KeysOnly:
		c.Refuse("prefix goes with keys-only: nothing but keys has a prefix")
	case o.WithAuth && o.KeysOnly:
		c.Refuse("auth does not go with keys-only: roles and tokens come back with a restore of everything")
	case o.By.Reason == "" && !o.DryRun:
		c.Refuse("a restore changes the whole cluster; say why: reason=TEXT")
	}
	if c.Err != nil {
		return nil, c.Err
	}
	if o.WithAuth {
		if err := c.Allow(access.Need{Resource: access.Auth, Verb: access.Write}); err != nil {
			return nil, err
		}
	}
	control := http.NewResponseController(c.W)
	done, err := s.Restore(c.R.Context(), pacedReader{c.R.Body, control}, o)
	_ = control.SetWriteDeadline(time.Now().Add(web.PieceLimit))
	if err != nil {
		err = snapshotRefusal(web.WriteError(err))
	}
	if o.DryRun {
		return done, err
	}
	what := o.Prefix
	if o.WithAuth {
		what = "with roles and tokens"
	}
	return done, c.Did("snapshot_restore", what, o.By, err)
}

// snapshotRefusal words the errors that only a snapshot can meet.
func snapshotRefusal(err error) error {
	switch {
	case errors.Is(err, registry.ErrUnknownOutcome):
		return err
	case errors.Is(err, ErrSnapshotUnreadable):
		return &web.Refusal{Status: http.StatusBadRequest, Text: err.Error() + "; nothing was changed", Cause: err}
	case errors.Is(err, ErrRestoreRefused):
		return &web.Refusal{Status: http.StatusConflict, Text: err.Error() + "; nothing was changed", Cause: err}
	case errors.Is(err, registry.ErrNoLeader):
		return &web.Refusal{Status: http.StatusServiceUnavailable, Text: "no leader could be reached, so nothing was saved or restored; with stale a node saves what it has", Retry: true, Cause: err}
	case errors.Is(err, registry.ErrNotOffered):
		return &web.Refusal{Status: http.StatusNotImplemented, Text: "keys, roles and tokens need a cluster with consensus (mode cp); a node without restores instances alone: leave out keys-only, prefix and auth", Cause: err}
	}
	return err
}

// pacedReader gives each read of an unbounded body its own time limit.
type pacedReader struct {
	io.Reader
	control *http.ResponseController
}

// Read implements io.Reader.
func (p pacedReader) Read(b []byte) (int, error) {
	deadline := time.Now().Add(web.PieceLimit)
	_ = p.control.SetReadDeadline(deadline)
	_ = p.control.SetWriteDeadline(deadline.Add(web.PieceLimit))
	return p.Reader.Read(b)
}
