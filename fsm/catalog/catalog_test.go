package catalog_test

import (
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/order"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// place registers a service as package registry does, whose key is its name and id.
func place(c *catalog.Catalog, r catalog.Registration, at catalog.Moment) {
	reg := c.Registering(r)
	_, old, _ := c.Service(reg.On(), r.Service.ID)
	c.ReplaceService(order.Key{App: r.Service.Name, ID: r.Service.ID}, old, reg.ServiceAfter(old, at), at)
}

func web(checks ...*catalog.Check) catalog.Registration {
	return catalog.Registration{Service: &catalog.Service{Name: "web", ID: "web-1", Address: "10.0.0.1"}, Checks: checks}
}

func TestCatalogCheckIsDueAfterItsLastHeartbeat(t *testing.T) {
	c := catalog.New()
	place(c, web(&catalog.Check{ID: "ttl", Service: "web-1", TTL: 1000}), catalog.Moment{Lease: 5000, Next: 1})
	row, ok := c.Check("", "ttl")
	need.That(t, ok && row.Of == (order.Key{App: "web", ID: "web-1"}) && row.LastBeat() == 5000, "the check is found as %+v", row)
	row.Beat(5500)
	expect.That(t, len(c.Due(6500, 0)) == 0, "due at the last millisecond: %v", c.Due(6500, 0))
	due := c.Due(6501, 0)
	expect.That(t, len(due) == 1 && due[0].Expires(), "due afterwards: %v, want the check, to expire", due)
	need.OKf(t, c.Verify(0), "the catalog")
}

func TestCatalogSharesOneCopyUntilItChanges(t *testing.T) {
	c := catalog.New()
	empty := c.Share()
	expect.That(t, c.Share() == empty, "a second copy was made though nothing changed")
	place(c, web(), catalog.Moment{Next: 1})
	_, _, before := empty.Service("", "web-1")
	_, _, after := c.Share().Service("", "web-1")
	expect.That(t, !before && after, "the service is in the earlier copy: %t, in the later one: %t", before, after)
}

func TestRegistrationRefusals(t *testing.T) {
	elsewhere := web()
	elsewhere.Service.Address = "10.0.0.2"
	many := make([]*catalog.Check, catalog.MaxServiceChecks+1)
	for i := range many {
		many[i] = &catalog.Check{ID: string(rune('A' + i)), Service: "web-1"}
	}
	for _, tt := range []struct {
		name string
		reg  catalog.Registration
		want catalog.Refusal
	}{
		{"the same again", web(), catalog.Accepted},
		{"another address", elsewhere, catalog.AddressTaken},
		{"a check of another service", web(&catalog.Check{ID: "alive", Service: "web-2"}), catalog.CheckTaken},
		{"a service that is not there", web(&catalog.Check{ID: "new", Service: "web-2"}), catalog.UnknownService},
		{"too many checks", web(many...), catalog.TooManyChecks},
	} {
		c := catalog.New()
		place(c, web(&catalog.Check{ID: "alive", Service: "web-1"}), catalog.Moment{Next: 1})
		expect.Equal(t, c.Registering(tt.reg).Refusal(), tt.want, "%s: refusal", tt.name)
	}
}

func TestLostHasWhatTurnedCriticalOrWasRemoved(t *testing.T) {
	c := catalog.New()
	place(c, web(&catalog.Check{ID: "alive", Service: "web-1"}), catalog.Moment{Next: 1})
	expect.That(t, len(c.Lost()) == 0, "a new check was lost")
	place(c, web(&catalog.Check{ID: "alive", Service: "web-1", Status: catalog.Critical}), catalog.Moment{Next: 2})
	expect.Slice(t, c.Lost(), []catalog.CheckRef{{ID: "alive"}}, "lost when it turns critical:")
	_, s, _ := c.Service("", "web-1")
	c.ReplaceService(order.Key{App: "web", ID: "web-1"}, s, nil, catalog.Moment{Next: 3})
	expect.Slice(t, c.Lost(), []catalog.CheckRef{{ID: "alive"}}, "lost with its service:")
	expect.That(t, len(c.Lost()) == 0, "it is lost twice")
}
