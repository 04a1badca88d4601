package registry

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
)

var (
	drawNode        = rapid.SampledFrom([]string{"", "n1", "n2"})
	drawCheckID     = rapid.SampledFrom([]string{"a", "b", "c", catalog.NodeMaintenance, catalog.ServiceMaintenance + "1"})
	drawCheckStatus = rapid.SampledFrom([]catalog.CheckStatus{catalog.Passing, catalog.Warning, catalog.Critical})
	drawOutput      = rapid.SampledFrom([]string{"", "fine", "no answer"})
	drawAlias       = rapid.Custom(func(t *rapid.T) *catalog.Alias {
		if rapid.IntRange(0, 2).Draw(t, "no alias") > 0 {
			return nil
		}
		a := &catalog.Alias{Named: rapid.Bool().Draw(t, "named"), Service: rapid.SampledFrom([]string{"", "1", "2", "3"}).Draw(t, "aliased"),
			By: rapid.SampledFrom([]string{"", "t"}).Draw(t, "by")}
		if a.By != "" {
			a.Reads = rapid.SampledFrom([]string{"", "A", "far"}).Draw(t, "reads")
		}
		if a.Named {
			a.Node = drawNode.Draw(t, "aliased node")
		}
		return a
	})
	drawChecks = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) *catalog.Check {
		id := drawCheckID.Draw(t, "id")
		return &catalog.Check{
			ID: id, Name: id, Service: rapid.SampledFrom([]string{"", "1", "1", "2"}).Draw(t, "service"),
			Status: drawCheckStatus.Draw(t, "status"), Output: drawOutput.Draw(t, "output"),
			TTL:       rapid.SampledFrom([]int64{0, 5000, 30_000}).Draw(t, "ttl"),
			ReapAfter: rapid.SampledFrom([]int64{0, 60_000}).Draw(t, "reap after"),
			Alias:     drawAlias.Draw(t, "alias"),
		}
	}), 0, 3)
	drawCatalog = rapid.Custom(func(t *rapid.T) RegisterCatalog {
		op := RegisterCatalog{
			Checks: drawChecks.Draw(t, "checks"), KeepNode: rapid.Bool().Draw(t, "keep node"),
			ReplaceChecks: rapid.Bool().Draw(t, "replace checks"), KeepStatus: rapid.Bool().Draw(t, "keep status"),
			Agent: rapid.Bool().Draw(t, "agent"), Readdress: rapid.Bool().Draw(t, "readdress"),
		}
		node := drawNode.Draw(t, "node")
		if node != "" {
			op.Node = &catalog.Node{Name: node, Address: rapid.SampledFrom([]string{"", "10.0.0.1", "10.0.0.2"}).Draw(t, "address")}
		}
		if rapid.IntRange(0, 3).Draw(t, "with a service") > 0 {
			s := &catalog.Service{
				Name: rapid.SampledFrom([]string{"orders", "billing", "Orders"}).Draw(t, "name"),
				ID:   rapid.SampledFrom([]string{"1", "2"}).Draw(t, "id"), Port: rapid.Int32Range(1, 2).Draw(t, "port"),
			}
			op.Service, op.Instance = s, serviceInstance(node, s)
		}
		return op
	})
)

// serviceInstance is the instance of a service as the API makes it.
func serviceInstance(node string, s *catalog.Service) *Instance {
	id := s.ID
	if node != "" {
		id = node + ":" + s.ID
	}
	i := instance(Key{App: strings.ToUpper(s.Name), ID: id}, Up, 0)
	i.HostName, i.IPAddr = node, node
	return i
}

// checkCatalog verifies that services and checks are found where leases and nodes have them, and that
// what follows from checks does.
func checkCatalog(r *Registry, v *View, all []*Lease) error {
	services := 0
	checkIndexes := func(checks []*catalog.Check) error {
		for _, c := range checks {
			if c.CreateIndex == 0 || c.CreateIndex > c.ModifyIndex || c.ModifyIndex > v.Index() {
				return fmt.Errorf("check %s was created at %d and modified at %d", c.ID, c.CreateIndex, c.ModifyIndex)
			}
		}
		return nil
	}
	names := map[string]string{}
	for _, l := range all {
		if l.Service == nil {
			continue
		}
		services++
		if err := checkService(r, v, l, names); err != nil {
			return fmt.Errorf("%s: %w", l.Key(), err)
		}
		if of, s, ok := r.catalog.Service(l.Service.Node, l.Service.ID); !ok || of != l.Key() || s != l.Service {
			return fmt.Errorf("%s: its service is found as that of %s", l.Key(), of)
		}
		if err := checkIndexes(l.Service.Checks); err != nil {
			return err
		}
	}
	found := len(r.catalog.ServicesOn(""))
	for n := range v.Nodes() {
		if n.Name != "" {
			found += len(r.catalog.ServicesOn(n.Name))
		}
		if err := checkIndexes(n.Checks); err != nil {
			return err
		}
	}
	if found != services {
		return fmt.Errorf("found %d services, want %d", found, services)
	}
	if err := r.catalog.Verify(r.established); err != nil {
		return err
	}
	if err := checkAliases(r, v); err != nil {
		return err
	}
	if v.CatalogIndex() > v.Index() || v.Index() >= r.Next() {
		return fmt.Errorf("nodes changed at %d, all at %d, next is %d", v.CatalogIndex(), v.Index(), r.Next())
	}
	return checkNodesLists(v, all)
}

