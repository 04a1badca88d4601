package web

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// A decision lasts as long as its basis: the tables, the mode included, which every change replaces, and the
// credential, which may expire. Two things rely on it: heartbeats on one connection, which are not judged again while
// it lasts, and calls that wait, which end with it.

// Standing is the decision about the heartbeats on one connection while they have the same credential. The zero
// Standing belongs to a connection without a decision; a nil one never gets one. For one goroutine.
type Standing struct {
	by   tables
	ends int64           // when the credential expires, ms since the epoch; 0 means never
	ctx  context.Context // context of the heartbeats; nil without a decision
	app  string          // the last one that a heartbeat was allowed for
}

// renews reports whether an earlier decision allows a heartbeat. For the same application it only compares.
func (n *Node) renews(s *Standing, by tables, app string) bool {
	switch {
	case s == nil || s.ctx == nil || s.by != by || s.ends != 0 && n.World.Now().UnixMilli() >= s.ends:
		return false
	case s.app == app:
		return true
	case !n.allows(principalOf(s.ctx), registry.ToRegister(app)):
		return false
	}
	s.app = app
	return true
}

// judgeEvery is how often waiting calls are judged again. A revocation must take effect within a second.
const judgeEvery = 250 * time.Millisecond

// held holds a node's waiting calls.
type held struct {
	node *Node

	mu    sync.Mutex // guards the fields below
	calls map[*heldCall]struct{}
	by    tables // that judged them; the zero value if they differ between calls
	ends  int64  // when the first of their credentials expires, ms since the epoch; 0 means never
	looks bool   // a timer that looks at them is running
}

// heldCall is a waiting call.
type heldCall struct {
	asked     context.Context // of the request
	principal *Principal      // nil if anonymous
	needs     []access.Need
	end       context.CancelCauseFunc
}

// Hold takes one of the watchers' places. ctx is the request's; it also ends at shutdown, and when the caller may no
// longer make the call, see EndedBy; done gives the place back. Hold drops the rest of the body, which would stay in
// memory as long as the call waits: over HTTP/2 up to 1 MiB per connection, which no limit counts.
func (c *Call) Hold() (ctx context.Context, done func(), err error) {
	if err := c.ignoreRest(); err != nil {
		return nil, nil, err
	}
	ctx, end, release, err := c.node.Watches.admit(c.R)
	h := &c.node.held
	if a := c.node.access; err != nil || a.Table == nil && a.File == nil {
		return ctx, release, err // nothing ever changes
	}
	call := &heldCall{c.R.Context(), c.principal, c.needs, end}
	h.join(call, c.by)
	return ctx, func() {
		h.leave(call)
		release()
	}, nil
}

// EndedBy returns the refusal that ended a context of Hold, or nil.
func EndedBy(ctx context.Context) error {
	if refusal, ok := errors.AsType[*Refusal](context.Cause(ctx)); ok {
		return refusal
	}
	return nil
}

func (h *held) join(c *heldCall, by tables) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls == nil {
		h.calls = make(map[*heldCall]struct{})
	}
	if len(h.calls) == 0 {
		h.by, h.ends = by, 0
	}
	h.calls[c] = struct{}{}
	if h.by != by {
		h.by = tables{}
	}
	h.ends = sooner(h.ends, c.principal.lasts())
	if !h.looks {
		h.looks = true
		time.AfterFunc(judgeEvery, h.look)
	}
}

func (h *held) leave(c *heldCall) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.calls, c)
}

// look judges the calls again if anything has changed, for as long as any are waiting.
func (h *held) look() {
	now := h.node.access.tables()
	due := h.due(now, h.node.World.Now().UnixMilli())
	for _, c := range due {
		if err := h.node.judge(c); err != nil {
			c.end(err)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range due { // a rotated secret now has an end
		h.ends = sooner(h.ends, c.principal.lasts())
	}
	if h.looks = len(h.calls) > 0; h.looks {
		time.AfterFunc(judgeEvery, h.look)
	}
}

// due returns the calls that were judged by other tables, or whose credential has expired at wall (ms since the
// epoch).
func (h *held) due(now tables, wall int64) (all []*heldCall) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.by == now && (h.ends == 0 || wall < h.ends) {
		return nil
	}
	h.by, h.ends = now, 0
	return slices.Collect(maps.Keys(h.calls))
}

// judge decides again whether a caller may go on.
func (n *Node) judge(c *heldCall) error {
	p, err := n.access.again(c.principal)
	if err != nil {
		if err := n.access.refuse(err); err != nil {
			return err
		}
	}
	c.principal = p
	ctx := context.WithValue(c.asked, principalKey{}, p)
	if p == nil && len(c.needs) == 0 {
		return n.allow(ctx, anything)
	}
	return n.allow(ctx, c.needs...)
}

// StillAllowed decides again, by the current roles and tokens, whether the call may see a state that it has waited
// for: that state may include a revocation that this node did not know before. Calls that have changed something do
// not use it: they are past being refused.
func (c *Call) StillAllowed() error {
	if c.node.access.tables() == c.by {
		return nil
	}
	again := heldCall{asked: c.R.Context(), principal: c.principal, needs: c.needs}
	if err := c.node.judge(&again); err != nil {
		return err
	}
	if c.principal != nil && again.principal != nil {
		c.principal.policy.Store(again.principal.policy.Load()) // for what else the response may show
	}
	return nil
}

// AllowedByNewest decides by the newest roles and tokens. It is for changes outside the log, where Apply would decide.
func (c *Call) AllowedByNewest() error {
	if c.Err != nil || c.node.AccessMode() != access.On || c.principal == administrator {
		return c.Err
	}
	if _, err := c.node.Newest(c.R.Context()); err != nil {
		return err
	}
	return c.StillAllowed()
}

// lateDenial refuses an operation that this node allowed, but the newest roles and tokens do not.
func (n *Node) lateDenial(ctx context.Context) error {
	if _, err := n.Newest(ctx); err != nil {
		return errRevoked // as far as this node knows
	}
	if _, err := n.access.again(principalOf(ctx)); err != nil {
		return errRevoked
	}
	return errNarrowed
}

// again returns the principal with its current roles.
func (a *control) again(p *Principal) (*Principal, error) {
	if p == nil || p.all {
		return p, nil
	}
	return a.principal(p.Accessor, p.hash)
}

// lasts returns when the principal's credential expires, ms since the epoch, or 0 for never.
func (p *Principal) lasts() int64 {
	if p == nil {
		return 0
	}
	return p.ends
}
