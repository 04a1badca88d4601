package ownroutes

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/web"
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
func (c call) removeMember() (any, error) {
	if c.config.Members == nil {
		return nil, &web.Refusal{Status: http.StatusNotImplemented, Text: "this node takes no part in a cluster with members; ask a node in mode cp"}
	}
	if c.IgnoreBody(); c.Err != nil {
		return nil, c.Err
	}
	name := c.Segment("name")
	if err := c.config.Members.Remove(c.R.Context(), name); err != nil {
		return nil, memberRefusal(name, web.WriteError(err))
	}
	c.Log.Info("a node was removed", "removed", name, "by", c.R.RemoteAddr)
	return api.RemovedMember{Removed: name}, nil
}

// memberRefusal words what only a change of members can meet.
func memberRefusal(name string, err error) error {
	switch {
	case errors.Is(err, registry.ErrUnknownOutcome):
		return err
	case errors.Is(err, ErrUnknownMember):
		text := fmt.Sprintf("the cluster has no node %q; GET /v1/rollcall/status lists its nodes", name)
		return &web.Refusal{Status: http.StatusNotFound, Text: text, Cause: err}
	case errors.Is(err, ErrMembership):
		return &web.Refusal{Status: http.StatusServiceUnavailable, Text: err.Error(), Cause: err}
	case errors.Is(err, registry.ErrNoLeader):
		text := fmt.Sprintf("node %q was not removed: no leader could be reached; try again when a majority of the nodes is up", name)
		return &web.Refusal{Status: http.StatusServiceUnavailable, Text: text, Retry: true, Cause: err}
	}
	return err
}
