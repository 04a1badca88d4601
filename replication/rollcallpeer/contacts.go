package rollcallpeer

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// contactEvery is how often (ms of the sender's lease clock) a contact with a sending peer is recorded.
const contactEvery = 1000

// contacts returns the operations that record a message's arrival: a contact with its sender and, if that is a node
// of this datacenter, with the peers that this node itself heard.
func contacts(side *link.Side, view *registry.View, h *Head, origin registry.Origin, late int64, principal string) []registry.Op {
	bound := principal == "" || late > 0 || view.SenderPrincipal(origin.DC, h.Sender) != ""
	if bound && !contactDue(view, h, origin, late) {
		return nil
	}
	all := []registry.Op{registry.Contact{
		DC: origin.DC, Sender: h.Sender, Incarnation: h.Incarnation, Clock: h.Clock, Cut: side.Cut(origin.DC).Milliseconds(), Age: late,
		Principal: principal,
	}}
	if origin.Kind != registry.LocalPeer || late > 0 {
		return all
	}
	return append(all, overheard(side, h)...)
}

// contactDue reports whether a second of the sender's clock has passed since its last contact, or there was none. A
// late message does not count as a sign of life, unless it belongs to an incarnation that was silent while another
// spoke.
func contactDue(view *registry.View, h *Head, origin registry.Origin, late int64) bool {
	known, last, ok := view.Sender(origin.DC, h.Sender, h.Incarnation)
	if late > 0 {
		return ok && h.Clock > known.Clock
	}
	if origin.Kind == registry.RemoteDC {
		if _, ok := view.Link(origin.DC); !ok {
			return true
		}
	}
	return !ok || !last || h.Clock >= known.Clock+contactEvery
}

// overheardLater is added (ms) to the age of what another node heard. It is longer than a message is in transit: with
// less, two nodes that report a link to each other would keep it alive forever.
const overheardLater = 1000

// overheard returns the contacts with peers of this node that another node of this datacenter reports.
func overheard(side *link.Side, h *Head) []registry.Op {
	var all []registry.Op
	for _, dc := range slices.Sorted(maps.Keys(h.Heard)) {
		if side.Remote(dc) != nil {
			all = append(all, registry.Contact{DC: dc, Cut: side.Cut(dc).Milliseconds(), Age: later(h.Heard[dc], overheardLater)})
		}
	}
	return all
}

// ignored names the datacenters that another node of this one heard and that are not recorded: links are kept only
// for this node's peers, so that no node fills the state with names. It returns "" if there are none.
func ignored(side *link.Side, h *Head) string {
	var others []string
	for _, dc := range slices.Sorted(maps.Keys(h.Heard)) {
		if dc != side.Datacenter && side.Remote(dc) == nil {
			others = append(others, clip(dc))
		}
	}
	const named = 10
	n := len(others)
	if n == 0 {
		return ""
	}
	if n > named {
		others = append(others[:named], "…")
	}
	return fmt.Sprintf("what was heard of %d datacenters that are no peers of this node is not noted: %s", n, strings.Join(others, ", "))
}

// Bounds (ms) within which two messages about one operator's act mean the same.
const (
	actsDiffer = 2000
	actsExpire = 10_000
)

// repeatedAct reports whether an operator's act arrived here before, or was overtaken: unlike everything else that is
// sent twice, it would take effect twice.
func repeatedAct(view *registry.View, op registry.Op, late int64) bool {
	act, ok := op.(registry.SelfPreservation)
	if !ok {
		return false
	}
	now := view.Preservation()
	until := view.Stamp().Lease + act.For
	again := now.State == act.To && now.By == act.By && (act.To == registry.PreservationReleased || until <= now.Until+actsDiffer)
	return again || late > actsExpire
}
