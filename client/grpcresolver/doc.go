// Package grpcresolver lets gRPC clients find services in Rollcall, or in Eureka, by name:
//
//	list, err := c.StartDiscovery(client.DiscoveryConfig{})
//	builder, err := grpcresolver.NewBuilder(list, grpcresolver.Config{})
//	conn, err := grpc.NewClient("rollcall:///orders", grpc.WithResolvers(builder), credentials)
//
// Targets are rollcall:///APPLICATION, rollcall://vip/ADDRESS and rollcall://svip/ADDRESS for an application, a VIP
// address and a secure VIP address, in any case. Only instances that are UP are called, in turns.
//
// # Changes
//
// A connection follows the list of instances: from the moment the list has changed no call goes to an instance that
// left it, calls in progress there may finish, and new instances get calls as soon as they are connected. Whether to
// believe that an application is suddenly empty is up to [client.Guard].
//
// While no instance can be called, calls fail with codes.Unavailable at once, or wait for one with
// grpc.WaitForReady(true). That is so before the first list, too: client.Discovery.Ready waits for it.
//
// # Service config
//
// Targets come with a service config that takes turns (round_robin). gRPC prefers it to that of
// grpc.WithDefaultServiceConfig, so a client that wants another, for retries say, gives both options:
//
//	grpc.WithDisableServiceConfig(),
//	grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}], "methodConfig": [ … ]}`)
//
// # Names in TLS
//
// The authority of a connection, which TLS expects in the servers' certificates, is the name of the service as in the
// target; grpc.WithAuthority sets another one. The list says where instances are; it does not prove who they are.
// Whether TLS is used is up to the credentials, even with svip.
//
// The package is a module of its own, so that a program that needs no gRPC does not get it.
package grpcresolver
