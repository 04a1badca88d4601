package sim

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/seed-20419f34/rollcall/httpd/api"
)

// What an instance shows whose status operators change: that it is absent, or UP without an override; or
// OUT_OF_SERVICE by the operator's act with a positive number, with the bit drains if it is a drain, or by a client
// (byClient). Eureka's lists show only that something keeps it OUT_OF_SERVICE (out). Nothing else is possible.
const (
	absent, up, byClient, out, impossible = 0, -1, -2, -3, -4

	drains = 1 << 20
)

// standing is the state of such an instance. An operator's override waits for one that was removed.
type standing struct{ now, waits int }

// after returns the state after an operation, and whether it found something to act on (docs/adr/0035). Below level 3 of
// the formats (old) a drain is like any other override, and all end with the lease.
func (s standing) after(op operation, old bool) (then standing, found bool) {
	lasts, isDrain := s.now > 0 && s.now&drains == 0, s.now > 0 && s.now&drains != 0
	then, found = s, s.now != absent
	switch {
	case op.do == "restart" && !found && s.waits != 0 && !old:
		return standing{now: s.waits}, true
	case op.do == "restart" && (!found || isDrain && !old):
		return standing{now: up}, true
	case op.do == "end" && !found:
		return standing{}, s.waits != 0 && !old
	case !found:
	case op.do == "override", op.do == "status", op.do == "drain" && old:
		then.now = op.value
	case op.do == "drain" && !lasts:
		then.now = op.value | drains
	case op.do == "end":
		then.now = up
	case op.do == "cancel" && lasts:
		then = standing{waits: s.now}
	case op.do == "cancel":
		then = standing{}
	}
	return then, found
}

// statusModel models such an instance, in a cluster whose level may be below 3, or not. A restore brings back only what
// is absent, as it was saved or with what waits for it.
func statusModel(mayBeOld bool) *porcupine.NondeterministicModel {
	step := func(state, input, output any) (then []any) {
		op, r, now := input.(operation), output.(result), state.(standing)
		switch {
		case op.do == "read" && (r.value == now.now || r.value == out && now.now != up && now.now != absent):
			return []any{now}
		case op.do == "read":
			return nil
		case op.do == "return" && now.now == absent:
			for _, v := range append([]int{up, now.waits}, op.values...) {
				then = append(then, standing{now: v})
			}
			return append(then, now)
		case op.do == "return":
			return []any{now}
		}
		for _, old := range []bool{false, true} {
			next, found := now.after(op, old)
			switch {
			case old && !mayBeOld:
			case r.outcome == Unknown:
				then = append(then, now, next)
			case found == (r.outcome == Done):
				then = append(then, next)
			}
		}
		return then
	}
	return &porcupine.NondeterministicModel{
		Init: func() []any { return []any{standing{}} }, Step: step, DescribeOperation: registerModel.DescribeOperation,
	}
}

// statuses has the histories of such instances, and what the client of the newest one knows.
type statuses struct {
	histories
	on         *history
	registered bool
	dirty      int64 // lastDirtyTimestamp of the last registration that was acknowledged
}

// startStatuses has operators change the status of an instance, whose client renews, starts again and cancels it.
func (l *load) startStatuses() {
	s := &statuses{histories: histories{l: l, now: map[string]*history{}}}
	l.d.statuses = s
	l.task(2100*time.Millisecond, s.client)
	l.task(1900*time.Millisecond, s.operate)
}

// client does what the client of the instance does next. It cancels only where no other datacenter may have a newer
// instance than a restore brings back.
func (s *statuses) client() {
	on, _ := s.current("STATUS")
	if on != s.on {
		s.on, s.registered = on, false
	}
	do := []string{"beat", "beat", "restart", "restart", "cancel"}[s.l.draw(5)]
	if !s.registered || do == "cancel" && s.l.w.cluster.Datacenters > 1 {
		do = "restart"
	}
	i, dirty := &Instance{App: on.name, ID: "i", Lease: longLease}, time.Now().UnixMilli()
	method, path, body := "POST", "/eureka/apps/"+on.name, i.document()
	switch do {
	case "beat":
		method, path, body = "PUT", fmt.Sprintf("%s?status=UP&lastDirtyTimestamp=%d", i.path(), s.dirty), ""
	case "cancel":
		method, path, body = "DELETE", i.path(), ""
	}
	r := s.perform(0, on, operation{do: do}, method, path, body)
	if do == "restart" && r.outcome == Done {
		s.registered, s.dirty = true, dirty
	} else if do == "cancel" && r.outcome != Refused || r.outcome == NotFound {
		s.registered = false
	}
	if r.outcome == Unknown { // or a later registration could be overtaken
		time.Sleep(unknownTakes)
	}
}

