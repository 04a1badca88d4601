package integration

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// Alias checks beyond the bound are refused with it, and while heartbeats flip the check that all others follow, no
// heartbeat of another application fails. The whole of what was reported is 1,500 services.
func TestAliasesWithoutEndAreRefusedAndOthersLive(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{})
	n := c.Others(c.Leader())[0]
	put := func(path, body string) Response {
		return n.Do(Request{Method: "PUT", Path: "/agent/web-1/v1/agent/" + path, ContentType: "application/json", Body: []byte(body)})
	}
	r := put("service/register", `{"Name":"target","Check":{"CheckID":"ttl","TTL":"1h"}}`)
	need.That(t, r.Status == 200, "the target: %v", r)
	const services, each = 24, 64
	refused := 0
	for i := range services {
		checks := strings.Repeat(`{"AliasService":"target","AliasNode":"web-1"},`, each)
		r := put("service/register", fmt.Sprintf(`{"Name":"follower","ID":"f%d","Checks":[%s]}`, i, strings.TrimSuffix(checks, ",")))
		if r.Status == 400 {
			expect.That(t, strings.Contains(string(r.Body), "Invalid check: at most 1000 alias checks may follow"), "service %d: %v", i, r)
			refused++
			continue
		}
		expect.That(t, r.Status == 200, "service %d: %v", i, r)
	}
	expect.Equal(t, refused, services-1000/each, "refused of 24 services:")
	mustRegister(t, n, Instance{App: "OTHER", ID: "o", Duration: 90})
	var flips sync.WaitGroup
	var flipping atomic.Int32
	for k := range 4 {
		flipping.Add(1)
		flips.Go(func() {
			defer flipping.Add(-1)
			for i := range 50 {
				r := put("check/"+[]string{"fail", "pass"}[(i+k)%2]+"/ttl", "")
				expect.That(t, r.Status == 200, "a flip: %v", r)
			}
		})
	}
	beats := 0
	for ; flipping.Load() > 0 || beats == 0; beats++ {
		r := n.Renew("OTHER", "o")
		expect.That(t, r.Outcome() == Done, "a heartbeat of another application: %v", r)
	}
	flips.Wait()
	expect.That(t, beats > 10, "only %d heartbeats were sent meanwhile", beats)
}
