package registry

import (
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// RegisterCatalog registers a node, a service and checks in one step. A missing node is created. Outcomes: Done
// (Index is 0 if nothing changed), UnknownService (a check names a service that is not on the node), NameTaken
// (another application has that name in other letters), TooManyChecks, TooMany, AddressTaken and CheckTaken (on an
// agent, another service or check has the id). AddressTaken also if the Instance's key belongs to a service on
// another node.
type RegisterCatalog struct {
	// Node is nil for the logical node. KeepNode leaves a registered node as it is.
	Node     *catalog.Node
	KeepNode bool
	// Service and Instance go together, or both are nil. The Instance's key follows from Service. A service with the
	// same node and id and another name is replaced.
	Service  *catalog.Service
	Instance *Instance
	Checks   []*catalog.Check
	// ReplaceChecks removes the service's checks that are not among Checks. KeepStatus leaves an existing check its
	// state and output.
	ReplaceChecks, KeepStatus bool
	// Agent and Readdress are as in catalog.Registration.
	Agent, Readdress bool
}

func (RegisterCatalog) kind() byte { return 18 }

// On returns the name of the node, "" for the logical one.
func (op RegisterCatalog) On() string {
	r := op.registration()
	return r.On()
}

// OnNode returns the operation for the same node under another spelling of its name. It leaves op unchanged.
func (op RegisterCatalog) OnNode(spelled string) RegisterCatalog {
	given := op.On()
	node := *op.Node // not nil: only the logical node is, and its name has one spelling
	node.Name, op.Node = spelled, &node
	if op.Service != nil {
		service, instance := *op.Service, *op.Instance
		service.Node = spelled
		if id, ofNode := strings.CutPrefix(instance.InstanceID, given+":"); ofNode {
			instance.InstanceID = spelled + ":" + id
		}
		op.Service, op.Instance = &service, &instance
	}
	op.Checks = slices.Clone(op.Checks)
	for i, c := range op.Checks {
		check := *c
		check.Node, op.Checks[i] = spelled, &check
	}
	return op
}

func (op RegisterCatalog) registration() catalog.Registration {
	return catalog.Registration{
		Node: op.Node, KeepNode: op.KeepNode, Service: op.Service, Checks: op.Checks, ReplaceChecks: op.ReplaceChecks, KeepStatus: op.KeepStatus,
		Agent: op.Agent, Readdress: op.Readdress,
	}
}

func (op RegisterCatalog) fields(c *codec.Codec) RegisterCatalog {
	has := c.Mask(codec.Bits(op.Node != nil, op.KeepNode, op.Service != nil, op.ReplaceChecks, op.KeepStatus, op.Agent, op.Readdress), 7, "registration")
	op.KeepNode, op.ReplaceChecks, op.KeepStatus = has&2 != 0, has&8 != 0, has&16 != 0
	op.Agent, op.Readdress = has&32 != 0, has&64 != 0
	if has&1 != 0 {
		codec.Ptr(c, &op.Node).Fields(c)
	}
	if has&4 != 0 {
		codec.Ptr(c, &op.Service).Fields(c)
		body(c, &op.Instance)
	}
	catalog.Checks(c, &op.Checks)
	return op
}

// MaxRemoved bounds the services, and checks of services, that one removal of a node takes with it (if there are
// more, some are removed first, in steps), and those that follow an agent's address. It also bounds how many of them
// one transaction changes.
const MaxRemoved = 2500

// DeregisterCatalog removes a service with its checks (Service given), a check (Check given), or a node with
// everything on it. It is final: a record of the removal stays. Outcomes: NotFound (there was nothing to remove),
// TooMany. With an Epoch, the leader proposed it because Check has been critical since CriticalSince; then it takes
// effect only if that still holds.
type DeregisterCatalog struct {
	Node, Service, Check string
	Epoch                Epoch
	CriticalSince        int64
}

func (DeregisterCatalog) kind() byte { return 19 }

func (op DeregisterCatalog) fields(c *codec.Codec) DeregisterCatalog {
	c.String(&op.Node)
	c.String(&op.Service)
	c.String(&op.Check)
	op.Epoch.Fields(c)
	c.Int64(&op.CriticalSince)
	return op
}

// SetCheck sets a check's state and output, and restarts its TTL; from level 3 on, a leader sets Reads of an alias
// check instead. It takes no Index if nothing changes. Outcomes: NotFound, NoTTL (TTL is set, and the check does not
// have one).
type SetCheck struct {
	Node, Check string
	Status      catalog.CheckStatus
	Output      string
	TTL         bool   // only if the check has one
	Epoch       Epoch  // of the leader that ran the probe, or judged the alias; zero: a client reported it
	Reads       string // what the token of an alias check may read now, see catalog.Alias
}

func (SetCheck) kind() byte { return 20 }

func (op SetCheck) fields(c *codec.Codec) SetCheck {
	c.String(&op.Node)
	c.String(&op.Check)
	op.Status.Fields(c)
	c.String(&op.Output)
	c.Bool(&op.TTL)
	op.Epoch.Fields(c)
	if c.Since(Level3, false) { // below level 3 no alias has a token
		c.String(&op.Reads)
	}
	return op
}

// ExpireCheck turns a check critical after its TTL has passed. The leader proposes it; it takes effect only if the
// last heartbeat was at RenewedAt (lease clock, ms). Output becomes "TTL expired", followed by the last output.
type ExpireCheck struct {
	Epoch       Epoch
	Node, Check string
	RenewedAt   int64
}

func (ExpireCheck) kind() byte { return 21 }

func (op ExpireCheck) fields(c *codec.Codec) ExpireCheck {
	op.Epoch.Fields(c)
	c.String(&op.Node)
	c.String(&op.Check)
	c.Int64(&op.RenewedAt)
	return op
}

// CatalogVerb is what a CatalogOp does, in the words of Consul's transactions.
type CatalogVerb uint8

// The verbs. Never renumber one: they are part of the log's format.
const (
	CatalogGet       CatalogVerb = iota // it must be there
	CatalogSet                          // register it
	CatalogCAS                          // register it if its ModifyIndex is Index; Index 0: if it is absent
	CatalogDelete                       // remove it, there or not
	CatalogDeleteCAS                    // remove it if its ModifyIndex is Index
)

// Writes reports whether a verb may change something.
func (v CatalogVerb) Writes() bool { return v != CatalogGet }

// CatalogOp is one operation of a transaction on a check (Check given), a service (Service given) or a node.
type CatalogOp struct {
	Verb                 CatalogVerb
	Node, Service, Check string // Node "": the logical one
	Index                Index  // CatalogCAS, CatalogDeleteCAS
	// Register is what CatalogSet and CatalogCAS register: this node, service or check alone.
	Register *RegisterCatalog
}

// Fields walks an operation.
func (op *CatalogOp) Fields(c *codec.Codec) {
	codec.Enum(c, &op.Verb, CatalogDeleteCAS, "verb for the catalog")
	c.String(&op.Node)
	c.String(&op.Service)
	c.String(&op.Check)
	codec.Uint(c, &op.Index)
	codec.Optional(c, &op.Register, func(given *RegisterCatalog, c *codec.Codec) {
		if read := given.fields(c); c.Reading() {
			*given = read
		}
	})
}
