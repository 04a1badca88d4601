package httpd

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

// Members changes which nodes the cluster has.
type Members interface {
	// Remove takes the node of a name out of the cluster for good. It ends within the time of a
	// write, 4 s. Errors: ErrUnknownMember, ErrMembership, registry.ErrNoLeader (nothing was done),
	// registry.ErrUnknownOutcome.
	Remove(ctx context.Context, name string) error
}

// Errors of Members.
var (
	// ErrUnknownMember: the cluster has no node of that name.
	ErrUnknownMember = errors.New("no such node")
	// ErrMembership: the change was refused and nothing was done. The text of the error, which says
	// why, is shown to the caller.
	ErrMembership = errors.New("membership was not changed")
)

// removeMember is DELETE /v1/rollcall/members/{name}.
func (c *call) removeMember() (any, error) {
	if c.config.Members == nil {
		return nil, &refusal{status: http.StatusNotImplemented, text: "this node takes no part in a cluster with members; ask a node in mode cp"}
	}
	if c.noBody(); c.err != nil {
		return nil, c.err
	}
	name := c.segment("name")
	if err := c.config.Members.Remove(c.r.Context(), name); err != nil {
		return nil, memberRefusal(name, writeOutcome(err))
	}
	c.config.Log.Info("a node was removed", "removed", name, "by", c.r.RemoteAddr)
	return api.RemovedMember{Removed: name}, nil
}

// memberRefusal words what only a change of members can meet.
func memberRefusal(name string, err error) error {
	switch {
	case errors.Is(err, registry.ErrUnknownOutcome):
		return err
	case errors.Is(err, ErrUnknownMember):
		text := fmt.Sprintf("the cluster has no node %q; GET /v1/rollcall/status lists its nodes", name)
		return &refusal{status: http.StatusNotFound, text: text, cause: err}
	case errors.Is(err, ErrMembership):
		return &refusal{status: http.StatusServiceUnavailable, text: err.Error(), cause: err}
	case errors.Is(err, registry.ErrNoLeader):
		text := fmt.Sprintf("node %q was not removed: no leader could be reached; try again when a majority of the nodes is up", name)
		return &refusal{status: http.StatusServiceUnavailable, text: text, retry: true, cause: err}
	}
	return err
}

// Cluster tells what this node knows about the nodes of its cluster.
type Cluster interface {
	// Status answers from memory where it can; the context bounds what it must ask of others. What
	// it cannot learn in time it leaves empty. The Handler fills in Node, Datacenter, Version, Ready and Quorum itself.
	Status(ctx context.Context) api.Status
}
