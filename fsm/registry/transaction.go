package registry

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Found holds what an operation of a transaction found or made: a node, a service or a check.
type Found struct {
	Node    *catalog.Node // without its checks; the logical one has no name
	Service *Lease        // the instance, without its checks and with only those parts of its lease that responses show
	Check   *catalog.Check
	Name    string   // of the service, or of the check's service
	Tags    []string // of the check's service
}

func (f *Found) Fields(c *codec.Codec) {
	codec.Optional(c, &f.Node, (*catalog.Node).Fields)
	codec.Optional(c, &f.Service, (*Lease).Fields)
	codec.Optional(c, &f.Check, (*catalog.Check).Fields)
	c.String(&f.Name)
	c.Strings(&f.Tags)
}

// Weight returns roughly how many bytes it takes.
func (f *Found) Weight() int {
	bytes := len(f.Name)
	for _, tag := range f.Tags {
		bytes += len(tag)
	}
	if f.Node != nil {
		bytes += f.Node.Weight()
	}
	if f.Service != nil {
		bytes += f.Service.Weight()
	}
	if f.Check != nil {
		bytes += f.Check.Weight()
	}
	return bytes
}

// CatalogResult is the result of a CatalogOp.
type CatalogResult struct {
	Found *Found // CatalogGet, CatalogSet, CatalogCAS; nil if it failed or there is nothing to show
	What  string // why it failed, in Consul's words if it has any; "" if it did not
	Index Index  // of the (last) change; 0 if nothing changed
	Steps int    // of counting alias checks and making them follow, see catalog.MaxSteps
}

// PerformInTxn performs an operation of a client's transaction, with the effects of RegisterCatalog and
// DeregisterCatalog.
// Source: agent/consul/state/txn.go of hashicorp/consul.
func (r *Registry) PerformInTxn(op CatalogOp) CatalogResult {
	before, steps := r.index, r.catalog.Steps()
	if r.spellsNodes() {
		op.Node, _ = r.catalog.SpelledNode(op.Node)
	}
	if what := r.performInTxn(op); what != "" {
		return CatalogResult{What: what}
	}
	r.followUp(FromClient)
	res := CatalogResult{Steps: r.catalog.Steps() - steps}
	if op.Verb != CatalogDelete && op.Verb != CatalogDeleteCAS {
		res.Found = r.live().seek(op).found
	}
	if r.index > before {
		res.Index = r.index
	}
	return res
}

// live returns the present state as a View, until the next change.
func (r *Registry) live() *View {
	t := r.tables
	t.catalog = &r.catalog.Tables
	return &View{tables: &t}
}

// performInTxn performs an operation, and returns why it failed, or "".
func (r *Registry) performInTxn(op CatalogOp) (what string) {
	s := r.live().seek(op)
	switch {
	case s.ambiguous && op.Verb != CatalogSet:
		return fmt.Sprintf("service ID %q is that of instances of several applications, which clients of Eureka registered", op.Service)
	case op.Verb == CatalogGet:
		return s.missing(op)
	case op.Verb == CatalogCAS && s.modified != op.Index:
		return fmt.Sprintf("failed to set %s, index is stale", op.object())
	case op.Verb == CatalogDeleteCAS && (s.found == nil || s.modified != op.Index):
		return fmt.Sprintf("failed to delete %s, index is stale", op.object())
	case op.Verb == CatalogSet, op.Verb == CatalogCAS:
		return r.setInTxn(op)
	}
	return r.deleteInTxn(op)
}

// object names what an operation is about, for errors.
func (op CatalogOp) object() string {
	node := cmp.Or(op.Node, catalog.LogicalNode)
	switch {
	case op.Check != "":
		return fmt.Sprintf("check %q on node %q", op.Check, node)
	case op.Service != "":
		return fmt.Sprintf("service %q on node %q", op.Service, node)
	}
	return fmt.Sprintf("node %q", node)
}

func (r *Registry) setInTxn(op CatalogOp) (what string) {
	switch {
	case op.Register == nil:
		return fmt.Sprintf("nothing is given to set %s to", op.object())
	case (op.Service != "" || op.Check != "") && !r.HasNode(op.Node):
		return "Missing node registration"
	}
	switch r.performForClient(*op.Register).Outcome {
	case Done:
		return ""
	case UnknownService:
		return r.missingService(op)
	case NameTaken:
		return fmt.Sprintf("failed to set %s, names that differ in case only are one application, and it has another spelling already", op.object())
	case AddressTaken:
		return fmt.Sprintf("failed to set %s, it is registered with another address, or clients of Eureka would take it for a service of another node; deregister that one first, or give an ID of its own", op.object())
	case CheckTaken:
		return fmt.Sprintf("failed to set %s, it is a check of another service or of the node; delete it first, or give an ID of its own", op.object())
	case TooMany:
		return fmt.Sprintf("failed to set %s, %s", op.object(), catalog.TooManyFollowersText)
	}
	return fmt.Sprintf("failed to set %s, a service may have %d checks and a node itself %d", op.object(), catalog.MaxServiceChecks, catalog.MaxNodeChecks)
}

