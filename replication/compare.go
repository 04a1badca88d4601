package replication

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/replication/wire"
)

// Compare answers a peer's digests with what differs here. Errors: as Receive.
func (r *Replicator) Compare(ctx context.Context, message []byte) (answer []byte, err error) {
	var q wire.Digests
	if err := wire.Decode(message, &q); err != nil {
		return nil, err
	}
	origin, err := r.originOf(q.Datacenter, q.Node)
	if err != nil {
		return nil, err
	}
	all := origin.Kind == registry.LocalPeer
	if all != (q.Owner == "") {
		return nil, wire.Malformed("owner must be %q from another datacenter, and nothing from a node of the own one", q.Datacenter)
	}
	view, err := r.config.Service.View(ctx, registry.Stale)
	if err != nil {
		return nil, fmt.Errorf("compare with %s: %w", q.Node, err)
	}
	s := scope{view: view, now: r.config.Service.Health().Clock, all: all, owner: q.Owner}
	d := s.differences(&q)
	return wire.Encode(&d), nil
}

// maxDigestEntries bounds the instances of one answer, but for an application with more.
const maxDigestEntries = 20_000

// scope is what two servers compare: the instances of one of them, or all.
type scope struct {
	view  *registry.View
	now   int64 // lease clock, ms
	all   bool
	owner string // as registry.View.Settled; "": the own datacenter
}

// digests are those of all applications.
func (s scope) digests() map[string]registry.Digest {
	digests := make(map[string]registry.Digest)
	for l := range s.view.Settled(s.now, s.all, s.owner) {
		d := digests[l.Instance.App]
		d.Count++
		d.Sum += l.Sum()
		digests[l.Instance.App] = d
	}
	return digests
}

// holds says whether a lease is compared, settled or not.
func (s scope) holds(l *registry.Lease) bool { return s.all || l.Owner == s.owner }

// differences are the applications that the asker has otherwise, in the order of their names, as many
// as an answer holds. Each comes with all its instances, those too that are too young to be compared:
// the asker is to know that they are here.
func (s scope) differences(q *wire.Digests) wire.Differences {
	a := wire.Differences{Apps: make(map[string][]wire.Entry)}
	differ := s.differing(q)
	sizes := make(map[string]int, len(differ))
	s.each(differ, func(l *registry.Lease) { sizes[l.Instance.App]++ })
	total := 0
	for n, app := range differ {
		if n > 0 && total+sizes[app] > maxDigestEntries {
			a.More = true
			differ = differ[:n]
			break
		}
		total += sizes[app]
		a.Apps[app] = make([]wire.Entry, 0, sizes[app])
	}
	s.each(differ, func(l *registry.Lease) {
		app := l.Instance.App
		a.Apps[app] = append(a.Apps[app], wire.Entry{ID: l.Instance.ID(), Version: l.Version(), Sum: l.Sum()})
	})
	return a
}

// differing are the applications whose digest here is not the asker's, sorted.
func (s scope) differing(q *wire.Digests) []string {
	digests := s.digests()
	var differ []string
	for app, digest := range digests {
		if q.Covers(app) && q.Apps[app] != digest {
			differ = append(differ, app)
		}
	}
	for app := range q.Apps {
		if _, ok := digests[app]; !ok && q.Covers(app) {
			differ = append(differ, app)
		}
	}
	slices.Sort(differ)
	return differ
}

// each calls do with the compared leases of some applications, sorted by name.
func (s scope) each(apps []string, do func(*registry.Lease)) {
	if len(apps) == 0 {
		return
	}
	for l := range s.view.All() {
		if _, ok := slices.BinarySearch(apps, l.Instance.App); ok && s.holds(l) {
			do(l)
		}
	}
}
