package balance

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// discover returns a list of instances as a Eureka server shows it.
func discover(t *testing.T, instances ...*registry.Instance) *client.Discovery {
	t.Helper()
	var leases []*registry.Lease
	for _, i := range instances {
		leases = append(leases, &registry.Lease{Instance: i})
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write(eureka.AppendApplications(nil, eureka.Format{}, eureka.FullVersion, "", slices.Values(leases)))
	}))
	t.Cleanup(server.Close)
	c := need.Got(client.New(client.Config{Servers: []string{server.URL}}))(t)
	t.Cleanup(func() { c.Close(t.Context()) })
	d := need.Got(c.StartDiscovery(client.DiscoveryConfig{Mode: client.RefreshFull}))(t)
	need.OK(t, d.Ready(t.Context()))
	return d
}

func TestAURLNamesAnApplicationOrAVIPAddress(t *testing.T) {
	orders := instances("ORDERS", 3)
	secure := registry.Port{Number: 8443, Enabled: true}
	for _, i := range orders {
		i.SecurePort, i.DataCenter.Name = secure, registry.MyOwn
	}
	orders[0].VIP, orders[0].SecureVIP = "shop,shop:7001", "safe"
	orders[1].VIP, orders[1].SecureVIP = "shop", "shop"
	orders[2].Status = registry.OutOfService
	d := discover(t, orders...)
	tests := []struct {
		name   string
		lookup func(*client.Snapshot, string, string) []*registry.Instance
		url    string
		want   []string // none: ErrNoInstance
	}{
		{name: "an application", url: "http://orders/", want: []string{"h0:8080", "h1:8080"}},
		{name: "in any case", url: "http://Orders/", want: []string{"h0:8080", "h1:8080"}},
		{name: "its secure port", url: "https://orders/", want: []string{"h0:8443", "h1:8443"}},
		{name: "another application", url: "http://stock/"},
		{name: "a port is no part of an application's name", url: "http://orders:8080/"},
		{name: "a VIP address is no application", url: "http://shop/"},
		{name: "a VIP address", lookup: ByVIP, url: "http://shop/", want: []string{"h0:8080", "h1:8080"}},
		{name: "a VIP address with a port", lookup: ByVIP, url: "http://shop:7001/", want: []string{"h0:8080"}},
		{name: "a secure VIP address", lookup: ByVIP, url: "https://shop/", want: []string{"h1:8443"}},
		{name: "a secure VIP address without https", lookup: ByVIP, url: "http://safe/"},
		{name: "an application is no VIP address", lookup: ByVIP, url: "http://orders/"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := &network{hosts: map[string]func(*http.Request) (*http.Response, error){}}
			for _, host := range []string{"h0:8080", "h1:8080", "h2:8080", "h0:8443", "h1:8443", "h2:8443"} {
				n.hosts[host] = ok
			}
			transport, err := New(Config{List: d, Lookup: test.lookup, Base: n})
			need.OK(t, err)
			for range max(1, len(test.want)) {
				_, err = get(t, transport, test.url)
			}
			asked := n.took()
			if slices.Sort(asked); !slices.Equal(asked, test.want) {
				t.Errorf("asked %v (%v), want %v", asked, err, test.want)
			}
			if len(test.want) == 0 && (!errors.Is(err, ErrNoInstance) || !strings.Contains(err.Error(), "none is UP")) {
				t.Errorf("got %v, want ErrNoInstance because none is UP", err)
			}
		})
	}
}

func TestAnEmptyListIsSaidToBeSo(t *testing.T) {
	transport := need.Got(New(Config{List: discover(t)}))(t)
	_, err := get(t, transport, "http://orders/")
	expect.That(t, errors.Is(err, ErrNoInstance) && strings.Contains(err.Error(), "Ready"), "got %v, want ErrNoInstance that says what to wait for", err)
}
