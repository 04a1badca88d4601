package own

import (
	"maps"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// maxRefused bounds the rows of a check of permissions.
const maxRefused = 1000

// checkAccess is GET /v1/rollcall/auth/check: the registrations that the current roles would refuse, whatever the
// mode.
func (c call) checkAccess(v web.FreshView) (any, error) {
	found := api.AuthCheck{VIPs: []api.RefusedVIP{}, Checks: []api.RefusedCheck{}}
	others := map[[2]string]bool{} // applications with a VIP each
	for l := range v.All() {
		for _, vip := range registry.OtherVIPs(l.Instance) {
			others[[2]string{l.Key().App, vip}] = true
		}
	}
	all := c.Grantees()
	for _, of := range slices.SortedFunc(maps.Keys(others), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		app, vip := registry.ToRegister(of[0]), registry.ToRegister(of[1])
		for _, g := range all { // some principals that may register the application may not register the VIP
			if c.R.Context().Err() == nil && g.Allows(app) && !g.Allows(vip) {
				row := api.RefusedVIP{App: of[0], VIP: of[1], Roles: g.RolesThat(app), Tokens: g.Names, Rule: vip.String()}
				addRefused(&found.VIPs, row, &found.More)
			}
		}
	}
	c.checkProbes(v.View, &found)
	return found, c.R.Context().Err()
}

// addRefused appends a row, or only counts it if there are too many.
func addRefused[T any](to *[]T, row T, more *int) {
	if len(*to) == maxRefused {
		*more++
		return
	}
	*to = append(*to, row)
}

// checkProbes finds the checks that their tokens do not allow, except those that name a host: the leader judges these.
func (c call) checkProbes(v *registry.View, found *api.AuthCheck) {
	judge := func(checks []*catalog.Check, s *catalog.Service, i *registry.Instance) {
		for _, check := range checks {
			if check.Probe == nil || check.Probe.By == "" || c.config.JudgeProbe == nil {
				continue
			}
			p := *check.Probe
			p.From = v.ProbeSource(check.Node, check.Probe)
			_, needs := c.config.JudgeProbe(&p, s, i)
			h := c.Holder(p.By)
			for _, n := range needs {
				if h != nil && !h.Expired(c.World.Now().UnixMilli()) && h.Policy.Allows(n) {
					continue
				}
				r := api.RefusedCheck{Node: check.Node, Check: check.ID, Service: check.Service, From: p.From, Accessor: p.By, Roles: []string{}, Rule: n.String()}
				if h != nil {
					r.Token, r.Roles = h.Name, append(r.Roles, h.Roles...)
				}
				if header, is := strings.CutPrefix(n.Name, access.HeaderTarget); is {
					r.Rule = "checks.headers " + header
				}
				addRefused(&found.Checks, r, &found.More)
			}
		}
	}
	for l := range v.All() {
		if l.Service != nil {
			judge(l.Service.Checks, l.Service, l.Instance)
		}
	}
	for n := range v.Nodes() {
		judge(n.Checks, nil, nil)
	}
}
