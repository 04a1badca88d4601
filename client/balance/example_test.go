package balance_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/client/balance"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// An ordinary http.Client calls a service by its name.
func Example() {
	depot := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s: 12 pieces", r.URL.Path)
	}))
	defer depot.Close()
	registryServer := startRegistry("depot", depot) // instead of a cluster
	defer registryServer.Close()
	ctx := context.Background()

	c, err := client.New(client.Config{Servers: []string{registryServer.URL}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	instances, err := c.StartDiscovery(client.DiscoveryConfig{})
	if err != nil {
		log.Fatal(err)
	}
	if err := instances.Ready(ctx); err != nil {
		log.Fatal(err)
	}
	transport, err := balance.New(balance.Config{List: instances})
	if err != nil {
		log.Fatal(err)
	}
	calls := &http.Client{Transport: transport, Timeout: 5 * time.Second}
	defer calls.CloseIdleConnections()

	resp, err := calls.Get("http://depot/tea")
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(body))
	// Output: /tea: 12 pieces
}

// Instances in our own zone are called while there are any.
func ExampleInZone() {
	instance := func(id, zone string) *registry.Instance {
		return &registry.Instance{App: "DEPOT", InstanceID: id, Metadata: []registry.Pair{{Key: "zone", Value: zone}}}
	}
	near := balance.InZone("eu-1a", nil)
	all := []*registry.Instance{instance("depot-1", "eu-1a"), instance("depot-2", "eu-1b"), instance("depot-3", "eu-1b")}
	fmt.Println(near.Pick(all).ID(), near.Pick(all).ID())
	fmt.Println(len(all[1:]), "others, if there is none:", near.Pick(all[1:]).ID() != "depot-1")
	// Output:
	// depot-1 depot-1
	// 2 others, if there is none: true
}

// Services are found by their VIP addresses, and called by their IP addresses, because they run in containers whose
// host names cannot be resolved. Base does mutual TLS.
func ExampleConfig() {
	var instances *client.Discovery // as StartDiscovery returns it
	var secured *http.Transport     // with certificates in its TLSClientConfig
	transport, err := balance.New(balance.Config{
		List:   instances,
		Lookup: balance.ByVIP,
		Host:   balance.ByIP,
		Picker: balance.InZone("eu-1a", nil),
		Base:   secured,
	})
	if err != nil {
		log.Fatal(err)
	}
	calls := &http.Client{Transport: transport}
	calls.Get("https://orders.example.com/")
}

// startRegistry starts a Eureka server that lists one instance of an application: a server that already runs.
func startRegistry(app string, instance *httptest.Server) *httptest.Server {
	at := instance.Listener.Addr().(*net.TCPAddr)
	i := client.NewInstance(app, uint16(at.Port))
	i.HostName, i.IPAddr = at.IP.String(), at.IP.String()
	lease := &registry.Lease{Instance: i}
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write(eureka.AppendApplications(nil, eureka.Format{}, eureka.FullVersion, "", slices.Values([]*registry.Lease{lease})))
	}))
}
