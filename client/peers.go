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

// Peers is the replication of a cluster to other servers, as one of its nodes sees it
// (GET /v1/rollcall/peers).
type Peers struct {
	Datacenter string `json:"datacenter"` // the cluster's own
	Node       string `json:"node"`       // who answered
	Sender     string `json:"sender"`     // the node that sends; empty: every node does
	Peers      []Peer `json:"peers"`      // in the order of the configuration

	Receiver string       `json:"receiver"` // the node that was asked
	Senders  []PeerSender `json:"senders"`  // whose clocks it knows, by datacenter and name
}

// PeerSender is a server that sent to the cluster: a node without consensus, or another cluster. Messages are
// those that Peers.Receiver received since it started. Spans are ms.
type PeerSender struct {
	Sender     string `json:"sender"`
	Datacenter string `json:"datacenter"`
	HeardMS    int64  `json:"heard_ms"` // of lease clock, since its clock was noted
	LateMS     int64  `json:"late_ms"`  // by which its last message was late
	Late       uint64 `json:"late"`     // messages that were more than a minute late
	Refused    uint64 `json:"refused"`  // messages that were refused because its clock cannot be right
}

// Peer is one server, or one datacenter, that is replicated with. Times are ms since the epoch, spans
// ms.
type Peer struct {
	Name   string   `json:"name"`
	Kind   string   `json:"kind"`             // node, datacenter or eureka
	URLs   []string `json:"urls"`             // without user info
	URL    string   `json:"url"`              // the one in use
	State  string   `json:"state"`            // ok, failing, paused or idle (another node sends)
	Reason string   `json:"reason,omitempty"` // of the state, in a sentence

	Cursor     string `json:"cursor,omitempty"` // everything up to it is known to the peer
	LagChanges uint64 `json:"lag_changes"`      // changes that the peer does not know yet
	LagMS      int64  `json:"lag_ms"`           // age of the oldest of them
	Pending    int    `json:"pending"`          // tasks queued
	InFlight   int    `json:"in_flight"`

	LastSuccess int64      `json:"last_success,omitempty"`
	LastError   *PeerError `json:"last_error,omitempty"`

	Sent       map[string]uint64 `json:"sent"`    // by fact: register, heartbeat, cancel, override
	Dropped    map[string]uint64 `json:"dropped"` // by reason: expired, overflow, permanent, stopped
	Repairs    map[string]uint64 `json:"repairs"` // by reason: too-old, digest, asked
	LastRepair *PeerRepair       `json:"last_repair,omitempty"`

	Incoming *Incoming `json:"incoming,omitempty"` // nil: of a node of the own datacenter
}

// PeerError is a transmission to a peer that failed.
type PeerError struct {
	At   int64  `json:"at"`
	Text string `json:"text"`
}

// PeerRepair is the last repair of a peer that found something.
type PeerRepair struct {
	At      int64  `json:"at"`
	Reason  string `json:"reason"`
	Sent    int    `json:"sent"`    // instances that the peer lacked or had older
	Removed int    `json:"removed"` // instances that the peer had and should not have
}

// Incoming is what comes from another datacenter or a Eureka server.
type Incoming struct {
	Instances int    `json:"instances"`          // that belong to it
	HeardMS   *int64 `json:"heard_ms,omitempty"` // ms of lease clock since it was heard; nil: never
	Cut       bool   `json:"cut"`                // its link counts as cut
	OnCut     string `json:"on_cut"`             // keep, keep for 1h0m0s, expire
	Kept      int    `json:"kept,omitempty"`     // of Instances, those whose time has passed
}

// PeerDiff is what a peer has otherwise than it should.
type PeerDiff struct {
	Apps    int          `json:"apps"`    // applications with a difference
	Missing int          `json:"missing"` // instances that the peer lacks or has older
	Extra   int          `json:"extra"`   // instances that the peer has and should not have
	Items   []DiffedItem `json:"items"`   // at most 1000
}

// DiffedItem is one instance that differs.
type DiffedItem struct {
	App  string `json:"app"`
	ID   string `json:"id"`
	What string `json:"what"` // missing, older, newer, different or extra: what the peer's copy is
}

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
