package registry

// CatalogService is what Consul's API says of an instance beyond what Eureka's does. An instance that has one
// has no lease: it never expires by itself, stays outside self-preservation, and goes by a cancel, a
// deregistration or a check. Immutable.
//
// Name and id are also the instance's application (upper case) and id: of a service on another node
// than the logical one the instance's id is node:id. Metadata, address, port and status stand in the
// Instance; its status follows from the checks: passing and warning are UP, critical is DOWN,
// maintenance is OUT_OF_SERVICE.
type CatalogService struct {
	Name    string // as given; names that differ in case only are one application, and refused
	ID      string
	Node    string // "": the logical node
	Tags    []string
	Address string // as given; "": the node's
	Port    int32  // as given
	Tagged  []TaggedAddress
	// Weights for answers that are weighed; 1 and 1 where none are given.
	WeightPassing, WeightWarning int32
	TagOverride                  bool // EnableTagOverride
	Kind, SocketPath             string
	// Locality and Ports are JSON as given, which is echoed; nil: not given.
	Locality, Ports []byte
	Checks          []*Check // by id
	CreateIndex     Index
	ModifyIndex     Index // of the last change of the service itself, not of its checks
}

// TaggedAddress is one of a service's tagged addresses, sorted by tag.
type TaggedAddress struct {
	Tag, Address string
	Port         int32
}

// CheckStatus is a check's state. Never renumber one.
type CheckStatus uint8

// The states, best first.
const (
	Passing CheckStatus = iota
	Warning
	Critical
)

// Check is a check of a service or of a node. Immutable; a heartbeat that changes nothing is kept
// beside it.
type Check struct {
	Node        string // "": the logical node
	ID          string // unique on its node
	Name        string
	Notes       string
	Output      string
	Status      CheckStatus
	Service     string // service id; "": of the node
	Type        string // ttl, http, tcp, maintenance, or as given
	TTL         int64  // ms; 0: no heartbeats are expected
	ReapAfter   int64  // ms that it may be critical before its service goes (DeregisterCriticalServiceAfter); 0: for ever
	Probe       *Probe // what the leader tries; nil: nothing
	Definition  []byte // JSON as given to the catalog, which is echoed; nil: none
	CreateIndex Index
	ModifyIndex Index
	// CriticalSince is when (lease clock, ms) it turned critical; meaningless otherwise.
	CriticalSince int64
}

// Probe is a check that somebody must run. Immutable.
type Probe struct {
	HTTP, Method, Body string // HTTP: URL
	Header             []Pair
	SkipVerify         bool
	NoRedirects        bool   // a redirect is the answer
	TCP                string // host:port
	Interval, Timeout  int64  // ms
	// How many equal results in a row change the state: to passing, to warning, to critical; 0: one.
	SuccessBeforePassing, FailuresBeforeWarning, FailuresBeforeCritical int32
}

// Node is a node of the catalog other than the logical one, which is not stored unless checks were
// registered on it (its name is then ""). Immutable.
type Node struct {
	ID, Name, Address string
	Tagged, Meta      []Pair
	Checks            []*Check // of the node itself, by id
	CreateIndex       Index
	ModifyIndex       Index // of the node itself, not of its checks
}

// RegisterCatalog registers a node, a service and checks, in one step. Outcomes: Done (Index is 0 if
// nothing changed), UnknownService (a check names a service that is not on the node), NameTaken
// (another application has that name in other letters), TooManyChecks, AddressTaken and CheckTaken (of the logical
// node: the service's id, or a check's, is another's). An absent node is created.
type RegisterCatalog struct {
	// Node is the node; nil: the logical one. KeepNode: if it is registered, it stays as it is.
	Node     *Node
	KeepNode bool
	// Service and Instance go together; nil: none. The Instance's key is what Service says. A service of
	// the same node and id and another name is replaced.
	Service  *CatalogService
	Instance *Instance
	Checks   []*Check
	// ReplaceChecks: those of the service that are not among Checks go. KeepStatus: a check that exists
	// already keeps its state and output.
	ReplaceChecks, KeepStatus bool
}

// DeregisterCatalog removes a service with its checks (Service given), a check (Check given), or a node
// with everything on it. It is final: a record of the removal stays. Outcome NotFound: there was
// nothing to remove. If Epoch is given the leader proposed it, because Check has been critical since
// CriticalSince: it takes effect only if that is still so.
type DeregisterCatalog struct {
	Node, Service, Check string
	Epoch                Epoch
	CriticalSince        int64
}

// SetCheck sets a check's state and output, and starts its TTL anew. What changes nothing takes no
// Index. Outcomes: NotFound, NoTTL (TTL is set, and the check has none).
type SetCheck struct {
	Node, Check string
	Status      CheckStatus
	Output      string
	TTL         bool  // only if the check has one
	Epoch       Epoch // of the leader who ran the probe; zero: a client said it
}

// ExpireCheck turns a check critical whose TTL has passed. The leader proposes it; it takes effect only
// if the last heartbeat was at RenewedAt (lease clock, ms). Output becomes "TTL expired", with the last
// one behind it.
type ExpireCheck struct {
	Epoch       Epoch
	Node, Check string
	RenewedAt   int64
}

func (RegisterCatalog) isOp()   {}
func (DeregisterCatalog) isOp() {}
func (SetCheck) isOp()          {}
func (ExpireCheck) isOp()       {}

// LostCheck is a check that turned critical or is gone, or (ID "") a node that is gone.
type LostCheck struct{ Node, ID string }

// SerfHealth is the id of the check that the logical node always has.
const SerfHealth = "serfHealth"