// missingService returns the error for a check whose service was not registered through Consul's API.
func (r *Registry) missingService(op CatalogOp) string {
	for _, check := range op.Register.Checks {
		if l, ambiguous := r.live().ServiceOn(op.Node, check.Service); l != nil && l.Service == nil || ambiguous {
			return fmt.Sprintf("service %q was registered by a client of Eureka, which reports its status itself: it takes no checks", check.Service)
		}
	}
	return "Missing service registration"
}

func (r *Registry) deleteInTxn(op CatalogOp) (what string) {
	remove := DeregisterCatalog{Node: op.Node, Check: op.Check}
	switch {
	case op.Check != "":
	case op.Service != "":
		remove.Service = op.Service
	case op.Node == "":
		return fmt.Sprintf("node %q stands for the cluster itself and is not deleted", catalog.LogicalNode)
	}
	if r.performForClient(remove).Outcome == TooMany {
		return fmt.Sprintf("failed to delete %s, it has more than %d services and checks of them, the most that go in one transaction; delete some before it", op.object(), MaxRemoved)
	}
	return ""
}

// performForClient performs an operation as Apply does, but leaves out the follow-up.
func (r *Registry) performForClient(op Op) Result { return op.perform(r, 0, FromClient) }

// ReadInTxn performs an operation of a transaction that writes nothing.
func (v *View) ReadInTxn(op CatalogOp) CatalogResult {
	s := v.seek(op)
	if what := s.missing(op); what != "" {
		return CatalogResult{What: what}
	}
	return CatalogResult{Found: s.found}
}

// sought is what an operation of a transaction looks for.
type sought struct {
	found     *Found // nil if it does not exist
	modified  Index  // 0 if it does not exist
	hidden    bool   // it is in quarantine, and shown to no reader
	ambiguous bool   // several applications have an instance with the id
}

// missing returns the error if there is nothing to read, or "".
func (s sought) missing(op CatalogOp) string {
	if s.found == nil || s.hidden {
		return op.object() + " doesn't exist"
	}
	return ""
}

// seek finds what an operation of a transaction is about.
func (v *View) seek(op CatalogOp) sought {
	switch {
	case op.Check != "":
		return v.seekCheck(op.Node, op.Check)
	case op.Service != "":
		return v.seekService(op.Node, op.Service)
	}
	return v.seekNode(op.Node)
}

// unchanging is the index of what the logical node has had from the beginning.
const unchanging Index = 1

func (v *View) seekNode(name string) sought {
	stored, ok := v.Node(name)
	switch {
	case !ok && name == "":
		stored = &catalog.Node{CreateIndex: unchanging, ModifyIndex: unchanging}
	case !ok:
		return sought{}
	}
	n := *stored
	n.Checks = nil
	return sought{found: &Found{Node: &n}, modified: n.ModifyIndex}
}

func (v *View) seekService(node, id string) sought {
	l, ambiguous := v.ServiceOn(node, id)
	if l == nil {
		return sought{ambiguous: ambiguous}
	}
	shown := &Lease{Instance: l.Instance, Registered: l.Registered, Defined: l.Defined, Permanent: l.Permanent}
	modified := l.Defined
	if l.Service != nil {
		s := *l.Service
		s.Checks = nil
		shown.Service, modified = &s, s.ModifyIndex
	}
	name := strings.ToLower(l.Instance.App)
	if app, ok := v.App(l.Instance.App); ok {
		name = app.ServiceName()
	}
	return sought{found: &Found{Service: shown, Name: name}, modified: modified, hidden: l.Quarantine != nil}
}

func (v *View) seekCheck(node, id string) sought {
	c, ok := v.CheckOn(node, id)
	switch {
	case !ok && node == "" && id == catalog.SerfHealth:
		c = &catalog.Check{ID: id, CreateIndex: unchanging, ModifyIndex: unchanging}
	case !ok:
		return sought{}
	}
	s := sought{found: &Found{Check: c}, modified: c.ModifyIndex}
	if l, _ := v.ServiceOn(node, c.Service); c.Service != "" && l != nil && l.Service != nil {
		s.found.Name, s.found.Tags, s.hidden = l.Service.Name, l.Service.Tags, l.Quarantine != nil
	}
	return s
}

// Attempt performs do, and takes all its changes back if it returns false, at a cost in proportion to the changes. do
// performs operations at the present time, and makes no View. Trees and single values are restored from copies; a table
// that changes in place has each change undone (the methods keep…).
func (r *Registry) Attempt(do func() (kept bool)) {
	u := new(order.Undo)
	index, reserved, recordBytes, generation := r.index, r.reserved, r.recordBytes, r.handles.generation
	expectation, shared := r.expectation, r.shared
	tables, ends := r.tables.share(), r.ends.Copy()
	u.Add(func() {
		r.index, r.reserved, r.recordBytes, r.handles.generation = index, reserved, recordBytes, generation
		r.expectation, r.shared = expectation, shared
		r.tables, r.ends = *tables, ends
	})
	r.undo, r.handles.undo = u, u
	r.catalog.Record(u)
	kept := do()
	r.undo, r.handles.undo = nil, nil
	r.catalog.Record(nil)
	if !kept {
		u.Run()
	}
}