// checkAliases verifies that each alias check has the worst state of the checks that it follows, through whatever other
// alias checks.
func checkAliases(r *Registry, v *View) error {
	for c := range allChecks(r, v) {
		if c.Alias == nil {
			continue
		}
		want := worstFollowed(r, v, c, map[*catalog.Check]bool{})
		if c.Status != want || c.Output == "" || (c.Status == catalog.Passing) != (c.Output == "All checks passing." || c.Output == "No checks found.") {
			return fmt.Errorf("alias check %s of node %q is %d (%s), want %d", c.ID, c.Node, c.Status, c.Output, want)
		}
	}
	return nil
}

func allChecks(r *Registry, v *View) iter.Seq[*catalog.Check] {
	return func(yield func(*catalog.Check) bool) {
		for n := range v.Nodes() {
			for _, c := range n.Checks {
				yield(c)
			}
		}
		for l := range v.All() {
			if l.Service != nil {
				for _, c := range l.Service.Checks {
					yield(c)
				}
			}
		}
	}
}

// worstFollowed is the worst status that an alias check follows.
func worstFollowed(r *Registry, v *View, c *catalog.Check, seen map[*catalog.Check]bool) (worst catalog.CheckStatus) {
	seen[c] = true
	node := c.Node
	if c.Alias.Named {
		node = c.Alias.Node
	}
	if !readable(v, c, node) {
		return catalog.Critical
	}
	var checks []*catalog.Check
	n, ok := v.Node(node)
	if ok {
		checks = n.Checks
	}
	if id := c.Alias.Service; id != "" {
		l, _ := v.ServiceOn(node, id)
		switch {
		case l == nil:
			return catalog.Critical
		case l.Service != nil:
			checks = slices.Concat(checks, l.Service.Checks)
			if l.Instance.Overridden != Unknown && l.Instance.Status != Up {
				return catalog.Critical
			}
		case l.Instance.Status != Up:
			return catalog.Critical
		}
	} else if !ok && node != "" {
		return catalog.Critical
	}
	for _, check := range checks {
		switch {
		case check.Alias == nil:
			worst = max(worst, check.Status)
		case !seen[check]:
			worst = max(worst, worstFollowed(r, v, check, seen))
		}
	}
	return worst
}

// readable says whether an alias check may follow what it names on a node.
func readable(v *View, c *catalog.Check, node string) bool {
	name, l := v.Followed(c.Node, c.Alias), (*Lease)(nil)
	if c.Service != "" {
		l, _ = v.ServiceOn(c.Node, c.Service)
	}
	ownApp := c.Alias.Service != "" && l != nil && l.Key().App == name
	ownNode := c.Alias.Service == "" && c.Node == node
	return c.Alias.By == "" || name != "" && (name == c.Alias.Reads || ownApp || ownNode)
}

func checkService(r *Registry, v *View, l *Lease, names map[string]string) error {
	s := l.Service
	if name, ok := names[l.Instance.App]; ok && name != s.Name {
		return fmt.Errorf("called %s, another one %s", s.Name, name)
	}
	names[l.Instance.App] = s.Name
	if found, _ := v.ServiceOn(s.Node, s.ID); found != l {
		return fmt.Errorf("service %s of node %q is found as %v", s.ID, s.Node, found)
	}
	if !r.HasNode(s.Node) {
		return errors.New("its node is not there")
	}
	want := r.statusByChecks(s)
	if l.reported() != want {
		return fmt.Errorf("reported %s, want %s by its checks", l.reported(), want)
	}
	if l.Instance.Overridden != Unknown {
		want = l.Instance.Overridden
	}
	if !l.Permanent || l.Instance.Status != want {
		return fmt.Errorf("permanent: %t, shown as %s, want %s", l.Permanent, l.Instance.Status, want)
	}
	return nil
}

// checkNodesLists verifies that each listed lease is a service of one node.
func checkNodesLists(v *View, all []*Lease) error {
	listed := keysOf(v.ServicesOn(""))
	for n := range v.Nodes() {
		if n.Name != "" {
			listed = append(listed, keysOf(v.ServicesOn(n.Name))...)
		}
	}
	slices.SortFunc(listed, Key.Compare)
	if want := keysOf(v.Leases()); !slices.Equal(listed, want) {
		return fmt.Errorf("services of all nodes are %v, want %v", listed, want)
	}
	for app := range v.Apps() {
		want, called := 0, strings.ToLower(app.Name)
		for l := range app.Leases() {
			if l.Service != nil {
				want, called = want+1, l.Service.Name
			}
		}
		if app.services != want || app.ServiceName() != called {
			return fmt.Errorf("%s has %d services and is called %s, want %d and %s", app.Name, app.services, app.ServiceName(), want, called)
		}
	}
	return nil
}
