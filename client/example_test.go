package client_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/client/balance"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// A service registers itself, finds another one, and leaves in order.
func Example() {
	server := newServer() // instead of a cluster
	defer server.Close()
	ctx := context.Background()

	c, err := client.New(client.Config{Servers: []string{server.URL}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)

	self, err := c.StartRegistration(client.RegistrationConfig{Instance: client.NewInstance("orders", 8080)})
	if err != nil {
		log.Fatal(err)
	}
	if err := self.Registered(ctx); err != nil {
		log.Fatal(err)
	}

	others, err := c.StartDiscovery(client.DiscoveryConfig{App: "orders"})
	if err != nil {
		log.Fatal(err)
	}
	if err := others.Ready(ctx); err != nil {
		log.Fatal(err)
	}
	for _, i := range others.Snapshot().App("orders") {
		fmt.Println(i.App, i.Status, i.Port.Number)
	}
	// Output: ORDERS UP 8080
}

// What a service needs with a cluster of three servers: three statements to register, to discover, and to run
// something in one process at a time.
func ExampleClient() {
	ctx := context.Background()

	c, err := client.New(client.Config{Servers: []string{"http://127.0.0.1:8761", "http://127.0.0.1:8762", "http://127.0.0.1:8763"}})
	check(err)
	defer c.Close(ctx)
	self, err := c.StartRegistration(client.RegistrationConfig{Instance: client.NewInstance("orders", 8080)})
	check(err)

	payments, err := c.StartDiscovery(client.DiscoveryConfig{App: "payments"})
	check(err)
	err = payments.Ready(ctx)
	check(err)
	instances := payments.Snapshot().App("payments")

	lock, err := c.AcquireLock(ctx, client.LockOptions{Name: "report"})
	check(err)
	defer lock.Release(ctx)
	report, err := makeReport(lock.Context()) // ends when the lock is lost
	check(err)
	log.Println(self.Instance().Key(), len(instances), len(report))
}

// A client of servers that require certificates and tokens.
func ExampleConfig() {
	own, err := tls.LoadX509KeyPair("orders.crt", "orders.key")
	check(err)
	authorities := x509.NewCertPool()
	if pem, err := os.ReadFile("ca.crt"); err != nil || !authorities.AppendCertsFromPEM(pem) {
		log.Fatal("no authority in ca.crt: ", err)
	}
	token := func(context.Context) (string, error) {
		text, err := os.ReadFile("/var/run/secrets/rollcall/token") // read again for each request
		return string(text), err
	}

	c, err := client.New(client.Config{
		Servers:    []string{"https://rollcall-1.internal:8761", "https://rollcall-2.internal:8761"},
		TLS:        &tls.Config{RootCAs: authorities, Certificates: []tls.Certificate{own}},
		Auth:       client.BearerAuth(token),
		Log:        slog.Default(),
		Registerer: prometheus.DefaultRegisterer,
	})
	check(err)
	defer c.Close(context.Background())
}

// Servers that are looked up in DNS, again every five minutes and when none of them responds.
func ExampleServerSource() {
	lookup := func(ctx context.Context) ([]string, error) {
		hosts, err := net.DefaultResolver.LookupHost(ctx, "rollcall.internal")
		var urls []string
		for _, h := range hosts {
			urls = append(urls, "http://"+net.JoinHostPort(h, "8761"))
		}
		return urls, err
	}
	c, err := client.New(client.Config{Source: lookup})
	check(err)
	defer c.Close(context.Background())
}

// Two clients in one process, told apart by a label.
func ExampleConfig_registerer() {
	metrics := prometheus.NewRegistry()
	for _, datacenter := range []string{"dc1", "dc2"} {
		c, err := client.New(client.Config{
			Servers:    []string{"http://rollcall." + datacenter + ".internal:8761"},
			Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"datacenter": datacenter}, metrics),
		})
		check(err)
		defer c.Close(context.Background())
	}
}

