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

// circumstances are what a summary needs beside the instance itself.
type circumstances struct {
	health   registry.Health
	settings registry.Settings
	alone    bool // each node decides by itself, without a leader
	owner    contact
}

// summaryOf says of a live instance what an operator asks at night: is it shown, as what and by
// whose will, is it alive, and if it is not, why it is still there.
func summaryOf(e *api.Explanation, c circumstances) string {
	sentences := []string{presence(e)}
	if e.Override != nil {
		sentences = append(sentences, forced(e))
	}
	sentences = append(sentences, leaseSentence(e, c))
	if c.owner.datacenter != "" {
		sentences = append(sentences, c.owner.sentence())
	}
	if e.Expired && !c.owner.keeps() {
		sentences = append(sentences, whyStill(e, c))
	}
	if e.Clock == "applied" {
		sentences = append(sentences, "These times are of the newest entry that this node applied, up to 2s old while a leader serves.")
	}
	return strings.Join(sentences, " ")
}

func presence(e *api.Explanation) string {
	name := e.App + "/" + e.ID
	if q := e.Quarantine; q != nil {
		return fmt.Sprintf("%s is in quarantine until %s, by %s: it is in no list, and its heartbeats are accepted.", name, shownTime(q.Until), said(*q))
	}
	return fmt.Sprintf("%s is listed as %s.", name, e.Status)
}

func forced(e *api.Explanation) string {
	o := e.Override
	text := fmt.Sprintf("%s is forced by an override of which no more is known", o.Status)
	if o.Since != 0 {
		text = fmt.Sprintf("%s is forced since %s, by %s", o.Status, shownTime(o.Since), said(o.Bounded))
	}
	if o.Until != 0 {
		text += ", until " + shownTime(o.Until)
	}
	if e.Reported != "" {
		text += "; the instance itself reports " + e.Reported
	}
	return text + "."
}

// said is who did something, and why if it was said.
func said(by api.Bounded) string {
	author := by.Author
	if author == "" {
		author = "a client of Eureka's API"
	}
	if by.Reason == "" {
		return author
	}
	return author + " (" + by.Reason + ")"
}

func leaseSentence(e *api.Explanation, c circumstances) string {
	if e.Permanent {
		return "It has no lease: it was registered through Consul's API, and stays until it is deregistered."
	}
	renewed := fmt.Sprintf("It was last renewed %s ago, at %s", shownSpan(e.SilentMS), shownTime(e.LastRenewal))
	lease := fmt.Sprintf("its lease of %ds", e.LeaseSeconds)
	if more := e.SilentMS + e.ExpiresInMS - int64(e.LeaseSeconds)*1000; more > 0 {
		lease += fmt.Sprintf(", prolonged by %s %s,", shownSpan(more), whyProlonged(c))
	}
	if e.Expired {
		return fmt.Sprintf("%s, and %s ended %s ago, at %s.", renewed, lease, shownSpan(-e.ExpiresInMS), shownTime(e.ExpiresAt))
	}
	return fmt.Sprintf("%s; unless it is renewed %s ends in %s, at %s.", renewed, lease, shownSpan(e.ExpiresInMS), shownTime(e.ExpiresAt))
}

func whyProlonged(c circumstances) string {
	switch {
	case c.owner.datacenter != "":
		return "because it belongs to another datacenter"
	case c.alone:
		return "after the start of this node or by eureka-compat.doubled-lease"
	}
	return "after a change of leader or by eureka-compat.doubled-lease"
}

// whyStill says why an instance whose lease has ended was not evicted.
func whyStill(e *api.Explanation, c circumstances) string {
	switch {
	case e.SelfPreservation.Withholds:
		return "It is not evicted because evictions are withheld. " + e.SelfPreservation.Reason
	case c.alone && !c.health.Ready:
		return "It is not evicted because this node is still loading its state."
	case !c.health.Quorum:
		return "It is not evicted because there is no leader that this node knows, and without one nothing changes."
	case c.settings.Threshold >= registry.Whole:
		return "It is not evicted because self-preservation.renewal-percent-threshold is 1, which leaves nothing for an eviction round to take."
	case c.alone && c.health.Suspended:
		return "It is not evicted yet because this node became ready too short a time ago to know who is alive."
	case c.health.Leads && c.health.Suspended:
		return "It is not evicted yet because the leader is too young to know who is alive."
	}
	return "It goes with one of the next eviction rounds, each of which takes a part of the registry."
}

// epitaphOf says of an instance that is gone when and why it went.
func epitaphOf(e *api.Explanation, history []registry.Event) string {
	text := fmt.Sprintf("%s/%s is gone: it was canceled at %s", e.App, e.ID, shownTime(e.Removed.At))
	if e.Removed.Kind == "evicted" {
		text = fmt.Sprintf("%s/%s is gone: its lease ended, and it was evicted at %s", e.App, e.ID, shownTime(e.Removed.At))
	}
	if n := len(history); n > 0 {
		text += manner(history[n-1])
	}
	if q := e.Quarantine; q != nil {
		text += fmt.Sprintf(". If it registers before %s it is in quarantine, by %s", shownTime(q.Until), said(*q))
	}
	return text + "."
}

// manner is what the event of a removal knows about it.
func manner(last registry.Event) string {
	switch last.Kind {
	case registry.EventEvicted:
		text := ""
		if last.For > 0 {
			text = fmt.Sprintf(", %s after its last renewal", shownSpan(last.For))
		}
		if last.By.Reason != "" {
			text += " (" + last.By.Reason + ")"
		}
		return text
	case registry.EventCanceled:
		if last.By.Reason != "" {
			return ", because " + last.By.Reason
		}
		return " " + bySender(last.Origin)
	}
	return ""
}

// bySender says who sent an operation.
func bySender(o registry.Origin) string {
	switch o.Kind {
	case registry.LocalPeer:
		return "by another node"
	case registry.RemoteDC:
		return "by a server of datacenter " + o.DC
	}
	return "by a client"
}

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
