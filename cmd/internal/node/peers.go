package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/own"
	"github.com/seed-20419f34/rollcall/internal/certfiles"
	"github.com/seed-20419f34/rollcall/internal/world"
	"github.com/seed-20419f34/rollcall/replication"
	"github.com/seed-20419f34/rollcall/replication/link"
	"github.com/seed-20419f34/rollcall/store/local"
)

// peers serves a node's replicator as own.Peers. In mode cp only the leader sends to the peers; the other nodes ask
// it for what only the sending node knows.
type peers struct {
	world            *world.World
	datacenter, node string
	replicator       *replication.Replicator
	// certificates that peers are shown, and authorities that theirs must have; may be nil
	files *certfiles.Source
	// configured returns the peers that settings name, without this node.
	configured func(*config.Config) []link.PeerConfig
	// call sends a call to the node that sends to the peers, and returns its reply.
	call func(ctx context.Context, call []byte) ([]byte, error)
	// authFile returns the digest of auth.file, or link.NoAuthFile.
	authFile func() string
	// refusals returns the operations that panicked here; nil in mode cp, where the node stops.
	refusals func() []local.Refusal
	// sender returns the node that sends to the peers, or "" if every node sends, or it is not known.
	sender func() string
}

// send sends to the peers until ctx ends.
func (p *peers) send(ctx context.Context, log *slog.Logger) {
	if err := p.replicator.Run(ctx); err != nil && ctx.Err() == nil {
		log.Error("the replication to peers has ended", "err", err)
	}
}

// Levels implements own.Peers.
func (p *peers) Levels() string { return p.replicator.Reads() }

// Waits implements own.Peers.
func (p *peers) Waits() string { return p.replicator.Waits() }

// AuthFile implements own.Peers.
func (p *peers) AuthFile() string { return p.authFile() }

// Receive implements own.Peers, as the next three do.
func (p *peers) Receive(ctx context.Context, message []byte) ([]byte, error) {
	reply, err := p.replicator.Receive(ctx, message)
	return reply, peerRefusal(err)
}

// Compare implements own.Peers.
func (p *peers) Compare(ctx context.Context, message []byte) ([]byte, error) {
	reply, err := p.replicator.Compare(ctx, message)
	return reply, peerRefusal(err)
}

// State implements own.Peers.
func (p *peers) State(ctx context.Context, datacenter string, w io.Writer) error {
	err := p.replicator.State(ctx, datacenter, w)
	if errors.Is(err, registry.ErrNoLeader) {
		return &own.PeerRefusal{Status: http.StatusServiceUnavailable, Text: "this node is not ready itself; copy from another one, or later"}
	}
	return peerRefusal(err)
}

// Cut implements own.Peers.
func (p *peers) Cut(server string) time.Duration { return p.replicator.Cut(server) }

// call asks the node that sends for something.
type call struct {
	Do   string `json:"do"` // status, diff or repair
	Peer string `json:"peer,omitempty"`
}