// An instance with a short lease, a zone, and a status that follows its database.
func ExampleClient_StartRegistration() {
	c, end := newClient()
	defer end()

	instance := client.NewInstance("orders", 8080)
	instance.RenewalInterval, instance.Duration = 5, 15 // seconds
	instance.Metadata = []registry.Pair{{Key: "zone", Value: "a"}}
	self, err := c.StartRegistration(client.RegistrationConfig{
		Instance:            instance,
		ReplicationInterval: 10 * time.Second,
		Health: func(ctx context.Context, current registry.Status) registry.Status {
			if pingDatabase(ctx) != nil {
				return registry.Down
			}
			return registry.Up
		},
	})
	check(err)
	check(self.Registered(context.Background()))
	fmt.Println(self.Instance().Status, "renewed every", self.Interval())
	// Output: UP renewed every 5s
}

// A probe that fails when the cluster has not heard from the instance for as long as its lease lasts.
func ExampleRegistration_Healthy() {
	c, end := newClient()
	defer end()
	self, err := c.StartRegistration(client.RegistrationConfig{Instance: client.NewInstance("orders", 8080)})
	check(err)
	check(self.Registered(context.Background()))

	http.HandleFunc("/ready", func(w http.ResponseWriter, _ *http.Request) {
		if err := self.Healthy(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	fmt.Println(self.Healthy())
	// Output: <nil>
}

// A service stops without a failed call: first callers stop being sent to it, then it ends.
func ExampleRegistration_Drain() {
	c, end := newClient()
	defer end()
	self, err := c.StartRegistration(client.RegistrationConfig{Instance: client.NewInstance("orders", 8080)})
	check(err)
	check(self.Registered(context.Background()))

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	settle := 10 * time.Millisecond // 30 * time.Second if stock clients call this service
	if err := self.Drain(ctx, settle); err != nil {
		log.Println(err) // it is OUT_OF_SERVICE all the same, but some clients may not know
	}
	stopServing(ctx) // http.Server.Shutdown, for example
	if err := c.Close(ctx); err != nil {
		log.Println(err) // its lease will expire
	}
	fmt.Println(self.Instance().Status)
	// Output: OUT_OF_SERVICE
}

// Discovery says which instances to call, and which of them came and went.
func ExampleClient_StartDiscovery() {
	c, end := newClient()
	defer end()
	ctx := context.Background()

	check(c.Register(ctx, instance("payments", "payments-1", "a")))
	changes := make(chan string, 10)
	payments, err := c.StartDiscovery(client.DiscoveryConfig{
		App: "payments",
		OnChange: func(old, new *client.Snapshot) {
			changes <- fmt.Sprintf("%d instances, then %d", old.Len(), new.Len())
		},
	})
	check(err)
	check(payments.Ready(ctx))
	fmt.Println(<-changes)

	check(c.Register(ctx, instance("payments", "payments-2", "b")))
	fmt.Println(<-changes)
	for _, i := range payments.Snapshot().App("payments") {
		fmt.Println(i.ID(), net.JoinHostPort(i.IPAddr, fmt.Sprint(i.Port.Number)))
	}
	// Output:
	// 0 instances, then 1
	// 1 instances, then 2
	// payments-1 10.0.0.1:8080
	// payments-2 10.0.0.1:8080
}

// A list that outlives a restart of the process, and never believes a full response that lacks more than a fifth of
// an application.
func ExampleDiscoveryConfig() {
	c, err := client.New(client.Config{Servers: []string{"http://127.0.0.1:8761"}})
	check(err)
	defer c.Close(context.Background())

	all, err := c.StartDiscovery(client.DiscoveryConfig{
		File:  "/var/lib/orders/instances.json",
		Guard: client.Guard{Share: 0.2, Hold: 5 * time.Minute},
	})
	check(err)
	now := all.Status()
	fmt.Println("from", now.Source, "of", now.Server, "age", now.Age, "held", now.Held, now.Err)
}

// All applications: by name, by VIP address, and nearby.
func ExampleDiscovery_Snapshot() {
	c, end := newClient()
	defer end()
	ctx := context.Background()
	for _, i := range []*registry.Instance{instance("orders", "orders-1", "a"), instance("orders", "orders-2", "b"), instance("payments", "payments-1", "a")} {
		if err := c.Register(ctx, i); err != nil {
			log.Fatal(err)
		}
	}

	all, err := c.StartDiscovery(client.DiscoveryConfig{})
	check(err)
	check(all.Ready(ctx))
	list := all.Snapshot() // no longer changes
	fmt.Println(list.Apps(), list.Len())
	for _, i := range list.App("orders") {
		fmt.Println("application:", i.ID())
	}
	for _, i := range list.VIP("payments.internal") {
		fmt.Println("VIP address:", i.ID())
	}
	for _, i := range client.PreferZone("b", list.App("orders")) {
		fmt.Println("zone b:", i.ID())
	}
	// Output:
	// [ORDERS PAYMENTS] 3
	// application: orders-1
	// application: orders-2
	// VIP address: payments-1
	// zone b: orders-2
}

// Calls of a service by its name, through whichever of its instances is UP, those of zone a first.
func Example_calls() {
	server, invoices := newServer(), newService("paid")
	defer server.Close()
	defer invoices.Close()
	ctx := context.Background()
	c, err := client.New(client.Config{Servers: []string{server.URL}})
	check(err)
	defer c.Close(ctx)
	check(c.Register(ctx, instanceAt(invoices, "payments")))

	payments, err := c.StartDiscovery(client.DiscoveryConfig{App: "payments"})
	check(err)
	err = payments.Ready(ctx)
	check(err)
	transport, err := balance.New(balance.Config{List: payments, Picker: balance.InZone("a", nil)})
	check(err)
	web := &http.Client{Transport: transport}
	defer web.CloseIdleConnections()
	answer, err := web.Get("http://payments/invoices/7")
	check(err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	fmt.Println(string(text), err)
	// Output: paid <nil>
}

// A job that one process does at a time. Its result is written under the lock's token, so that a holder that slept
// through the end of its lock changes nothing.
func ExampleClient_AcquireLock() {
	c, ctx := newRemoteClient(), context.Background()
	defer c.Close(ctx)

	lock, err := c.AcquireLock(ctx, client.LockOptions{Name: "report"})
	check(err)
	report, err := makeReport(lock.Context()) // ends when the lock is lost
	check(err)
	fence := lock.Fence()
	written, err := c.KV().Write(ctx, client.Write{Key: "report", Value: report, Fence: &fence})
	fmt.Println("while it is held:", written.OK, err)

	check(lock.Release(ctx))
	written, err = c.KV().Write(ctx, client.Write{Key: "report", Value: report, Fence: &fence})
	fmt.Println("afterwards:", written.OK, err)
	fmt.Println(errors.Is(lock.Err(), client.ErrReleased))
}

// A key that belongs to a session: it is free again when the session ends.
func ExampleClient_KeepSession() {
	c, ctx := newRemoteClient(), context.Background()
	defer c.Close(ctx)

	session, err := c.KeepSession(ctx, client.SessionOptions{Name: "worker", TTL: 15 * time.Second})
	check(err)
	written, err := c.KV().Write(ctx, client.Write{Key: "partitions/7", Value: []byte("worker-1"), Acquire: session.ID()})
	check(err)
	fmt.Println("mine:", written.OK)
	fmt.Println("kept:", session.Context().Err() == nil)
	check(session.Close(ctx))
	fmt.Println("kept:", session.Context().Err() == nil)
}

// One leader among several processes, for as long as it leads.
func ExampleClient_Elect() {
	c, ctx := newRemoteClient(), context.Background()
	defer c.Close(ctx)

	err := c.Elect(ctx, client.LockOptions{Name: "scheduler", Value: []byte("node-1")}, func(ctx context.Context, h *client.Held) error {
		fmt.Println("leads")
		return schedule(ctx, h.Fence()) // until ctx ends, or it has had enough
	})
	fmt.Println(err)
}
