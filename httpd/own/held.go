package own

import (
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/consul"
)

// kindWords are the names of the kinds of things that can be held.
var kindWords = [...]string{kv.Key: "key", kv.Lock: "lock", kv.Semaphore: "semaphore"}

// Session shows a session at a moment (lease clock, ms).
func Session(v *kv.View, now int64, s *kv.Session) api.Session {
	shown := api.Session{
		ID: s.ID, Name: s.Name, Node: consul.ShownNode(s.Node), TTL: s.TTLText, LockDelay: min(time.Duration(s.LockDelay), time.Duration(kv.MaxLockDelay)).String(),
		Behavior: consul.BehaviorWord(s.Behavior), Created: s.CreatedWall, AgeMS: max(now-s.CreatedAt, 0), Holds: []api.Acquisition{},
	}
	if ends := v.Ends(s); ends != 0 {
		shown.EndsInMS = max(ends-now, 1)
	}
	for held := range v.Held(s.ID) {
		shown.Holds = append(shown.Holds, api.Acquisition{Kind: kindWords[held.Kind], Name: held.Name, Fence: uint64(held.Index)})
	}
	return shown
}

// Permits shows a lock or semaphore at a moment (lease clock, ms).
func Permits(p *kv.Permits, now int64) api.Permits {
	return api.Permits{
		Name: p.Name, Limit: int(p.Limit), Holders: holders(p.Holders),
		Queue: listed(slices.Values(p.Queue), func(w kv.Waiter) api.Waiter {
			return api.Waiter{Session: w.Session, WaitedMS: max(now-w.Since, 0), LeftMS: max(w.Until-now, 0), Value: w.Value}
		}),
		DelaysMS: listed(slices.Values(p.Delays), func(until int64) int64 { return max(until-now, 0) }),
	}
}

// holders shows which sessions hold a lock or semaphore.
func holders(holders []kv.Holder) []api.Holder {
	return listed(slices.Values(holders), func(h kv.Holder) api.Holder {
		return api.Holder{Session: h.Session, Fence: uint64(h.Fence), Since: h.Wall, Value: h.Value}
	})
}
