package grpcresolver

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// connection writes down what it is told.
type connection struct {
	resolver.ClientConn
	told   []string
	config *serviceconfig.ParseResult
	badly  error // what comes of parsing a service config
}

func (c *connection) UpdateState(s resolver.State) error {
	var addresses []string
	for _, a := range s.Addresses {
		addresses = append(addresses, a.Addr)
	}
	c.told = append(c.told, fmt.Sprintf("at %v", addresses))
	c.config = s.ServiceConfig
	return errors.New("asks for another resolution")
}

func (c *connection) ReportError(err error) { c.told = append(c.told, err.Error()) }

func (c *connection) ParseServiceConfig(string) *serviceconfig.ParseResult {
	return &serviceconfig.ParseResult{Err: c.badly}
}

// take returns what it was told since the last time.
func (c *connection) take() []string {
	told := c.told
	c.told = nil
	return told
}

func build(t *testing.T, list List, target string, cc resolver.ClientConn, options resolver.BuildOptions) (resolver.Resolver, error) {
	t.Helper()
	b, err := NewBuilder(list, Config{})
	need.OK(t, err)
	u, err := url.Parse(target)
	need.OK(t, err)
	return b.Build(resolver.Target{URL: *u}, cc, options)
}

func TestConnectionsAreToldOfTheChangesOfTheirServiceOnly(t *testing.T) {
	a, b := instance("o1", "a", 80), instance("o2", "b", 80)
	mute := with(a, func(i *registry.Instance) { i.Port.Enabled = false })
	other := with(instance("s1", "s", 80), func(i *registry.Instance) { i.App = "STOCK" })
	list := newFakeList(t)
	cc := new(connection)
	r, err := build(t, list, "rollcall:///orders", cc, resolver.BuildOptions{})
	need.OK(t, err)
	const none = `no instance of application "orders" is UP`
	steps := []struct {
		name      string
		instances []*registry.Instance
		want      []string
	}{
		{name: "nothing at first", want: []string{none + ": the list of all instances is empty (Discovery.Ready waits for it)"}},
		{name: "another service", instances: []*registry.Instance{other}, want: []string{none}},
		{name: "another instance of it", instances: []*registry.Instance{other, with(other, func(i *registry.Instance) { i.InstanceID = "s2" })}},
		{name: "the first", instances: []*registry.Instance{other, a}, want: []string{"at [a:80]"}},
		{name: "a second", instances: []*registry.Instance{other, a, b}, want: []string{"at [a:80 b:80]"}},
		{name: "metadata that matters to nobody", instances: []*registry.Instance{a, with(b, func(i *registry.Instance) { i.Metadata = []registry.Pair{{Key: "version", Value: "2"}} })}},
		{name: "the same in another place", instances: []*registry.Instance{with(a, func(i *registry.Instance) { i.InstanceID = "o3" }), b}},
		{name: "one is drained", instances: []*registry.Instance{with(a, func(i *registry.Instance) { i.Status = registry.OutOfService }), b}, want: []string{"at [b:80]"}},
		{name: "one elsewhere", instances: []*registry.Instance{a}, want: []string{"at [a:80]"}},
		{name: "one that speaks no gRPC", instances: []*registry.Instance{mute}, want: []string{"at []",
			`none of the 1 instances of application "orders" that are UP says where it speaks gRPC; register an enabled port or metadata gRPC_port`}},
		{name: "none any more", instances: []*registry.Instance{other}, want: []string{none}},
		{name: "one again", instances: []*registry.Instance{b}, want: []string{"at [b:80]"}},
		{name: "the last goes", instances: []*registry.Instance{other}, want: []string{"at []", none}},
	}
	for _, s := range steps {
		list.set(t, s.instances...)
		expect.Slice(t, cc.take(), s.want, "%s: told", s.name)
	}
	r.ResolveNow(resolver.ResolveNowOptions{})
	r.Close()
	list.set(t, a)
	if got := cc.take(); got != nil || list.subscribers() != 0 {
		t.Errorf("after Close: told %q, with %d subscriptions", got, list.subscribers())
	}
}

