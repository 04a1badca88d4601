package replication

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// The file is a batch as Netflix's own server writes it. What we tell of the same instances is the
// same, key by key, but for times that each server has for itself.
func TestOurItemsAreThoseOfNetflixsOwnServer(t *testing.T) {
	body := need.Got(os.ReadFile("testdata/eureka-batch.json"))(t)
	items := need.Got(eureka.DecodeBatch(body))(t)
	theirs := looseItems(t, body)
	for n, i := range items {
		t.Run(i.Action.String()+" "+i.ID, func(t *testing.T) {
			f := newFakeEureka(t)
			s := newEurekaSide(t, PeerConfig{URLs: []string{f.service()}})
			k := key(i.App, i.ID)
			in := instance(i.App, i.ID, i.LastDirty)
			if i.Lease != nil {
				in = i.Lease.Instance
			}
			s.Perform(t, register(in))
			told := task{key: k, facts: registered}
			switch i.Action {
			case eureka.Heartbeat:
				told.facts = heartbeat
				if i.Overridden != registry.Unknown {
					s.Perform(t, registry.SetOverride{Key: k, Status: i.Overridden})
				}
			case eureka.StatusUpdate:
				told.facts = overridden
				s.Perform(t, registry.SetOverride{Key: k, Status: i.Status})
			case eureka.DeleteStatusOverride:
				told.facts = overridden
				s.Perform(t, registry.SetOverride{Key: k, Status: registry.Down}, registry.DeleteOverride{Key: k, Fallback: i.Status})
			case eureka.Cancel:
				told.facts = canceled
			}
			got := s.link.Process(t.Context(), told)
			need.That(t, got == 0, "result %d, failures %q", got, s.failures)
			batches, _ := f.received()
			expect.Deep(t, looseItems(t, []byte(batches[0].Body))[0], theirs[n], "told as")
		})
	}
}

// looseItems are the items of a batch as they are written, without the times of the server.
func looseItems(t testing.TB, body []byte) []map[string]any {
	t.Helper()
	var list struct {
		Items []map[string]any `json:"replicationList"`
	}
	need.OK(t, json.Unmarshal(body, &list))
	for _, i := range list.Items {
		instance, ok := i["instanceInfo"].(map[string]any)
		if !ok {
			continue
		}
		instance["lastUpdatedTimestamp"] = "its own"
		lease := instance["leaseInfo"].(map[string]any)
		for _, name := range []string{"registrationTimestamp", "lastRenewalTimestamp", "serviceUpTimestamp"} {
			lease[name] = "its own"
		}
	}
	return list.Items
}
