package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Explain says what is known of an instance, also after it is gone. ErrNotRegistered: nothing is
// remembered of it.
func (c *Client) Explain(ctx context.Context, key registry.Key) (Explanation, error) {
	var e Explanation
	err := c.readJSON(ctx, &e, ownPath(key, "explain")...)
	var status *StatusError
	if errors.As(err, &status) && status.Status == http.StatusNotFound {
		err = fmt.Errorf("%w, and nothing is remembered of it", ErrNotRegistered)
	}
	if err != nil {
		return Explanation{}, fmt.Errorf("explain %s: %w", key, err)
	}
	return e, nil
}

// List returns the listed instances of one application, in any case, or with "" of all, sorted by
// application and id. Unlike Apps and Instances it says whose they are and when they were last
// renewed, and is not kept waiting by a rate limit.
func (c *Client) List(ctx context.Context, app string) ([]Instance, error) {
	parameters := make(url.Values)
	if app != "" {
		parameters.Set("app", app)
	}
	var all []Instance
	a, err := c.query(ctx, parameters, "v1", "rollcall", "apps")
	if err == nil {
		err = a.decode(&all)
	}
	if err != nil {
		return nil, fmt.Errorf("list the instances: %w", err)
	}
	return all, nil
}

// RemoveMember takes a node out of the cluster for good: its data directory is of no use any more,
// its name is free for a node with an empty one. ErrUnknownMember: there is none of that name.
func (c *Client) RemoveMember(ctx context.Context, name string) error {
	a, err := c.do(ctx, call{method: http.MethodDelete, path: []string{"v1", "rollcall", "members", name}, write: true})
	if err == nil {
		err = removal(a)
	}
	if err != nil {
		return fmt.Errorf("remove node %q: %w", name, err)
	}
	return nil
}

func removal(a answer) error {
	switch {
	case a.status == http.StatusNotFound && a.repeated:
		return nil // an earlier try did it, as far as anybody can tell, and it is gone
	case a.status == http.StatusNotFound:
		return ErrUnknownMember
	}
	if refusal := a.refusal(); refusal != nil {
		return refusal
	}
	return nil
}

// PruneOptions say what Prune removes.
type PruneOptions struct {
	Service string // of one service only; "": of all
	DryRun  bool   // remove nothing, say what would be removed
}

// Prune removes the instances that are not passing, which are those whose status is not UP, and returns
// them. Those in quarantine stay: an operator decided what becomes of them.
func (c *Client) Prune(ctx context.Context, o PruneOptions) ([]Pruned, error) {
	q := url.Values{"not-passing": {""}}
	if o.Service != "" {
		q.Set("service", o.Service)
	}
	if o.DryRun {
		q.Set("dry-run", "")
	}
	var all []Pruned
	a, err := c.do(ctx, call{method: http.MethodPost, path: []string{"v1", "rollcall", "prune"}, query: q, write: !o.DryRun})
	if err == nil {
		err = a.decode(&all)
	}
	if err != nil {
		return nil, fmt.Errorf("prune: %w", err)
	}
	return all, nil
}

// Quarantined returns the instances in quarantine, of one application or, with "", of all, sorted by
// application and id. Explain says who put one there, and why.
func (c *Client) Quarantined(ctx context.Context, app string) ([]Instance, error) {
	parameters := url.Values{"quarantined": {"true"}}
	if app != "" {
		parameters.Set("app", app)
	}
	var all []Instance
	a, err := c.query(ctx, parameters, "v1", "rollcall", "apps")
	if err == nil {
		err = a.decode(&all)
	}
	if err != nil {
		return nil, fmt.Errorf("read the quarantined instances: %w", err)
	}
	return slices.DeleteFunc(all, func(i Instance) bool { return i.QuarantinedUntil == 0 }), nil
}

// Settings returns what the present leader brought (GET /v1/rollcall/settings), which may differ from
// a node's own configuration.
func (c *Client) Settings(ctx context.Context) (Settings, error) {
	var s Settings
	if err := c.readJSON(ctx, &s, "v1", "rollcall", "settings"); err != nil {
		return nil, fmt.Errorf("read the cluster's settings: %w", err)
	}
	return s, nil
}

// Status asks one node about the cluster.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	err := c.readJSON(ctx, &s, "v1", "rollcall", "status")
	return s, err
}

// Events returns what happened lately.
func (c *Client) Events(ctx context.Context) (Events, error) {
	var e Events
	err := c.readJSON(ctx, &e, "v1", "rollcall", "events")
	return e, err
}

// readJSON reads one document of Rollcall's own API.
func (c *Client) readJSON(ctx context.Context, into any, path ...string) error {
	a, err := c.read(ctx, path...)
	if err != nil {
		return err
	}
	return a.decode(into)
}

// decode reads a document of Rollcall's own API, or says why there is none.
func (a answer) decode(into any) error {
	if refusal := a.refusal(); refusal != nil {
		return refusal
	}
	if err := json.Unmarshal(a.body, into); err != nil {
		return fmt.Errorf("answer of %s: %w", a.server, err)
	}
	return nil
}

