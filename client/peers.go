package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

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
