package httpd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

// ownerOf is an owner and its link at a moment of the lease clock (ms).
func ownerOf(v *registry.View, now int64, owner string) api.Owner {
	shown := api.Owner{Datacenter: owner}
	if owner == "" {
		return shown
	}
	if link, ok := v.Link(owner); ok && link.Silent(now) {
		shown.UnheardMS = now - link.Heard
	}
	return shown
}

// contact is what is known of the link from an instance's owner, for people.
type contact struct {
	datacenter string // "": the own one, without a link
	heard      bool   // ever
	age        int64  // ms of lease clock since
	cut        bool
	policy     string // replication.on-cut of the peer, as Peers words it; "": it is not known
}

// contactWith is the link from an owner at a moment of the lease clock (ms).
func (h *Handler) contactWith(ctx context.Context, v *registry.View, now int64, owner string) contact {
	c := contact{datacenter: owner}
	if owner == "" {
		return c
	}
	var link registry.Link
	if link, c.heard = v.Link(owner); c.heard {
		c.age, c.cut = max(now-link.Heard, 0), link.Silent(now)
	}
	if c.cut {
		c.policy = onCut(h.peerStatus(ctx), owner)
	}
	return c
}

// keeps says that the leases of the owner are kept although their time has passed.
func (c contact) keeps() bool {
	limit, bounded := strings.CutPrefix(c.policy, "keep for ")
	if !c.cut || !bounded {
		return c.cut && c.policy == "keep"
	}
	d, err := time.ParseDuration(limit)
	return err == nil && c.age <= d.Milliseconds()
}

// sentence says whose an instance is, and what becomes of its lease if its owner is not heard.
func (c contact) sentence() string {
	belongs := "It belongs to datacenter " + c.datacenter
	switch {
	case !c.heard:
		return belongs + ", of which nothing was heard yet."
	case !c.cut:
		return fmt.Sprintf("%s, last heard %s ago.", belongs, shownSpan(c.age))
	case c.keeps():
		return fmt.Sprintf("%s, last heard %s ago: while the link is cut its lease is kept (replication.on-cut: %s).", belongs, shownSpan(c.age), c.policy)
	case c.policy == "":
		return fmt.Sprintf("%s, last heard %s ago: the link is cut.", belongs, shownSpan(c.age))
	}
	return fmt.Sprintf("%s, last heard %s ago: the link is cut, and its lease ends all the same (replication.on-cut: %s).", belongs, shownSpan(c.age), c.policy)
}
