package catalog

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// CheckStatus is the state of a check. Never renumber one.
type CheckStatus uint8

// The states, best first.
const (
	Passing CheckStatus = iota
	Warning
	Critical
)

func (s *CheckStatus) Fields(c *codec.Codec) { codec.Enum(c, s, Critical, "status of a check") }

// Check is a check of a service or of a node. It is immutable; its CheckRow has the time of its last heartbeat.
type Check struct {
	Node    string // "": the logical node
	ID      string // unique on its node
	Name    string
	Notes   string
	Output  string
	Status  CheckStatus
	Service string // service id; "" for the node's
	Type    string // ttl, http, tcp, udp, grpc, h2ping, alias, maintenance, or as given
	TTL     int64  // ms; 0: it does not expect heartbeats
	// ReapAfter is how long (ms) it may be critical before its service goes (DeregisterCriticalServiceAfter); 0: for
	// ever.
	ReapAfter   int64
	Probe       *Probe // what the leader probes, or nil
	Definition  []byte // JSON as given to the catalog, which is echoed, or nil
	CreateIndex order.Index
	ModifyIndex order.Index
	// CriticalSince is when the check turned critical (lease clock, ms), if it is critical.
	CriticalSince int64
	Alias         *Alias // what it follows; nil: it is reported
}

func (k *Check) Fields(c *codec.Codec) {
	c.String(&k.Node)
	c.String(&k.ID)
	c.String(&k.Name)
	c.String(&k.Notes)
	c.String(&k.Output)
	k.Status.Fields(c)
	c.String(&k.Service)
	c.String(&k.Type)
	c.Int64(&k.TTL)
	c.Int64(&k.ReapAfter)
	codec.Optional(c, &k.Probe, (*Probe).fields)
	c.Bytes(&k.Definition)
	codec.Uint(c, &k.CreateIndex)
	codec.Uint(c, &k.ModifyIndex)
	c.Int64(&k.CriticalSince)
	codec.Optional(c, &k.Alias, (*Alias).fields)
}

// Checks walks checks. Each takes at least 16 bytes.
func Checks(c *codec.Codec, all *[]*Check) { codec.List(c, all, 16, codec.Each((*Check).Fields)) }

// Probe is what the leader does for a check. Immutable.
type Probe struct {
	HTTP, Method, Body string // HTTP: URL
	Header             []codec.Pair
	SkipVerify         bool
	NoRedirects        bool   // a redirect is not followed, and decides the result
	TCP                string // host:port
	Interval, Timeout  int64  // ms
	// How many equal results in a row change the state to passing, warning or critical; 0 counts as 1.
	SuccessBeforePassing, FailuresBeforeWarning, FailuresBeforeCritical int32
	GRPC                                                                string // host:port; after a slash, the service
	UDP, H2PING                                                         string // host:port
	UseTLS                                                              bool   // for TCP, GRPC and H2PING
	// ServerName must be in the certificate; "": the host.
	ServerName string
	// By is the accessor of the token that registered the check. The token must allow everything the probe looks at
	// beyond its own service. "" if no token was asked for.
	By string
	// From is the address that the registration came from. With a By, it is the only address that belongs to the
	// check. "": it was registered below level 3, see registry.View.ProbeSource.
	From string
}

func (p *Probe) fields(c *codec.Codec) {
	c.String(&p.HTTP)
	c.String(&p.Method)
	c.String(&p.Body)
	c.Pairs(&p.Header)
	c.Bool(&p.SkipVerify)
	c.Bool(&p.NoRedirects)
	c.String(&p.TCP)
	c.Int64(&p.Interval)
	c.Int64(&p.Timeout)
	c.Int32(&p.SuccessBeforePassing)
	c.Int32(&p.FailuresBeforeWarning)
	c.Int32(&p.FailuresBeforeCritical)
	c.String(&p.GRPC)
	c.String(&p.UDP)
	c.String(&p.H2PING)
	c.Bool(&p.UseTLS)
	c.String(&p.ServerName)
	c.String(&p.By)
	if c.Since(3, false) { // below level 3 a service's address is what it says
		c.String(&p.From)
	}
}

// CheckRef names a check, or a node if ID is "".
type CheckRef struct{ Node, ID string }

// SerfHealth is the id of the check that the logical node and each agent's node always have.
const SerfHealth = "serfHealth"

// AgentAlive is that check. Nothing turns it critical: services do not belong to the server that accepted their
// registration, and their own checks say whether they are alive. Its texts are Consul's (agent/consul/leader.go and
// structs/structs.go of hashicorp/consul).
var AgentAlive = Check{ID: SerfHealth, Name: "Serf Health Status", Output: "Agent alive and reachable"}

// Ids of the checks with which operators take a service, or everything on a node, out of service.
const (
	NodeMaintenance    = "_node_maintenance"
	ServiceMaintenance = "_service_maintenance:" // and the service's id
)

// Maintenance reports whether an operator takes a service or node out of service with this check.
func (c *Check) Maintenance() bool {
	return c.ID == NodeMaintenance || strings.HasPrefix(c.ID, ServiceMaintenance)
}

// The most checks of a service, of a node itself, and of one registration. These also bound the cost of every
// operation on a check.
const (
	MaxServiceChecks = 64
	MaxNodeChecks    = 256
	MaxChecks        = 256
)