// reply answers a call. Errors travel as their HTTP statuses.
type reply struct {
	Body   json.RawMessage `json:"body,omitempty"`
	Status int             `json:"status,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// Status implements own.Peers. If the sending node cannot be asked, it returns what this node knows. Each node adds
// what it has itself received and refused.
func (p *peers) Status(ctx context.Context) (api.Peers, error) {
	body, err := p.callSender(ctx, call{Do: "status"})
	if _, refused := errors.AsType[*own.PeerRefusal](err); refused {
		return api.Peers{}, err
	}
	var s api.Peers
	if err != nil {
		s = p.status()
	} else if s, err = documentOf[api.Peers](body); err != nil {
		return s, err
	}
	s.Receiver, s.Senders, s.Refused = p.node, p.replicator.Senders(), p.replicator.Refusals().List()
	for i := range s.Refused {
		if f := &s.Refused[i]; f.App != "" {
			f.What += " of " + registry.NewKey(f.App, f.ID).String()
		}
	}
	if p.refusals != nil {
		for _, f := range p.refusals() {
			s.Refused = append(s.Refused, api.RefusedItem{
				App: f.Key.App, ID: f.Key.ID, What: f.Operation, From: cmp.Or(f.Server, f.Origin.DC),
				Since: p.world.Wall(f.First).UnixMilli(), Last: p.world.Wall(f.Last).UnixMilli(), Times: f.Times, Text: "panic: " + f.Cause,
			})
		}
	}
	return s, nil
}

// Diff implements own.Peers.
func (p *peers) Diff(ctx context.Context, peer string) (api.PeerDiff, error) {
	return p.compare(ctx, call{Do: "diff", Peer: peer})
}

// Repair implements own.Peers.
func (p *peers) Repair(ctx context.Context, peer string) (api.PeerDiff, error) {
	return p.compare(ctx, call{Do: "repair", Peer: peer})
}

func (p *peers) compare(ctx context.Context, c call) (api.PeerDiff, error) {
	body, err := p.callSender(ctx, c)
	if err != nil {
		return api.PeerDiff{}, err
	}
	return documentOf[api.PeerDiff](body)
}

// documentOf decodes the body of a reply, or a reply.
func documentOf[T any](body []byte) (document T, err error) {
	if err := json.Unmarshal(body, &document); err != nil {
		return document, fmt.Errorf("reply of the node that sends: %w", err)
	}
	return document, nil
}

// Pause implements own.Peers. A pause is part of the state, so any node can set it.
func (p *peers) Pause(ctx context.Context, peer string, paused bool, by registry.Act) error {
	return peerRefusal(p.replicator.Pause(ctx, peer, paused, by))
}

// Forget implements own.Peers.
func (p *peers) Forget(ctx context.Context, sender string, by registry.Act) error {
	return peerRefusal(p.replicator.Forget(ctx, sender, by))
}

// callSender sends a call to the node that sends, and returns the body of the reply.
func (p *peers) callSender(ctx context.Context, c call) (json.RawMessage, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	encoded, err := p.call(ctx, text)
	if err != nil {
		return nil, err
	}
	r, err := documentOf[reply](encoded)
	if err != nil {
		return nil, err
	}
	if r.Status != 0 {
		return nil, &own.PeerRefusal{Status: r.Status, Text: r.Error}
	}
	return r.Body, nil
}

// reply replies to a call, on the node that sends.
func (p *peers) reply(ctx context.Context, text []byte) ([]byte, error) {
	var c call
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("call about peers: %w", err)
	}
	var body any
	var err error
	switch c.Do {
	case "diff":
		body, err = p.replicator.Diff(ctx, c.Peer)
	case "repair":
		body, err = p.replicator.Repair(ctx, c.Peer)
	default:
		body = p.status()
	}
	if err == nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		return json.Marshal(reply{Body: encoded})
	}
	var refused *own.PeerRefusal
	if !errors.As(peerRefusal(err), &refused) {
		refused = &own.PeerRefusal{Status: http.StatusServiceUnavailable, Text: err.Error()}
	}
	return json.Marshal(reply{Status: refused.Status, Error: refused.Text})
}

// status returns how far this node is with what it sends.
func (p *peers) status() api.Peers {
	return api.Peers{Datacenter: p.datacenter, Node: p.node, Sender: p.sender(), Peers: p.replicator.Status()}
}

// peerRefusal turns an error of replication into a refusal with an HTTP status. Errors of registry.Service stay as
// they are.
func peerRefusal(err error) error {
	statuses := []struct {
		of     error
		status int
	}{
		{replication.ErrNewer, http.StatusNotImplemented}, // before the next, which it wraps
		{replication.ErrMalformed, http.StatusBadRequest},
		{replication.ErrStranger, http.StatusForbidden},
		{replication.ErrOtherPrincipal, http.StatusForbidden},
		{replication.ErrAhead, http.StatusConflict},
		{replication.ErrUnknownPeer, http.StatusNotFound},
		{replication.ErrUnknownSender, http.StatusNotFound},
		{replication.ErrNoDigests, http.StatusConflict},
		{replication.ErrNotSending, http.StatusServiceUnavailable},
	}
	for _, s := range statuses {
		if errors.Is(err, s.of) {
			return &own.PeerRefusal{Status: s.status, Text: err.Error()}
		}
	}
	return err
}
