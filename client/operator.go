package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/transport"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

// Override forces an instance's status, whatever it reports (except DOWN and STARTING, which win), for d or, if that
// is 0, until EndOverride. Afterwards the instance has the status that it reported last. OUT_OF_SERVICE outlives a
// removal of the instance by up to 24 h (from level 3 of the formats on). by names the author (at most 128 bytes) and
// the reason (at most 512). It returns the index of the change, or ErrNotRegistered if the cluster has no such
// instance.
func (c *Client) Override(ctx context.Context, key registry.Key, status registry.Status, by registry.Act, d time.Duration) (index string, err error) {
	return c.act(ctx, "override", key, signed(ownInstance(http.MethodPut, key, "override").With("value", status.String()), by, d))
}

// EndOverride ends an override. The instance is UNKNOWN until its next heartbeat, which makes it register again. It
// returns the index of the change, ErrNoAct without an override, or ErrNotRegistered if the cluster has neither
// such an instance nor an override that waits for it.
func (c *Client) EndOverride(ctx context.Context, key registry.Key, by registry.Act) (index string, err error) {
	return c.endAct(ctx, "override", key, by)
}

// Quarantine hides an instance from every list for a time (1 s to 168 h), while its heartbeats are accepted. It
// outlives a cancel and a registration. by is as for Override. It returns the index of the change, or
// ErrNotRegistered if the cluster has no such instance.
func (c *Client) Quarantine(ctx context.Context, key registry.Key, by registry.Act, d time.Duration) (index string, err error) {
	return c.act(ctx, "quarantine", key, signed(ownInstance(http.MethodPut, key, "quarantine"), by, d))
}

// EndQuarantine lists an instance again. It returns the index of the change, ErrNoAct if it is not in quarantine, or
// ErrNotRegistered if the cluster has no such instance.
func (c *Client) EndQuarantine(ctx context.Context, key registry.Key, by registry.Act) (index string, err error) {
	return c.endAct(ctx, "quarantine", key, by)
}

// endAct ends an operator's act on one instance.
func (c *Client) endAct(ctx context.Context, what string, key registry.Key, by registry.Act) (index string, err error) {
	acted, err := transport.Ask[api.Acted](ctx, c.cluster, signed(ownInstance(http.MethodDelete, key, what), by, 0), "end the "+what+" of %s", key)
	if err == nil && acted.Nothing {
		err = fmt.Errorf("end the %s of %s: %w", what, key, ErrNoAct)
	}
	return acted.Index, err
}

// act performs an operator's act on one instance.
func (c *Client) act(ctx context.Context, operation string, key registry.Key, q *transport.Call) (index string, err error) {
	acted, err := transport.Ask[api.Acted](ctx, c.cluster, q, operation+" %s", key)
	return acted.Index, err
}

// signed adds author, reason and time to a call, where given.
func signed(q *transport.Call, act registry.Act, d time.Duration) *transport.Call {
	q = q.With("author", act.Author, "reason", act.Reason)
	if d != 0 {
		q = q.With("for", d.String())
	}
	return q
}

// ownInstance returns a call of Rollcall's own API about one instance.
func ownInstance(method string, key registry.Key, resource string) *transport.Call {
	return transport.Own(method, "apps", key.App, key.ID, resource).Or(ErrNotRegistered)
}

// Explain returns what is known of an instance, even after it is gone, or ErrNotRegistered if nothing is remembered.
func (c *Client) Explain(ctx context.Context, key registry.Key) (Explanation, error) {
	unknown := fmt.Errorf("%w, and nothing is remembered of it", ErrNotRegistered)
	return transport.Ask[Explanation](ctx, c.cluster, c.cluster.Reading(ownInstance(http.MethodGet, key, "explain").Or(unknown)), "explain %s", key)
}

// List returns the listed instances of one application, in any case, or with "" of all, sorted by application and id.
// Unlike Apps and Instances it says who owns them and when they were last renewed, and waits for no rate limit.
func (c *Client) List(ctx context.Context, app string) ([]Instance, error) {
	return transport.Ask[[]Instance](ctx, c.cluster, c.cluster.Reading(transport.Own(http.MethodGet, "apps").With("app", app)), "list the instances")
}

// Quarantined returns the instances in quarantine, of one application or, with "", of all, sorted by application and
// id. Explain says by whom and why.
func (c *Client) Quarantined(ctx context.Context, app string) ([]Instance, error) {
	q := c.cluster.Reading(transport.Own(http.MethodGet, "apps").With("quarantined", "true", "app", app))
	all, err := transport.Ask[[]Instance](ctx, c.cluster, q, "read the quarantined instances")
	return slices.DeleteFunc(all, func(i Instance) bool { return i.QuarantinedUntil == 0 }), err
}