// equal compares everything that was registered and reported about two checks.
func (c *Check) equal(o *Check) bool {
	return c == o || c.ref() == o.ref() && c.Service == o.Service && c.Status == o.Status && c.Output == o.Output &&
		c.Name == o.Name && c.Notes == o.Notes && c.Type == o.Type && c.TTL == o.TTL && c.ReapAfter == o.ReapAfter &&
		c.Probe.equal(o.Probe) && c.Alias.equal(o.Alias) && bytes.Equal(c.Definition, o.Definition)
}

func (p *Probe) equal(o *Probe) bool {
	if p == nil || o == nil {
		return p == o
	}
	return p.HTTP == o.HTTP && p.Method == o.Method && p.Body == o.Body && slices.Equal(p.Header, o.Header) &&
		p.SkipVerify == o.SkipVerify && p.NoRedirects == o.NoRedirects && p.TCP == o.TCP && p.Interval == o.Interval && p.Timeout == o.Timeout &&
		p.SuccessBeforePassing == o.SuccessBeforePassing && p.FailuresBeforeWarning == o.FailuresBeforeWarning &&
		p.FailuresBeforeCritical == o.FailuresBeforeCritical && p.GRPC == o.GRPC && p.UDP == o.UDP && p.H2PING == o.H2PING &&
		p.UseTLS == o.UseTLS && p.ServerName == o.ServerName && p.By == o.By && p.From == o.From
}

// ref returns the check's name.
func (c *Check) ref() CheckRef { return CheckRef{c.Node, c.ID} }

// maintenanceOf returns the id of the check that takes a service, or with "" its node, out of service.
func maintenanceOf(service string) string {
	if service == "" {
		return NodeMaintenance
	}
	return ServiceMaintenance + service
}

// findCheck finds a check by its id in a list, which is sorted by id.
func findCheck(checks []*Check, id string) (at int, ok bool) {
	return slices.BinarySearchFunc(checks, id, func(c *Check, id string) int { return strings.Compare(c.ID, id) })
}

// WithCheck returns a copy of a list with c added, or replacing the check with its id.
func WithCheck(checks []*Check, c *Check) []*Check {
	at, ok := findCheck(checks, c.ID)
	changed := slices.Clone(checks)
	if ok {
		changed[at] = c
		return changed
	}
	return slices.Insert(changed, at, c)
}

// WithoutCheck returns a list without the check with an id, or nil if no other check is left.
func WithoutCheck(checks []*Check, id string) []*Check {
	at, ok := findCheck(checks, id)
	if !ok {
		return checks
	}
	if len(checks) == 1 {
		return nil
	}
	return slices.Delete(slices.Clone(checks), at, at+1)
}

// WithoutChecks returns a list without the checks with some ids, or nil if no other check is left.
func WithoutChecks(checks []*Check, removed map[string]bool) (left []*Check) {
	for _, c := range checks {
		if !removed[c.ID] {
			left = append(left, c)
		}
	}
	return left
}

// CheckHeartbeat is when (lease clock, ms) a check with a TTL last had a heartbeat.
type CheckHeartbeat struct {
	Node, Check string
	At          int64
}

func (h *CheckHeartbeat) Fields(c *codec.Codec) {
	c.String(&h.Node)
	c.String(&h.Check)
	c.Int64(&h.At)
}

func compareCheckRefs(a, b CheckRef) int {
	return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.ID, b.ID))
}

// Weight returns roughly how many bytes a check takes; Node.Weight and Service.Weight add it up.
func (c *Check) Weight() int {
	bytes := checkWeight + len(c.ID) + len(c.Name) + len(c.Notes) + len(c.Output) + len(c.Type) + len(c.Definition)
	if p := c.Probe; p != nil {
		bytes += len(p.HTTP) + len(p.Method) + len(p.Body) + len(p.TCP) + len(p.GRPC) + len(p.UDP) + len(p.H2PING) + len(p.ServerName) + len(p.From) + weightOf(p.Header)
	}
	if a := c.Alias; a != nil {
		bytes += len(a.Node) + len(a.Service) + len(a.By) + len(a.Reads)
	}
	return bytes
}

// Worst returns the worst status of some checks, and whether one of them is a maintenance check, which outweighs any
// status.
func Worst(lists ...[]*Check) (worst CheckStatus, maintenance bool) {
	for _, list := range lists {
		for _, c := range list {
			maintenance = maintenance || c.Maintenance()
			worst = max(worst, c.Status)
		}
	}
	return worst, maintenance
}

// Reported returns a copy of a check with a reported status and output. The caller replaces the check by it.
func (c *Check) Reported(status CheckStatus, output string, at Moment) *Check {
	now := *c
	now.Status, now.Output, now.ModifyIndex = status, strings.Clone(output), at.Next
	now.CriticalSince = criticalSince(c, status, at)
	return &now
}

// criticalSince returns since when (lease clock, ms) a check that gets this status is critical, or 0 if it is not.
// old is the check as it was, or nil.
func criticalSince(old *Check, status CheckStatus, at Moment) int64 {
	switch {
	case status != Critical:
		return 0
	case old != nil && old.Status == Critical:
		return old.CriticalSince
	}
	return at.Lease
}
