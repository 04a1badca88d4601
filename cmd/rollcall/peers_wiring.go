package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/replication"
)

// peers shows a node's replicator to package httpd. What only the sending node knows, the others ask
// of it.
type peers struct {
	datacenter, node string
	replicator       *replication.Replicator
	// ask has the node that sends answer a question.
	ask func(ctx context.Context, question []byte) ([]byte, error)
	// sends is the node that sends; "": every node, or it is not known.
	sends func() string
}

// send sends to the peers until ctx ends.
func (p *peers) send(ctx context.Context, log *slog.Logger) {
	if err := p.replicator.Run(ctx); err != nil && ctx.Err() == nil {
		log.Error("the replication to peers has ended", "err", err)
	}
}

func (p *peers) spares(dc string, heard time.Duration, ok bool) bool {
	return p.replicator.Spares(dc, heard, ok)
}

func (p *peers) age() time.Duration { return p.replicator.Age() }

// Receive implements httpd.Peers, as the next three do.
func (p *peers) Receive(ctx context.Context, message []byte) ([]byte, error) {
	answer, err := p.replicator.Receive(ctx, message)
	return answer, peerRefusal(err)
}

// Compare implements httpd.Peers.
func (p *peers) Compare(ctx context.Context, message []byte) ([]byte, error) {
	answer, err := p.replicator.Compare(ctx, message)
	return answer, peerRefusal(err)
}

// State implements httpd.Peers.
func (p *peers) State(ctx context.Context, datacenter string, w io.Writer) error {
	err := p.replicator.State(ctx, datacenter, w)
	if errors.Is(err, registry.ErrNoLeader) {
		return &httpd.PeerRefusal{Status: http.StatusServiceUnavailable, Text: "this node is not ready itself; copy from another one, or later"}
	}
	return peerRefusal(err)
}

// Cut implements httpd.Peers.
func (p *peers) Cut(server string) time.Duration { return p.replicator.Cut(server) }

// question is what a node asks the one that sends.
type question struct {
	Do   string `json:"do"` // status, diff or repair
	Peer string `json:"peer,omitempty"`
}

// reply is the answer. Errors travel as the status that they have in HTTP.
type reply struct {
	Body   json.RawMessage `json:"body,omitempty"`
	Status int             `json:"status,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// Status implements httpd.Peers. If the node that sends cannot be asked, this one tells what it knows. Of what
// was received each node tells for itself.
func (p *peers) Status(ctx context.Context) (api.Peers, error) {
	var s api.Peers
	body, err := p.put(ctx, question{Do: "status"})
	var refused *httpd.PeerRefusal
	switch {
	case errors.As(err, &refused):
		return s, err
	case err != nil:
		s = p.sent()
	default:
		if s, err = documentOf[api.Peers](body); err != nil {
			return s, err
		}
	}
	s.Receiver, s.Senders = p.node, p.replicator.Senders()
	return s, nil
}

// Diff implements httpd.Peers.
func (p *peers) Diff(ctx context.Context, peer string) (api.PeerDiff, error) {
	return p.compare(ctx, question{Do: "diff", Peer: peer})
}

// Repair implements httpd.Peers.
func (p *peers) Repair(ctx context.Context, peer string) (api.PeerDiff, error) {
	return p.compare(ctx, question{Do: "repair", Peer: peer})
}

func (p *peers) compare(ctx context.Context, q question) (api.PeerDiff, error) {
	body, err := p.put(ctx, q)
	if err != nil {
		return api.PeerDiff{}, err
	}
	return documentOf[api.PeerDiff](body)
}

// documentOf decodes what the node that sends says.
func documentOf[T any](answer []byte) (document T, err error) {
	if err := json.Unmarshal(answer, &document); err != nil {
		return document, fmt.Errorf("answer of the node that sends: %w", err)
	}
	return document, nil
}

// Pause implements httpd.Peers: it is a fact of the state, whoever sends.
func (p *peers) Pause(ctx context.Context, peer string, paused bool, by registry.Act) error {
	return peerRefusal(p.replicator.Pause(ctx, peer, paused, by))
}

// Forget implements httpd.Peers.
func (p *peers) Forget(ctx context.Context, sender string, by registry.Act) error {
	return peerRefusal(p.replicator.Forget(ctx, sender, by))
}

// put has a question answered by the node that sends.
func (p *peers) put(ctx context.Context, q question) (json.RawMessage, error) {
	text, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	answer, err := p.ask(ctx, text)
	if err != nil {
		return nil, err
	}
	r, err := documentOf[reply](answer)
	if err != nil {
		return nil, err
	}
	if r.Status != 0 {
		return nil, &httpd.PeerRefusal{Status: r.Status, Text: r.Error}
	}
	return r.Body, nil
}

// answer answers a question on the node that sends.
func (p *peers) answer(ctx context.Context, text []byte) ([]byte, error) {
	var q question
	if err := json.Unmarshal(text, &q); err != nil {
		return nil, fmt.Errorf("question about peers: %w", err)
	}
	body, err := p.look(ctx, q)
	if err == nil {
		return json.Marshal(reply{Body: body})
	}
	var refused *httpd.PeerRefusal
	if !errors.As(peerRefusal(err), &refused) {
		refused = &httpd.PeerRefusal{Status: http.StatusServiceUnavailable, Text: err.Error()}
	}
	return json.Marshal(reply{Status: refused.Status, Error: refused.Text})
}

func (p *peers) look(ctx context.Context, q question) (json.RawMessage, error) {
	switch q.Do {
	case "diff":
		return marshalled(p.replicator.Diff(ctx, q.Peer))
	case "repair":
		return marshalled(p.replicator.Repair(ctx, q.Peer))
	}
	return json.Marshal(p.sent())
}

// sent is how far this node is with what it sends.
func (p *peers) sent() api.Peers {
	return api.Peers{Datacenter: p.datacenter, Node: p.node, Sender: p.sends(), Peers: p.replicator.Status()}
}

func marshalled(d api.PeerDiff, err error) (json.RawMessage, error) {
	if err != nil {
		return nil, err
	}
	return json.Marshal(d)
}

// peerRefusal is an error of replication in the terms of HTTP; those of registry.Service stay as they
// are.
func peerRefusal(err error) error {
	statuses := []struct {
		of     error
		status int
	}{
		{replication.ErrMalformed, http.StatusBadRequest},
		{replication.ErrStranger, http.StatusForbidden},
		{replication.ErrAhead, http.StatusConflict},
		{replication.ErrUnknownPeer, http.StatusNotFound},
		{replication.ErrUnknownSender, http.StatusNotFound},
		{replication.ErrNoDigests, http.StatusConflict},
		{replication.ErrNotSending, http.StatusServiceUnavailable},
	}
	for _, s := range statuses {
		if errors.Is(err, s.of) {
			return &httpd.PeerRefusal{Status: s.status, Text: err.Error()}
		}
	}
	return err
}