// RemoveMember removes a node from the cluster for good: its data directory is useless from then on, and a node with
// an empty one may take its name. by is as for Override. It returns ErrUnknownMember if the cluster has no node with
// that name.
func (c *Client) RemoveMember(ctx context.Context, name string, by registry.Act) error {
	q := signed(transport.Own(http.MethodDelete, "members", name), by, 0).Or(ErrUnknownMember)
	q.Removes = true
	_, err := c.cluster.Perform(ctx, q, "remove node %q", name)
	return err
}

// TransferLeadership hands leadership over to a node, or, with "", to the voter whose log is furthest, and returns
// its name. It returns ErrUnknownMember if the cluster has no node with that name.
func (c *Client) TransferLeadership(ctx context.Context, name string) (to string, err error) {
	q := transport.Own(http.MethodPost, "transfer").With("to", name).Or(ErrUnknownMember)
	q.Write = true
	done, err := transport.Ask[api.Transferred](ctx, c.cluster, q, "transfer leadership")
	return done.Leader, err
}

// Upgrade returns which levels of the formats the nodes of the cluster read, and which they write.
func (c *Client) Upgrade(ctx context.Context) (Upgrade, error) {
	return transport.Ask[Upgrade](ctx, c.cluster, transport.Own(http.MethodGet, "upgrade"), "read the levels of the cluster")
}

// FinalizeUpgrade has the cluster write the next level, which rules out going back to the version before. The server
// refuses it, and says why, while some node does not read that level, and when no next level exists.
func (c *Client) FinalizeUpgrade(ctx context.Context) (Upgrade, error) {
	q := transport.Own(http.MethodPost, "upgrade", "finalize")
	q.Write = true
	return transport.Ask[Upgrade](ctx, c.cluster, q, "finalize the upgrade")
}

// DebugBundle returns what a server can say about itself for finding a fault: a gzipped tar file.
func (c *Client) DebugBundle(ctx context.Context) ([]byte, error) {
	a, err := c.cluster.Perform(ctx, transport.Own(http.MethodGet, "debug", "bundle"), "make a bundle")
	return a.Body, err
}

// PruneOptions select what Prune removes.
type PruneOptions struct {
	Service string // one service only; "" means all
	DryRun  bool   // remove nothing, but return what would be removed
}

// Prune removes the instances whose status is not UP, and returns them. Those in quarantine stay: an operator decided
// about them.
func (c *Client) Prune(ctx context.Context, o PruneOptions) ([]Pruned, error) {
	q := transport.Own(http.MethodPost, "prune").With("service", o.Service)
	q.Query.Set("not-passing", "")
	if q.Write = !o.DryRun; o.DryRun {
		q.Query.Set("dry-run", "")
	}
	return transport.Ask[[]Pruned](ctx, c.cluster, q, "prune")
}

// Settings returns the settings that the current leader brought (GET /v1/rollcall/settings). A node's own
// configuration may differ.
func (c *Client) Settings(ctx context.Context) (Settings, error) {
	return transport.Ask[Settings](ctx, c.cluster, c.cluster.Reading(transport.Own(http.MethodGet, "settings")), "read the cluster's settings")
}

// Status asks one node about the cluster.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return transport.Ask[Status](ctx, c.cluster, c.cluster.Reading(transport.Own(http.MethodGet, "status")), "")
}

// Overview asks one node for the health of its cluster. It counts the instances of at most limit applications whose
// names contain part (any if ""), those in trouble first.
func (c *Client) Overview(ctx context.Context, part string, limit int) (Overview, error) {
	call := transport.Own(http.MethodGet, "overview").With("limit", strconv.Itoa(limit))
	if part != "" {
		call = call.With("q", part)
	}
	return transport.Ask[Overview](ctx, c.cluster, c.cluster.Reading(call), "")
}

// Verify asks one node to compare the digests that all nodes made of their states within the last minute. A
// StatusError of 501 means that the cluster is without consensus.
func (c *Client) Verify(ctx context.Context) (Verification, error) {
	return transport.Ask[Verification](ctx, c.cluster, c.cluster.Reading(transport.Own(http.MethodGet, "verify")), "")
}

// Events returns the latest events.
func (c *Client) Events(ctx context.Context) (Events, error) {
	return transport.Ask[Events](ctx, c.cluster, c.cluster.Reading(transport.Own(http.MethodGet, "events")), "")
}