// operate does what an operator does next, or a client that sets a status by Eureka's route.
func (s *statuses) operate() {
	on, value := s.current("STATUS")
	eurekas := "/eureka/apps/" + on.name + "/i/status?value="
	own := fmt.Sprintf("/v1/rollcall/apps/%s/i/override?author=o&reason=%d&value=", on.name, value)
	op, method, path := operation{do: "override", value: value}, "PUT", own+"OUT_OF_SERVICE"
	switch s.l.draw(6) {
	case 0, 1:
		op.do, path = "drain", path+"&drain=true"
	case 2:
		op.do, op.value, path = "status", byClient, eurekas+"OUT_OF_SERVICE"
	case 3:
		op, method, path = operation{do: "end"}, "DELETE", []string{own, eurekas}[s.l.draw(2)]+"UP"
	}
	s.perform(1, on, op, method, path, "")
}

// perform makes an operation, and reads the result at once at any node.
func (s *statuses) perform(client int, on *history, op operation, method, path, body string) result {
	r := s.add(client, on, op, func() result {
		return result{outcome: s.l.write(s.l.node(), method, path, body).Outcome()}
	})
	s.add(client, on, operation{do: "read"}, func() result { return s.read(s.l.node(), on, s.l.draw(3) == 0) })
	return r
}

// read reads the instance from our list, or from Eureka's, which a node that is not ready refuses.
func (s *statuses) read(node string, on *history, eurekas bool) result {
	if eurekas {
		var doc struct{ Application struct{ Instance []Listed } }
		r := s.l.w.call(node, callPatience, "GET", "/eureka/apps/"+on.name, "")
		if r.decode(&doc) && len(doc.Application.Instance) == 1 {
			return result{value: shownBy(doc.Application.Instance[0].Status)}
		}
		return result{outcome: r.Outcome()}
	}
	var all []api.Instance
	switch r := s.l.ask("status", node, "GET", "/v1/rollcall/apps?app="+on.name, ""); {
	case !r.decode(&all):
		return result{outcome: Unknown}
	case len(all) == 0:
		return result{value: absent}
	}
	value, forced := shownBy(all[0].Status), all[0].Override
	switch {
	case (forced == nil) != (value == up):
		return result{value: impossible}
	case forced != nil && forced.Reason == "":
		return result{value: byClient}
	case forced != nil && forced.Drain:
		value, _ = strconv.Atoi(forced.Reason)
		value |= drains
	case forced != nil:
		value, _ = strconv.Atoi(forced.Reason)
	}
	return result{value: value}
}

// shownBy returns what a status says.
func shownBy(status string) int {
	switch status {
	case "UP":
		return up
	case "OUT_OF_SERVICE":
		return out
	}
	return impossible
}

// judge reads each instance once more at every node, and checks that some order of the operations explains what was
// seen.
func (s *statuses) judge(check checker) {
	if s == nil {
		return
	}
	for _, on := range s.all {
		for _, n := range s.l.w.nodes {
			if n.dc == 1 {
				s.add(0, on, operation{do: "read"}, func() result { return s.read(n.Name, on, false) })
			} else if far, here := s.read(n.Name, on, false), s.read(s.l.w.nodes[0].Name, on, false); far != here {
				s.l.w.Errorf("I7 converged: %s is %+v at %s, and %+v at %s", on.name, far, n.Name, here, s.l.w.nodes[0].Name)
			}
		}
		var back []porcupine.Operation
		for _, r := range s.l.d.restores {
			if r.outcome != Refused {
				back = append(back, s.restored(on, r))
			}
		}
		on.operations = append(on.operations, back...)
		s.explain(check, on, statusModel(s.l.d.mayBeOld))
	}
}

// restored returns a restore, which may bring back what had been asked for when its snapshot was saved.
func (s *statuses) restored(on *history, r restoring) porcupine.Operation {
	var values []int
	for _, op := range on.operations {
		if in := op.Input.(operation); in.value != 0 && op.Call <= int64(r.saved.Sub(began)) {
			values = append(values, in.value, in.value|drains)
		}
	}
	slices.Sort(values)
	return porcupine.Operation{
		ClientId: 9, Input: operation{do: "return", values: slices.Compact(values)}, Output: result{outcome: r.outcome},
		Call: int64(r.from.Sub(began)), Return: int64(r.to.Sub(began) + unknownTakes),
	}
}