// SelfPreservation returns whether evictions are withheld, and why.
func (c *Client) SelfPreservation(ctx context.Context) (SelfPreservation, error) {
	var p SelfPreservation
	err := c.readJSON(ctx, &p, preservationPath()...)
	return p, err
}

// ReleaseSelfPreservation lets evictions go on although too few leases are fresh, until that was not
// so once. A StatusError of 409: it is off or released already.
func (c *Client) ReleaseSelfPreservation(ctx context.Context, by registry.Act) (SelfPreservation, error) {
	return c.preserve(ctx, "release", by, 0)
}

// HoldSelfPreservation withholds every eviction for a time (1 s to 168 h), whatever the numbers say.
func (c *Client) HoldSelfPreservation(ctx context.Context, by registry.Act, d time.Duration) (SelfPreservation, error) {
	return c.preserve(ctx, "hold", by, d)
}

// preserve performs an operator's act and returns what holds afterwards.
func (c *Client) preserve(ctx context.Context, act string, by registry.Act, d time.Duration) (SelfPreservation, error) {
	var p SelfPreservation
	a, err := c.do(ctx, call{method: http.MethodPost, path: append(preservationPath(), act), query: actQuery(by, d), write: true})
	if err == nil && a.status == http.StatusConflict && a.repeated {
		return c.SelfPreservation(ctx) // an earlier try did it, as far as anybody can tell
	}
	if err == nil {
		err = a.decode(&p)
	}
	if err != nil {
		return SelfPreservation{}, fmt.Errorf("%s self-preservation: %w", act, err)
	}
	return p, nil
}

func preservationPath() []string { return []string{"v1", "rollcall", "self-preservation"} }

// comparePatience bounds one try of a comparison with a peer; a server gives it 2 minutes.
const comparePatience = 3 * time.Minute

// Peers says how replication to other servers is. A server that replicates nothing refuses with a
// StatusError of 501.
func (c *Client) Peers(ctx context.Context) (Peers, error) {
	var p Peers
	if err := c.readJSON(ctx, &p, "v1", "rollcall", "peers"); err != nil {
		return Peers{}, fmt.Errorf("read the peers: %w", err)
	}
	return p, nil
}

// PeerDiff compares with a peer and changes nothing. ErrUnknownPeer: there is none of that name.
func (c *Client) PeerDiff(ctx context.Context, name string) (PeerDiff, error) {
	return c.compare(ctx, "compare with", name, call{method: http.MethodGet, path: peerPath(name, "diff")})
}

// RepairPeer compares with a peer and has the difference sent; a Eureka server, which cannot be
// compared with, is sent everything. It returns when what differs is queued. ErrUnknownPeer: there is
// none of that name.
func (c *Client) RepairPeer(ctx context.Context, name string) (PeerDiff, error) {
	return c.compare(ctx, "repair", name, call{method: http.MethodPost, path: peerPath(name, "repair"), write: true})
}

func (c *Client) compare(ctx context.Context, operation, name string, q call) (PeerDiff, error) {
	q.patience = comparePatience
	var d PeerDiff
	a, err := c.do(ctx, q)
	if err == nil {
		err = a.aboutPeer()
	}
	if err == nil {
		err = a.decode(&d)
	}
	if err != nil {
		return PeerDiff{}, fmt.Errorf("%s peer %q: %w", operation, name, err)
	}
	return d, nil
}

// PausePeer stops the sending to a peer until ResumePeer, whichever node sends. by is as of Override.
// ErrUnknownPeer: there is none of that name.
func (c *Client) PausePeer(ctx context.Context, name string, by registry.Act) error {
	return c.setPeer(ctx, "pause", name, by)
}

// ResumePeer lets the sending to a peer go on, from where it was paused. by is as of Override.
// ErrUnknownPeer: there is none of that name.
func (c *Client) ResumePeer(ctx context.Context, name string, by registry.Act) error {
	return c.setPeer(ctx, "resume", name, by)
}

func (c *Client) setPeer(ctx context.Context, act, name string, by registry.Act) error {
	a, err := c.do(ctx, call{method: http.MethodPost, path: peerPath(name, act), query: actQuery(by, 0), write: true})
	if err == nil {
		err = a.aboutPeer()
	}
	if err != nil {
		return fmt.Errorf("%s peer %q: %w", act, name, err)
	}
	return nil
}

// ForgetSender has what is known of a sender's clock forgotten, so that its next message counts as its first: by
// the whole cluster, or, without consensus, by the server that answers. by is as of Override.
// ErrUnknownSender: none of that name was heard.
func (c *Client) ForgetSender(ctx context.Context, sender string, by registry.Act) error {
	err := c.setPeer(ctx, "forget", sender, by)
	if errors.Is(err, ErrUnknownPeer) {
		return fmt.Errorf("forget sender %q: %w", sender, ErrUnknownSender)
	}
	return err
}

// aboutPeer turns an answer that is no success into an error.
func (a answer) aboutPeer() error {
	if a.status == http.StatusNotFound {
		return ErrUnknownPeer
	}
	if refusal := a.refusal(); refusal != nil {
		return refusal
	}
	return nil
}

func peerPath(name, resource string) []string {
	return []string{"v1", "rollcall", "peers", name, resource}
}
