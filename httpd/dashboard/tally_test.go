package dashboard

import (
	"context"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// counted has instances registered, and counts them.
type counted struct {
	*testing.T
	*registrytest.Memory
	tally tally
	now   time.Time
}

func (c *counted) register(app, id string, s registry.Status) {
	c.Helper()
	_, err := c.Apply(context.Background(), registry.FromClient, registry.Register{Instance: &registry.Instance{InstanceID: id, App: app, HostName: "h", Status: s}})
	need.OK(c.T, err)
}

func (c *counted) cancel(app, id string) {
	c.Helper()
	_, err := c.Apply(context.Background(), registry.FromClient, registry.Cancel{Key: registry.NewKey(app, id)})
	need.OK(c.T, err)
}

func (c *counted) of(app string) appCount {
	c.Helper()
	v := need.Got(c.View(context.Background(), registry.Stale))(c.T)
	for _, a := range c.tally.of(v, c.now) {
		if a.Name == app {
			return a
		}
	}
	return appCount{}
}

func TestTallyFollowsChangesAndRemembersWhatWasUp(t *testing.T) {
	c := &counted{T: t, Memory: registrytest.New(), now: noon}
	for _, id := range []string{"a", "b", "c", "d"} {
		c.register("ORDERS", id, registry.Up)
	}
	c.register("PAY", "p", registry.Down)
	orders, pay := c.of("ORDERS"), c.of("PAY")
	expect.That(t, orders.Up() == 4 && orders.trouble() == sound && pay.Up() == 0 && pay.Total == 1 && pay.trouble() == empty, "got %+v, %+v", orders, pay)

	c.now = c.now.Add(time.Minute)
	_ = c.of("ORDERS") // the minute ends
	c.cancel("ORDERS", "a")
	expect.Equal(t, c.of("ORDERS").trouble(), sound, "three of four are")
	c.cancel("ORDERS", "b")
	expect.Equal(t, c.of("ORDERS").trouble(), halved, "two of four are")
	c.cancel("ORDERS", "c")
	c.cancel("ORDERS", "d")
	gone := c.of("ORDERS")
	expect.That(t, gone.Name != "" && gone.trouble() == empty && gone.before() == 4, "an application that is gone is %+v", gone)

	c.now = c.now.Add((rememberedMinutes + 1) * time.Minute)
	expect.Equal(t, c.of("ORDERS").Name, "", "after ten minutes it is forgotten")
}

func TestTallyCountsAgainOnlyWhatChanged(t *testing.T) {
	c := &counted{T: t, Memory: registrytest.New(), now: noon}
	c.register("ORDERS", "a", registry.Up)
	c.register("PAY", "p", registry.Up)
	_ = c.of("PAY")
	c.tally.apps["PAY"].Total = 99 // only another count would find that
	c.register("ORDERS", "b", registry.Up)
	expect.That(t, c.of("PAY").Total == 99 && c.of("ORDERS").Total == 2, "it counted %+v", c.of("PAY"))
	c.register("PAY", "q", registry.Up)
	expect.Equal(t, c.of("PAY").Total, 2, "after a change it has")
}
