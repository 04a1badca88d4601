//go:build ignore

// Command nomadsync runs the loop with which a Nomad agent keeps Consul's services in line with its tasks, with one
// task. It is built inside Nomad's module (build.sh), since Nomad's packages can be used only by Nomad.
//
//	nomadsync URL SOURCE PORT
//
// URL is the Consul agent's, SOURCE the address from which it is called, and PORT the task's, whose
// service is "web" at 127.0.0.1. The loop runs until the standard input is closed, and leaves its service there, as a
// killed agent does.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"

	"github.com/hashicorp/consul/api"
	"github.com/hashicorp/go-hclog"

	"github.com/hashicorp/nomad/client/serviceregistration"
	"github.com/hashicorp/nomad/command/agent/consul"
	"github.com/hashicorp/nomad/helper/uuid"
	"github.com/hashicorp/nomad/nomad/structs"
)

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(url, source, port string) error {
	number, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
	client, err := api.NewClient(&api.Config{Address: url, Transport: &http.Transport{DialContext: from.DialContext}})
	if err != nil {
		return err
	}
	namespaces := consul.NewNamespacesClient(client.Namespaces(), client.Agent())
	logger := hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: os.Stderr})
	loop := consul.NewServiceClient(client.Agent(), namespaces, logger, true)
	go loop.Run()
	task := &serviceregistration.WorkloadServices{
		AllocInfo: structs.AllocInfo{AllocID: uuid.Generate(), Group: "web", Task: "web", JobID: "web"},
		Services:  []*structs.Service{{Name: "web", PortLabel: "http", Provider: structs.ServiceProviderConsul}},
		Networks:  structs.Networks{{IP: "127.0.0.1", ReservedPorts: []structs.Port{{Label: "http", Value: number}}}},
	}
	if err := loop.RegisterWorkload(task); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
