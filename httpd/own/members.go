package own

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// Members changes which nodes the cluster has, and compares them.
type Members interface {
	// Verify compares the states of all nodes. It ends within 2 s.
	Verify(ctx context.Context) api.Verification
	// Remove takes the named node out of the cluster for good. It ends within the time of a write, 4 s. Errors:
	// ErrUnknownMember, ErrMembership, registry.ErrNoLeader (nothing was done), registry.ErrUnknownOutcome.
	Remove(ctx context.Context, name string) error
	// Transfer hands leadership over to the named node, or, with "", to the most up-to-date voter, and returns its
	// name. Times and errors are the same as for Remove.
	Transfer(ctx context.Context, name string) (to string, err error)
}

// Errors of Members.
var (
	// ErrUnknownMember means that the cluster has no node of that name.
	ErrUnknownMember = errors.New("no such node")
	// ErrMembership means that the change was refused and nothing was done. The text of the error, which says why, is
	// shown to the caller.
	ErrMembership = errors.New("membership was not changed")
)

var errNoMembers = &web.Refusal{Status: http.StatusNotImplemented, Text: "this node takes no part in a cluster with members; ask a node in mode cp"}

// verify is GET /v1/rollcall/verify.
func (c call) verify() (any, error) {
	if c.config.Members == nil {
		return nil, &web.Refusal{Status: http.StatusNotImplemented, Text: "nodes without consensus differ rightly, and are not compared here; ask a node in mode cp"}
	}
	return c.config.Members.Verify(c.R.Context()), nil
}

// removeMember is DELETE /v1/rollcall/members/{name}, with the reason for it.
func (c call) removeMember() (any, error) {
	if c.config.Members == nil {
		return nil, errNoMembers
	}
	by := c.By()
	c.IgnoreBody()
	if err := c.AllowedByNewest(); err != nil {
		return nil, err
	}
	name := c.Segment("name")
	err := c.config.Members.Remove(c.R.Context(), name)
	if err != nil {
		err = memberRefusal(name, "was not removed", web.WriteError(err))
	}
	if c.Did("member_remove", name, by, err) != nil {
		return nil, err
	}
	c.Log.Warn("an operator removed a node", "removed", name, "by", c.R.RemoteAddr, "author", by.Author, "reason", by.Reason)
	return api.RemovedMember{Removed: name}, nil
}

// transferLeadership is POST /v1/rollcall/transfer; the parameter to names the new leader.
func (c call) transferLeadership() (any, error) {
	if c.config.Members == nil {
		return nil, errNoMembers
	}
	name := c.Text("to")
	if err := c.AllowedByNewest(); err != nil {
		return nil, err
	}
	to, err := c.config.Members.Transfer(c.R.Context(), name)
	if err != nil {
		err = memberRefusal(name, "does not lead", web.WriteError(err))
	}
	if c.Did("leadership_transfer", cmp.Or(to, name), registry.Act{}, err) != nil {
		return nil, err
	}
	c.Log.Info("an operator had leadership handed over", "to", to, "by", c.R.RemoteAddr)
	return api.Transferred{Leader: to}, nil
}

// memberRefusal words the errors that only a change of members can meet; not says what was not done.
func memberRefusal(name, not string, err error) error {
	switch {
	case errors.Is(err, registry.ErrUnknownOutcome):
		return err
	case errors.Is(err, ErrUnknownMember):
		text := fmt.Sprintf("the cluster has no node %q; GET /v1/rollcall/status lists its nodes", name)
		return &web.Refusal{Status: http.StatusNotFound, Text: text, Cause: err}
	case errors.Is(err, ErrMembership):
		return &web.Refusal{Status: http.StatusServiceUnavailable, Text: err.Error(), Cause: err}
	case errors.Is(err, registry.ErrNoLeader):
		text := fmt.Sprintf("node %q %s: no leader could be reached; try again when a majority of the nodes is up", name, not)
		return &web.Refusal{Status: http.StatusServiceUnavailable, Text: text, Retry: true, Cause: err}
	}
	return err
}
