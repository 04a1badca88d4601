package client

import (
	"maps"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// snapshotEdit is a Snapshot in the making. It belongs to one goroutine.
type snapshotEdit struct {
	from    *Snapshot
	changed map[registry.Key]*registry.Instance // where it differs from from; nil: removed
}

// put adds or replaces an instance; changed is false if it was there, equal (sameInstance).
func (e *snapshotEdit) put(i *registry.Instance) (changed bool) {
	key := i.Key()
	if was := e.instance(key); was != nil && sameInstance(was, i) {
		return false
	}
	if was := e.from.Instance(key); was != nil && sameInstance(was, i) {
		delete(e.changed, key)
		return true
	}
	e.changed[key] = i
	return true
}

// remove removes an instance, if it is there.
func (e *snapshotEdit) remove(key registry.Key) (changed bool) {
	if e.instance(key) == nil {
		return false
	}
	if e.from.Instance(key) == nil {
		delete(e.changed, key)
		return true
	}
	e.changed[key] = nil
	return true
}

// instance is the present one of a key; nil: there is none.
func (e *snapshotEdit) instance(key registry.Key) *registry.Instance {
	if now, changed := e.changed[key]; changed {
		return now
	}
	return e.from.Instance(key)
}

// snapshot ends the edit. It returns the Snapshot that it began from if all is as it was there.
func (e *snapshotEdit) snapshot() *Snapshot {
	if len(e.changed) == 0 {
		return e.from
	}
	next := *e.from
	var all, up, vips, secureVIPs []entry
	for _, key := range slices.SortedFunc(maps.Keys(e.changed), compareKeys) {
		was, now := e.from.Instance(key), e.changed[key]
		next.count(was, -1)
		next.count(now, +1)
		all = appendEntries(all, key, was, now, appOf)
		was, now = ifUp(was), ifUp(now)
		up = appendEntries(up, key, was, now, appOf)
		vips = appendEntries(vips, key, was, now, vipsOf)
		secureVIPs = appendEntries(secureVIPs, key, was, now, secureVIPsOf)
	}
	next.all = next.all.with(all)
	next.up = next.up.with(up)
	next.vips = next.vips.with(vips)
	next.secureVIPs = next.secureVIPs.with(secureVIPs)
	return &next
}

// count adds an instance, if there is one, or takes it away.
func (s *Snapshot) count(i *registry.Instance, by int) {
	if i != nil {
		s.size += by
		s.counts[i.Status] += by
	}
}

// ifUp is the instance if there is one that is UP, else nil.
func ifUp(i *registry.Instance) *registry.Instance {
	if i == nil || i.Status != registry.Up {
		return nil
	}
	return i
}

// appendEntries appends what a change does to the lists that names gives. was or now may be nil.
func appendEntries(entries []entry, key registry.Key, was, now *registry.Instance, names func(*registry.Instance) []string) []entry {
	var in []string
	if now != nil {
		in = names(now)
	}
	if was != nil {
		for _, name := range names(was) {
			if !slices.Contains(in, name) {
				entries = append(entries, entry{name: name, key: key})
			}
		}
	}
	for _, name := range in {
		entries = append(entries, entry{name: name, key: key, now: now})
	}
	return entries
}

func appOf(i *registry.Instance) []string { return []string{i.App} }

func vipsOf(i *registry.Instance) []string { return addresses(i.VIP) }

func secureVIPsOf(i *registry.Instance) []string { return addresses(i.SecureVIP) }

// addresses are the parts of a comma-separated address, in upper case, trimmed, each once; empty ones
// are none.
func addresses(list string) []string {
	var parts []string
	for part := range strings.SplitSeq(strings.ToUpper(list), ",") {
		if part = strings.TrimSpace(part); part != "" && !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	return parts
}
