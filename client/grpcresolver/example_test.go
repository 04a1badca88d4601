package grpcresolver_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/client/grpcresolver"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// A gRPC client that finds the application orders by its name.
func Example() {
	server := newServer() // instead of a cluster
	defer server.Close()
	ctx := context.Background()

	c, err := client.New(client.Config{Servers: []string{server.URL}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	list, err := c.StartDiscovery(client.DiscoveryConfig{})
	if err != nil {
		log.Fatal(err)
	}
	if err := list.Ready(ctx); err != nil {
		log.Fatal(err)
	}

	builder, err := grpcresolver.NewBuilder(list, grpcresolver.Config{})
	if err != nil {
		log.Fatal(err)
	}
	conn, err := grpc.NewClient("rollcall:///orders", grpc.WithResolvers(builder),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()

	answer, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, new(grpc_health_v1.HealthCheckRequest))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Status)
	// Output: SERVING
}

// exampleServer lists one instance of application orders, which serves gRPC as long as the server runs.
type exampleServer struct {
	*httptest.Server
	orders *grpc.Server
}

func newServer() exampleServer {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	orders := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(orders, health.NewServer())
	go orders.Serve(listener)

	i := &registry.Instance{
		App: "ORDERS", InstanceID: "orders-1", HostName: "127.0.0.1", IPAddr: "127.0.0.1", Status: registry.Up,
		DataCenter: registry.DataCenter{Name: registry.MyOwn},
		Metadata:   []registry.Pair{{Key: "gRPC_port", Value: fmt.Sprint(listener.Addr().(*net.TCPAddr).Port)}},
	}
	document := eureka.AppendApplications(nil, eureka.Format{}, "1", "UP_1_", slices.Values([]*registry.Lease{{Instance: i}}))
	routes := http.NewServeMux()
	routes.HandleFunc("GET /eureka/apps", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write(document)
	})
	return exampleServer{httptest.NewServer(routes), orders}
}

func (s exampleServer) Close() {
	s.Server.Close()
	s.orders.Stop()
}