// SelfPreservation returns whether evictions are withheld, and why.
func (c *Client) SelfPreservation(ctx context.Context) (SelfPreservation, error) {
	return transport.Ask[SelfPreservation](ctx, c.cluster, c.cluster.Reading(transport.Own(http.MethodGet, "self-preservation")), "")
}

// ReleaseSelfPreservation lets evictions go on although too few leases are fresh, until enough have been fresh once.
// A StatusError of 409 means that self-preservation is off, or released already.
func (c *Client) ReleaseSelfPreservation(ctx context.Context, by registry.Act) (SelfPreservation, error) {
	return c.preserve(ctx, "release", by, 0)
}

// HoldSelfPreservation withholds every eviction for a time (1 s to 168 h), whatever the numbers say.
func (c *Client) HoldSelfPreservation(ctx context.Context, by registry.Act, d time.Duration) (SelfPreservation, error) {
	return c.preserve(ctx, "hold", by, d)
}

// preserve performs an operator's act and returns the state afterwards.
func (c *Client) preserve(ctx context.Context, act string, by registry.Act, d time.Duration) (SelfPreservation, error) {
	p, a, err := transport.AskWhole[SelfPreservation](ctx, c.cluster, signed(transport.Own(http.MethodPost, "self-preservation", act), by, d), "%s self-preservation", act)
	if a.Status == http.StatusConflict && a.Repeated {
		return c.SelfPreservation(ctx) // an earlier try has probably done it
	}
	return p, err
}

// comparePatience bounds one try of a comparison with a peer; a server gives it 2 minutes.
const comparePatience = 3 * time.Minute

// Peers returns the state of replication to other servers. A server that replicates nothing refuses with a
// StatusError of 501.
func (c *Client) Peers(ctx context.Context) (Peers, error) {
	return transport.Ask[Peers](ctx, c.cluster, c.cluster.Reading(transport.Own(http.MethodGet, "peers")), "read the peers")
}

// PeerDiff compares with a peer and changes nothing. It returns ErrUnknownPeer if the cluster has no peer of that
// name.
func (c *Client) PeerDiff(ctx context.Context, name string) (PeerDiff, error) {
	return c.compare(ctx, "compare with", name, ofPeer(http.MethodGet, name, "diff"))
}

// RepairPeer compares with a peer and sends it the difference; a Eureka server, which cannot be compared with, gets
// everything. It returns once the difference is queued, or ErrUnknownPeer if the cluster has no peer of that name.
func (c *Client) RepairPeer(ctx context.Context, name string) (PeerDiff, error) {
	return c.compare(ctx, "repair", name, ofPeer(http.MethodPost, name, "repair"))
}

func (c *Client) compare(ctx context.Context, operation, name string, q *transport.Call) (PeerDiff, error) {
	q.Patience = comparePatience
	return transport.Ask[PeerDiff](ctx, c.cluster, q, operation+" peer %q", name)
}

// PausePeer stops sending to a peer until ResumePeer, whichever node sends. by is as for Override. It returns
// ErrUnknownPeer if the cluster has no peer of that name.
func (c *Client) PausePeer(ctx context.Context, name string, by registry.Act) error {
	_, err := c.cluster.Perform(ctx, signed(ofPeer(http.MethodPost, name, "pause"), by, 0), "pause peer %q", name)
	return err
}

// ResumePeer resumes sending to a peer, from where it was paused. by is as for Override. It returns ErrUnknownPeer if
// the cluster has no peer of that name.
func (c *Client) ResumePeer(ctx context.Context, name string, by registry.Act) error {
	_, err := c.cluster.Perform(ctx, signed(ofPeer(http.MethodPost, name, "resume"), by, 0), "resume peer %q", name)
	return err
}

// ForgetSender makes the whole cluster, or without consensus the server that responds, forget what it knows of a
// sender's clock, so that the sender's next message counts as its first. by is as for Override. It returns
// ErrUnknownSender if no sender with that name was heard.
func (c *Client) ForgetSender(ctx context.Context, sender string, by registry.Act) error {
	_, err := c.cluster.Perform(ctx, signed(ofPeer(http.MethodPost, sender, "forget").Or(ErrUnknownSender), by, 0), "forget sender %q", sender)
	return err
}

// ofPeer returns a call about one peer.
func ofPeer(method, name, resource string) *transport.Call {
	return transport.Own(method, "peers", name, resource).Or(ErrUnknownPeer)
}

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
			// a stale read may reach a node that has not heard from a leader
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
