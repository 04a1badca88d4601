// Command orders is a small service of many instances. Each registers itself, keeps a list of the instances of all
// services, and calls services by name.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/client/balance"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

func main() {
	var o options
	flag.StringVar(&o.servers, "servers", "http://127.0.0.1:8761", "the registry's servers, separated by commas")
	flag.StringVar(&o.listen, "listen", "127.0.0.1:0", "address to serve")
	flag.StringVar(&o.name, "name", "orders", "name of the service")
	flag.StringVar(&o.id, "id", "", "id of this instance; empty: HOST:NAME:PORT")
	flag.DurationVar(&o.lease, "lease", 30*time.Second, "how long the registry keeps an instance without a heartbeat")
	flag.DurationVar(&o.settle, "settle", time.Second, "time for callers to see that this instance leaves (stock Eureka clients: 30s)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	if err := run(ctx, o); err != nil {
		log.Fatal(err)
	}
}

type options struct {
	servers, listen, name, id string
	lease, settle             time.Duration
}

// run serves until ctx ends.
func run(ctx context.Context, o options) error {
	// An instance is called as soon as it is registered, so the process listens first.
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	c, err := client.New(client.Config{Servers: strings.Split(o.servers, ",")})
	if err != nil {
		return err
	}
	s, err := start(c, o.instance(listener.Addr().(*net.TCPAddr)), nil)
	if err != nil {
		return errors.Join(err, c.Close(ctx))
	}
	server := &http.Server{Handler: s.routes()}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	log.Printf("%s serves at %s", s.self.Instance().ID(), listener.Addr())
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	return errors.Join(err, s.leave(o.settle, server))
}

// instance describes this process to the registry, and so to other instances.
func (o options) instance(at *net.TCPAddr) *registry.Instance {
	i := client.NewInstance(o.name, uint16(at.Port))
	i.InstanceID = cmp.Or(o.id, i.InstanceID)
	if !at.IP.IsUnspecified() { // others must call the address that it listens on
		i.HostName, i.IPAddr = at.IP.String(), at.IP.String()
	}
	i.Duration = int32(o.lease.Seconds())
	i.RenewalInterval = max(1, i.Duration/3)
	return i
}

// service is this instance of the service, with what it needs to call others.
type service struct {
	client *client.Client
	self   *client.Registration
	others *client.Discovery
	http   *http.Client // calls services by their names
	down   atomic.Bool  // set by PUT /health; reported to the registry
}

// start registers an instance and starts keeping the list of the others. base sends the calls to services; nil means
// the default transport.
func start(c *client.Client, i *registry.Instance, base http.RoundTripper) (*service, error) {
	s := &service{client: c}
	var err error
	if s.self, err = c.StartRegistration(client.RegistrationConfig{
		Instance: i, Health: s.status, ReplicationDelay: 5 * time.Second, ReplicationInterval: 5 * time.Second,
	}); err != nil {
		return nil, err
	}
	if s.others, err = c.StartDiscovery(client.DiscoveryConfig{OnChange: logChanges}); err != nil {
		return nil, err
	}
	transport, err := balance.New(balance.Config{List: s.others, Base: base})
	s.http = &http.Client{Transport: transport, Timeout: 5 * time.Second}
	return s, err
}

// status is the health callback: the client calls it every few seconds, and reports what it returns to the registry.
func (s *service) status(context.Context, registry.Status) registry.Status {
	if s.down.Load() {
		return registry.Down
	}
	return registry.Up
}

func logChanges(old, new *client.Snapshot) {
	for i := range new.All() {
		if before := old.Instance(i.Key()); before == nil || before.Status != i.Status {
			log.Printf("%s is %s", i.Key(), i.Status)
		}
	}
	for i := range old.All() {
		if new.Instance(i.Key()) == nil {
			log.Printf("%s is gone", i.Key())
		}
	}
}

func (s *service) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, s.self.Instance().ID())
	})
	mux.HandleFunc("GET /call", s.call)
	mux.HandleFunc("GET /health", s.health)
	mux.HandleFunc("PUT /health", func(_ http.ResponseWriter, r *http.Request) {
		s.down.Store(r.FormValue("down") == "true")
	})
	return mux
}

// call calls the service that the parameter names, and passes its response on.
func (s *service) call(w http.ResponseWriter, r *http.Request) {
	u := url.URL{Scheme: "http", Host: r.FormValue("service"), Path: "/"}
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, u.String(), nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	resp, err := s.http.Do(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	w.WriteHeader(resp.StatusCode)
	io.Copy(w, resp.Body)
}

// health responds with 503 while the instance is down. It does not do so when only the registry is unreachable:
// instances that have this one in their lists keep calling it.
func (s *service) health(w http.ResponseWriter, _ *http.Request) {
	if s.down.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	fmt.Fprintln(w, s.self.Instance().Status)
	if err := s.self.Healthy(); err != nil {
		fmt.Fprintln(w, err)
	}
}

// leave ends the service without a failed call: first other instances stop calling it, then the calls under way end,
// and last its registration is canceled.
func (s *service) leave(settle time.Duration, server *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), settle+15*time.Second)
	defer cancel()
	// leaves time for the rest, which must be done in any case
	drain, cancel := context.WithTimeout(ctx, settle+5*time.Second)
	defer cancel()
	if err := s.self.Drain(drain, settle); err != nil {
		log.Print(err) // it is OUT_OF_SERVICE all the same, but some server, such as a dead one, may not know yet
	}
	return errors.Join(server.Shutdown(ctx), s.client.Close(ctx))
}