// restless is a list that changes while it is looked at for the first time.
type restless struct {
	*fakeList
	next    *client.Snapshot
	once    sync.Once
	changed sync.WaitGroup
}

func (l *restless) Snapshot() *client.Snapshot {
	seen := l.fakeList.Snapshot()
	l.once.Do(func() { l.changed.Go(l.change(l.next)) })
	return seen
}

func TestAChangeDuringTheFirstLookIsNotMissed(t *testing.T) {
	list := &restless{fakeList: newFakeList(t, instance("o1", "a", 80)), next: snapshotOf(t, instance("o2", "b", 80))}
	cc := new(connection)
	r, err := build(t, list, "rollcall:///orders", cc, resolver.BuildOptions{})
	need.OK(t, err)
	list.changed.Wait()
	r.Close()
	got := cc.take()
	expect.That(t, len(got) != 0 && got[len(got)-1] == "at [b:80]", "told %q; the list ends with b:80", got)
}

func TestTargetsNameServices(t *testing.T) {
	app := instance("o1", "app", 80)
	vip := with(instance("p1", "vip", 80), func(i *registry.Instance) { i.App, i.VIP = "P", "charges,Payments" })
	svip := with(instance("q1", "svip", 80), func(i *registry.Instance) {
		i.App, i.SecureVIP, i.SecurePort = "Q", "payments", registry.Port{Number: 443, Enabled: true}
	})
	list := newFakeList(t, app, vip, svip)
	cases := []struct{ target, told, fails string }{
		{target: "rollcall:///orders", told: "at [app:80]"},
		{target: "rollcall:///ORDERS", told: "at [app:80]"},
		{target: "rollcall:orders", told: "at [app:80]"},
		{target: "rollcall://vip/payments", told: "at [vip:80]"},
		{target: "rollcall://svip/Payments", told: "at [svip:443]"},
		{target: "rollcall://vip/orders", told: `no instance of VIP address "orders" is UP`},
		{target: "rollcall://svip/charges", told: `no instance of secure VIP address "charges" is UP`},
		{target: "rollcall://zone/orders", fails: `target "rollcall://zone/orders" has the unknown authority "zone"; targets are rollcall:///APPLICATION, `},
		{target: "rollcall://vip:80/orders", fails: `unknown authority "vip:80"`},
		{target: "rollcall://orders", fails: `target "rollcall://orders" names no service; targets are rollcall:///APPLICATION, `},
		{target: "rollcall:///", fails: "names no service"},
	}
	for _, c := range cases {
		t.Run(c.target, func(t *testing.T) {
			cc := new(connection)
			r, err := build(t, list, c.target, cc, resolver.BuildOptions{})
			if c.fails != "" {
				expect.That(t, err != nil && strings.Contains(err.Error(), c.fails), "got %v, want %s", err, c.fails)
				return
			}
			need.OK(t, err)
			defer r.Close()
			got := cc.take()
			expect.That(t, slices.Equal(got, []string{c.told}), "told %q, want %q", got, c.told)
		})
	}
	if list.subscribers() != 0 {
		t.Errorf("%d subscriptions are left", list.subscribers())
	}
}

func TestTheServiceConfigIsLeftOutWhereItIsNotWanted(t *testing.T) {
	list := newFakeList(t, instance("o1", "a", 80))
	for _, disabled := range []bool{false, true} {
		cc := new(connection)
		r, err := build(t, list, "rollcall:///orders", cc, resolver.BuildOptions{DisableServiceConfig: disabled})
		need.OK(t, err)
		r.Close()
		got := cc.config == nil
		expect.That(t, got == disabled, "disabled %v: the service config is %v", disabled, cc.config)
	}
}

func TestAServiceConfigThatGRPCRefusesIsToldAtOnce(t *testing.T) {
	refused := errors.New("no such policy")
	expect.ErrorIs(t, expect.Err(build(t, newFakeList(t), "rollcall:///orders", &connection{badly: refused}, resolver.BuildOptions{})), refused, "got")
}

func TestABuilderNeedsAList(t *testing.T) {
	_, err := NewBuilder(nil, Config{})
	expect.That(t, err != nil && err.Error() == "no list is given; give a *client.Discovery", "got %v", err)
}
