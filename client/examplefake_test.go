package client_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

// exampleCluster is a cluster of one server with a registry in memory. It has no locks, sessions and keys: examples
// that use them are compiled but not run.
type exampleCluster struct {
	*httptest.Server
	registry *fsmtest.Memory
}

// newClient returns a client of a server. end closes both.
func newClient() (c *client.Client, end func()) {
	server := newServer()
	c, err := client.New(client.Config{Servers: []string{server.URL}})
	check(err)
	return c, func() { c.Close(context.Background()); server.Close() }
}

// newRemoteClient returns a client of a cluster elsewhere.
func newRemoteClient() *client.Client {
	c, err := client.New(client.Config{Servers: []string{"http://127.0.0.1:8761"}})
	check(err)
	return c
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func newServer() *exampleCluster {
	s := &exampleCluster{registry: fsmtest.New()}
	own, err := httpd.New(httpd.Config{Service: s.registry, Cluster: s, Node: "1"})
	check(err)
	s.Server = httptest.NewServer(own)
	return s
}

// Status implements web.Cluster.
func (s *exampleCluster) Status(context.Context) api.Status {
	now := s.registry.Newest()
	return api.Status{Mode: "cp", Leader: "1", Nodes: []api.NodeStatus{
		{ID: "1", HTTP: s.Listener.Addr().String(), Role: "leader", Index: fmt.Sprintf("%s-%d", now.Epoch(), now.Index())},
	}}
}

// instance returns one that another process registered.
func instance(app, id, zone string) *registry.Instance {
	return &registry.Instance{
		InstanceID: id, HostName: id, App: strings.ToUpper(app), IPAddr: "10.0.0.1", Status: registry.Up,
		Port: registry.Port{Number: 8080, Enabled: true}, DataCenter: registry.DataCenter{Name: registry.MyOwn},
		VIP: app + ".internal", Metadata: []registry.Pair{{Key: "zone", Value: zone}}, LastDirty: 1,
	}
}

func newService(text string) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) }))
}

func instanceAt(server *httptest.Server, app string) *registry.Instance {
	address := server.Listener.Addr().(*net.TCPAddr)
	i := instance(app, app+"-1", "a")
	i.HostName, i.IPAddr, i.Port.Number = address.IP.String(), address.IP.String(), uint16(address.Port)
	return i
}

// What the services of the examples do.
func pingDatabase(context.Context) error                 { return nil }
func stopServing(context.Context)                        {}
func makeReport(context.Context) ([]byte, error)         { return []byte("42"), nil }
func schedule(ctx context.Context, token kv.Fence) error { return nil }
