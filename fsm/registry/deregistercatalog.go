package registry

import "github.com/seed-20419f34/rollcall/fsm/catalog"

func (op DeregisterCatalog) perform(r *Registry, term uint64, origin Origin) Result {
	return r.deregisterCatalog(term, origin, op)
}

// deregisterCatalog removes a service, a check or a node. A proposal of the leader, because a check was
// critical for too long, takes effect only if the check is so still.
func (r *Registry) deregisterCatalog(term uint64, origin Origin, op DeregisterCatalog) Result {
	if op.Epoch != (Epoch{}) {
		if !r.epoch.Leads(term, op.Epoch) {
			return Result{Outcome: Refused}
		}
		return r.reap(origin, op)
	}
	switch {
	case op.Service != "":
		return r.deregisterService(origin, op.Node, op.Service, Act{})
	case op.Check != "":
		return r.deregisterCheck(origin, op.Node, op.Check)
	case op.Node != "":
		return r.deregisterNode(origin, op.Node)
	}
	return Result{Outcome: NotFound}
}

// reap removes a service of which a check was critical for too long.
func (r *Registry) reap(origin Origin, op DeregisterCatalog) Result {
	row, ok := r.catalog.Check(op.Node, op.Check)
	if !ok || !row.Reaped() || row.Check.Service != op.Service || row.Check.CriticalSince != op.CriticalSince {
		return Result{Outcome: NotFound}
	}
	return r.deregisterService(origin, op.Node, op.Service, Act{Reason: "its check " + op.Check + " was critical for too long"})
}

// deregisterService removes a service of a node by its id. Of the logical node it may be one that was
// registered otherwise, if it is the only one of its id.
func (r *Registry) deregisterService(origin Origin, node, id string, by Act) Result {
	var l *Lease
	if key, _, ok := r.catalog.Service(node, id); ok {
		l = r.handles.byKey(key)
	} else if node == "" {
		l, _ = r.tables.otherwise(id)
	}
	if l == nil {
		return Result{Outcome: NotFound}
	}
	r.remove(l, Canceled, origin, Event{Kind: EventCanceled, By: by})
	return Result{Index: r.index}
}

// deregisterCheck removes a check of a node or of a service on it.
func (r *Registry) deregisterCheck(origin Origin, node, id string) Result {
	row, ok := r.catalog.Check(node, id)
	if !ok {
		return Result{Outcome: NotFound}
	}
	if row.Of == (Key{}) {
		n, _ := r.catalog.Node(node)
		return r.recheckNode(origin, n, catalog.WithoutCheck(n.Checks, id))
	}
	l := r.handles.byKey(row.Of)
	return r.recheck(origin, l, catalog.WithoutCheck(l.Service.Checks, id))
}

// deregisterNode removes a node with all services and checks on it. The logical one cannot go.
func (r *Registry) deregisterNode(origin Origin, name string) Result {
	n, ok := r.catalog.Node(name)
	if !ok {
		return Result{Outcome: NotFound}
	}
	for _, key := range r.catalog.ServicesOn(name) {
		r.remove(r.handles.byKey(key), Canceled, origin, Event{Kind: EventCanceled})
	}
	r.renode(n, nil)
	r.catalog.LoseNode(name)
	return Result{Index: r.index}
}
