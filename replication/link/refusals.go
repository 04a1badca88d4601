package link

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/order"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/world"
)

// Bounds of Refusals.
const (
	refusalsKept = 1000      // beyond that, items are neither logged nor remembered
	refusedFor   = time.Hour // how long an item is remembered after its last refusal
	refusedText  = 512       // bytes of a name or a reason
)

// Refusals remembers which items of replication are refused. An item is an instance as one server sent it. It logs
// the first refusal, and the first acceptance after it. A nil *Refusals remembers nothing. Safe for concurrent use.
type Refusals struct {
	Total prometheus.Counter // counts every refusal

	world *world.World
	log   *slog.Logger

	mu    sync.Mutex
	items map[refusedItem]*api.RefusedItem
}

type refusedItem struct {
	key  registry.Key
	from string
}

// NewRefusals returns an empty Refusals.
func NewRefusals(w *world.World, log *slog.Logger) *Refusals {
	return &Refusals{
		Total: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "rollcall", Subsystem: "replication", Name: "refused_items_total",
			Help: "Items of other servers that this node refused; rollcall peers names them.",
		}),
		world: w, log: log, items: make(map[refusedItem]*api.RefusedItem),
	}
}

// Record records why an item is refused; with an empty why, that it was accepted. what is the operation, and from the
// server that sent it, or "" for this node. A key without an application stands for everything that the server sent.
func (r *Refusals) Record(key registry.Key, what, from, why string) {
	if r == nil {
		return
	}
	if why != "" {
		r.Total.Inc()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if why == "" && len(r.items) == 0 {
		return
	}
	key.App, key.ID, why = clip(key.App), clip(key.ID), clip(why)
	at := refusedItem{key, from}
	item, known := r.items[at]
	now := r.world.Now().UnixMilli()
	switch {
	case why == "" && known:
		delete(r.items, at)
		r.log.Info("an item of replication that was refused is accepted again", "app", key.App, "id", key.ID, "from", from, "refused", item.Times)
		return
	case why == "":
		return
	case !known:
		if r.forget(now); len(r.items) >= refusalsKept {
			return
		}
		item = &api.RefusedItem{App: key.App, ID: key.ID, From: from, Since: now}
		r.items[at] = item
		r.log.Warn("an item of replication is refused", "app", key.App, "id", key.ID, "what", what, "from", from, "why", why)
	}
	item.What, item.Last, item.Text, item.Times, item.Until = what, now, why, item.Times+1, 0
}

// Hold is Record for an item that is refused for a while: it may be offered again after that.
func (r *Refusals) Hold(key registry.Key, what, from, why string, after time.Duration) {
	r.Record(key, what, from, why)
	r.withItem(key, from, func(at refusedItem, item *api.RefusedItem, now int64) { item.Until = now + after.Milliseconds() })
}

// Held reports whether an item is refused for a while that has not passed.
func (r *Refusals) Held(key registry.Key, from string) (held bool) {
	r.withItem(key, from, func(_ refusedItem, item *api.RefusedItem, now int64) { held = now < item.Until })
	return held
}

// Drop forgets an item that is refused for a while, because there is nothing to offer again.
func (r *Refusals) Drop(key registry.Key, from string) {
	r.withItem(key, from, func(at refusedItem, item *api.RefusedItem, _ int64) {
		if item.Until > 0 {
			delete(r.items, at)
		}
	})
}

// Due returns the instances to offer again. Each comes up once more after again, unless something is heard of it. It
// forgets those that no longer exist.
func (r *Refusals) Due(again time.Duration, there func(registry.Key) bool) (due []registry.Key) {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.world.Now().UnixMilli()
	for at, item := range r.items {
		switch {
		case item.Until == 0 || now < item.Until:
		case there(at.key):
			item.Until = now + again.Milliseconds()
			due = append(due, at.key)
		default:
			delete(r.items, at)
		}
	}
	slices.SortFunc(due, registry.Key.Compare)
	return due
}

// withItem calls do with a remembered item, and the time (ms since the Unix epoch).
func (r *Refusals) withItem(key registry.Key, from string, do func(at refusedItem, item *api.RefusedItem, now int64)) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	key.App, key.ID = clip(key.App), clip(key.ID)
	if item, known := r.items[refusedItem{key, from}]; known {
		do(refusedItem{key, from}, item, r.world.Now().UnixMilli())
	}
}

// forget forgets items that were last refused long ago. The caller holds mu.
func (r *Refusals) forget(now int64) {
	maps.DeleteFunc(r.items, func(_ refusedItem, item *api.RefusedItem) bool { return now-item.Last > refusedFor.Milliseconds() })
}

// List returns the items that were refused within the last hour and not accepted since, sorted by application, id and
// server.
func (r *Refusals) List() []api.RefusedItem {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(r.world.Now().UnixMilli())
	all := make([]api.RefusedItem, 0, len(r.items))
	for _, item := range r.items {
		all = append(all, *item)
	}
	slices.SortFunc(all, func(a, b api.RefusedItem) int {
		return cmp.Or(cmp.Compare(a.App, b.App), cmp.Compare(a.ID, b.ID), cmp.Compare(a.From, b.From))
	})
	return all
}

// clip shortens a text from another server to refusedText bytes.
func clip(text string) string { return order.CutText(strings.ToValidUTF8(text, "\uFFFD"), refusedText) }
