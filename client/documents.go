package client

import "github.com/seed-20419f34/rollcall/httpd/api"

// The documents of Rollcall's own API, which package api declares: the cluster and its instances.
type (
	Status       = api.Status       // a cluster as one of its nodes sees it
	NodeStatus   = api.NodeStatus   // one node in it
	ForeignNode  = api.ForeignNode  // a node of another cluster
	Upgrade      = api.Upgrade      // the levels of the formats that its nodes read and write
	NodeLevels   = api.NodeLevels   // of one node
	Verification = api.Verification // whether the states of its nodes are equal
	VerifiedNode = api.VerifiedNode // one node of that
	Overview     = api.Overview     // how a cluster is: what is wrong, figures, applications in trouble
	Events       = api.Events       // the registrations and cancels that a cluster remembers
	Event        = api.Event        // one of them
	Settings     = api.Settings     // what a whole cluster shares, by key
	Instance     = api.Instance     // an instance and its lease
	Owner        = api.Owner        // the datacenter that an instance belongs to
	Pruned       = api.Pruned       // what Prune removed
	Restored     = api.Restored     // what a restore did, or would do
	RestorePlan  = api.RestorePlan  // the names in what it would do
	SavedState   = api.Snapshot     // what a snapshot of a cluster says of itself

	Explanation        = api.Explanation        // what is known of an instance, listed or not
	Life               = api.Life               // the lease of one that is there
	Bounded            = api.Bounded            // an operator's act and its time
	Forced             = api.Forced             // an override
	Removed            = api.Removed            // how an instance went
	PreservationEffect = api.PreservationEffect // how self-preservation affects it
	HistoryEvent       = api.HistoryEvent       // something that happened to it

	Line            = api.Line            // the worst that is known of a cluster, in words
	OverviewFigures = api.OverviewFigures // current figures
	Attention       = api.Attention       // something that needs attention
	AppCount        = api.AppCount        // how many instances an application has

	SelfPreservation = api.SelfPreservation // whether evictions are withheld, and why
	Figures          = api.Figures          // numbers of leases
	Upstream         = api.Upstream         // Eureka's own formula
	AppFigures       = api.AppFigures       // one application's part
	Overdue          = api.Overdue          // a lease that is not fresh
	PreservationStep = api.PreservationStep // a transition
)

// Further documents: sessions, locks and semaphores, roles, tokens and the audit, and the replication to other
// servers.
type (
	Session     = api.Session     // a session as the cluster shows it
	Acquisition = api.Acquisition // something that a session holds
	Permits     = api.Permits     // a lock or semaphore that is held or waited for
	Holder      = api.Holder      // a holder of a permit
	Waiter      = api.Waiter      // a waiter for one
	FenceState  = api.FenceState  // whether an acquisition lasts

	AuthStatus   = api.AuthStatus   // access control as one node sees it
	AuthCaller   = api.Caller       // who asked
	Role         = api.Role         // rules under a name
	Token        = api.Token        // a token without its secret
	NewToken     = api.NewToken     // a token with it
	TokenRequest = api.TokenRequest // what token to create
	Decision     = api.Decision     // whether a token may do something
	AuthCheck    = api.AuthCheck    // what is registered and would be refused
	RefusedVIP   = api.RefusedVIP   // a VIP in it
	RefusedCheck = api.RefusedCheck // a check in it
	AuditRecord  = api.AuditRecord  // what somebody did, or tried to do

	Peers       = api.Peers       // the replication of a cluster to other servers
	Peer        = api.Peer        // one server, or one datacenter, that is replicated with
	PeerSender  = api.PeerSender  // a server that sent to the cluster
	RefusedItem = api.RefusedItem // what a server or a peer refuses
	PeerError   = api.PeerError   // a transmission that failed
	PeerRepair  = api.PeerRepair  // a repair that found something
	Incoming    = api.Incoming    // what comes from another datacenter or a Eureka server
	PeerDiff    = api.PeerDiff    // how a peer differs from what it should have
	DiffedItem  = api.DiffedItem  // one instance that differs
)
