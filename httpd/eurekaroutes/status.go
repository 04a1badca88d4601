package eurekaroutes

import (
	"cmp"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// serverApp is the application that a server shows itself as, like upstream.
const serverApp = "EUREKA"

// serverStatus is GET status: this node in the protocol's form.
func (c call) serverStatus() (any, error) {
	f, scheme := fullFormat(c.R, c.V1), "http://"
	if c.R.TLS != nil {
		scheme = "https://" // of the listener that was asked; the other nodes use the same
	}
	return c.document(f, eureka.AppendStatusInfo(nil, f, c.statusInfo(c.ClusterNow(c.R.Context()), scheme)))
}

func (e *Eureka) statusInfo(cluster api.Status, scheme string) *eureka.StatusInfo {
	memory := web.ReadMemory()
	info := &eureka.StatusInfo{
		General: []registry.Pair{
			{Key: "environment", Value: "rollcall " + e.Version},
			{Key: "num-of-cpus", Value: strconv.Itoa(runtime.NumCPU())},
			{Key: "total-avail-memory", Value: fmt.Sprintf("%dmb", memory.Total>>20)},
			{Key: "current-memory-usage", Value: memory.Usage()},
			{Key: "server-uptime", Value: web.Uptime(time.Since(e.Started))},
		},
		Instance: e.ownLease(cluster),
	}
	var registered []string
	for _, n := range cluster.Nodes {
		if n.ID == cluster.Node {
			continue
		}
		address := scheme + cmp.Or(n.HTTP, n.ID) + "/eureka/" // a node whose address is unknown is named instead
		registered = append(registered, address)
		if n.Role == "unreachable" || n.Role == "" {
			info.UnavailableReplicas += address + ","
		} else {
			info.AvailableReplicas += address + ","
		}
	}
	info.RegisteredReplicas = strings.Join(registered, ", ")
	return info
}

// ownLease returns this node as an instance. It is in no registry: a node's life is the cluster's business, not a
// lease's.
func (e *Eureka) ownLease(cluster api.Status) *registry.Lease {
	host, port := cluster.Node, uint16(0)
	for _, n := range cluster.Nodes {
		if n.ID != cluster.Node {
			continue
		}
		if name, text, err := net.SplitHostPort(n.HTTP); err == nil {
			number, _ := strconv.ParseUint(text, 10, 16)
			host, port = name, uint16(number)
		}
	}
	status := registry.Up
	if !cluster.Ready {
		status = registry.Starting
	}
	started := e.World.Wall(e.Started).UnixMilli()
	return &registry.Lease{
		Instance: &registry.Instance{
			InstanceID: cluster.Node, HostName: host, IPAddr: host, App: serverApp, Status: status,
			Port: registry.Port{Number: port, Enabled: true}, SecurePort: registry.Port{Number: 443},
			CountryID: 1, DataCenter: registry.DataCenter{Name: registry.MyOwn}, VIP: "eureka", LastDirty: started,
		},
		Interval: registry.DefaultRenewalInterval, Duration: registry.DefaultDuration,
		RegisteredAt: started, ServiceUpAt: started, UpdatedAt: started, Action: registry.ActionAdded,
		RenewedAt: registry.Stamp{Wall: e.World.Now().UnixMilli()},
	}
}

// statusOverrides is GET serverinfo/statusoverrides: always JSON.
func (c call) statusOverrides(v web.FreshView) (any, error) {
	return c.document(eureka.Format{}, eureka.AppendStatusOverrides(nil, v.Leases()))
}
