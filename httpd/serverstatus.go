package httpd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// serverApp is the application that a server shows itself as, as upstream does.
const serverApp = "EUREKA"

// serverStatus is GET status: what this node says of itself in the protocol's own form.
func (c *call) serverStatus() (any, error) {
	f := fullFormat(c.r, c.v1)
	return c.document(f, eureka.AppendStatusInfo(nil, f, c.statusInfo(c.clusterNow(c.r.Context()), schemeOf(c.r))))
}

// schemeOf is the scheme of the listener that was asked; the other nodes have the same.
func schemeOf(r *http.Request) string {
	if r.TLS != nil {
		return "https://"
	}
	return "http://"
}

func (h *Handler) statusInfo(cluster api.Status, scheme string) *eureka.StatusInfo {
	memory := readMemory()
	info := &eureka.StatusInfo{
		General: []registry.Pair{
			{Key: "environment", Value: "rollcall " + h.config.Version},
			{Key: "num-of-cpus", Value: strconv.Itoa(runtime.NumCPU())},
			{Key: "total-avail-memory", Value: fmt.Sprintf("%dmb", memory.total>>20)},
			{Key: "current-memory-usage", Value: memory.usage()},
			{Key: "server-uptime", Value: uptime(time.Since(h.started))},
		},
		Instance: h.ownLease(cluster),
	}
	var registered []string
	for _, n := range cluster.Nodes {
		if n.ID == cluster.Node {
			continue
		}
		address := scheme + cmp.Or(n.HTTP, n.ID) + "/eureka/" // a node that cannot be asked is known by name
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

// ownLease is this node as an instance. It is in no registry: a node's life is the cluster's
// business, not a lease's.
func (h *Handler) ownLease(cluster api.Status) *registry.Lease {
	host, port := h.ownAddress(cluster)
	status := registry.Up
	if !cluster.Ready {
		status = registry.Starting
	}
	started := h.started.UnixMilli()
	return &registry.Lease{
		Instance: &registry.Instance{
			InstanceID: cluster.Node, HostName: host, IPAddr: host, App: serverApp, Status: status,
			Port: registry.Port{Number: port, Enabled: true}, SecurePort: registry.Port{Number: 443},
			CountryID: 1, DataCenter: registry.DataCenter{Name: registry.MyOwn}, VIP: "eureka", LastDirty: started,
		},
		Interval: registry.DefaultRenewalInterval, Duration: registry.DefaultDuration,
		RegisteredAt: started, ServiceUpAt: started, UpdatedAt: started, Action: registry.ActionAdded,
		RenewedAt: registry.Stamp{Wall: time.Now().UnixMilli()},
	}
}

func (h *Handler) ownAddress(cluster api.Status) (host string, port uint16) {
	for _, n := range cluster.Nodes {
		if n.ID != cluster.Node {
			continue
		}
		host, text, err := net.SplitHostPort(n.HTTP)
		number, _ := strconv.ParseUint(text, 10, 16)
		if err == nil {
			return host, uint16(number)
		}
	}
	return cluster.Node, 0
}

// statusOverrides is GET serverinfo/statusoverrides: always JSON.
func (c *call) statusOverrides(v freshView) (any, error) {
	return c.document(eureka.Format{}, eureka.AppendStatusOverrides(nil, v.Leases()))
}

// Members changes which nodes the cluster has.
type Members interface {
	// Remove takes the node of a name out of the cluster for good. It ends within the time of a
	// write, 4 s. Errors: ErrUnknownMember, ErrMembership, registry.ErrNoLeader (nothing was done),
	// registry.ErrUnknownOutcome.
	Remove(ctx context.Context, name string) error
}

// Errors of Members.
var (
	// ErrUnknownMember: the cluster has no node of that name.
	ErrUnknownMember = errors.New("no such node")
	// ErrMembership: the change was refused and nothing was done. The text of the error, which says
	// why, is shown to the caller.
	ErrMembership = errors.New("membership was not changed")
)

// removeMember is DELETE /v1/rollcall/members/{name}.
func (c *call) removeMember() (any, error) {
	if c.config.Members == nil {
		return nil, &refusal{status: http.StatusNotImplemented, text: "this node takes no part in a cluster with members; ask a node in mode cp"}
	}
	if c.noBody(); c.err != nil {
		return nil, c.err
	}
	name := c.segment("name")
	if err := c.config.Members.Remove(c.r.Context(), name); err != nil {
		return nil, memberRefusal(name, writeOutcome(err))
	}
	c.config.Log.Info("a node was removed", "removed", name, "by", c.r.RemoteAddr)
	return api.RemovedMember{Removed: name}, nil
}

// memberRefusal words what only a change of members can meet.
func memberRefusal(name string, err error) error {
	switch {
	case errors.Is(err, registry.ErrUnknownOutcome):
		return err
	case errors.Is(err, ErrUnknownMember):
		text := fmt.Sprintf("the cluster has no node %q; GET /v1/rollcall/status lists its nodes", name)
		return &refusal{status: http.StatusNotFound, text: text, cause: err}
	case errors.Is(err, ErrMembership):
		return &refusal{status: http.StatusServiceUnavailable, text: err.Error(), cause: err}
	case errors.Is(err, registry.ErrNoLeader):
		text := fmt.Sprintf("node %q was not removed: no leader could be reached; try again when a majority of the nodes is up", name)
		return &refusal{status: http.StatusServiceUnavailable, text: text, retry: true, cause: err}
	}
	return err
}

// Cluster tells what this node knows about the nodes of its cluster.
type Cluster interface {
	// Status answers from memory where it can; the context bounds what it must ask of others. What
	// it cannot learn in time it leaves empty. The Handler fills in Node, Datacenter, Version, Ready and Quorum itself.
	Status(ctx context.Context) api.Status
}
