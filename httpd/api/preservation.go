package api

// SelfPreservation says whether evictions are withheld, and why (GET /v1/rollcall/self-preservation).
type SelfPreservation struct {
	State        string             `json:"state"`  // off, on, released or held
	Reason       string             `json:"reason"` // sentences, with the numbers
	Since        int64              `json:"since"`  // 0 for always
	Until        int64              `json:"until,omitempty"`
	Author       string             `json:"author"`         // the operator who acted; empty if automatic
	Note         string             `json:"note"`           // the operator's reason
	Says         string             `json:"says,omitempty"` // whom the author, a principal, named as the author
	Enabled      bool               `json:"enabled"`        // it may come on automatically
	Threshold    float64            `json:"threshold"`      // share of fresh leases at or below which it comes on
	Population   uint32             `json:"population"`     // minimum of counted leases for that
	Condition    bool               `json:"condition"`      // whether the numbers call for it
	Withheld     uint32             `json:"withheld"`       // ended leases that are kept
	Figures      Figures            `json:"figures"`
	Upstream     Upstream           `json:"upstream"`
	Applications []AppFigures       `json:"applications"`
	Transitions  []PreservationStep `json:"transitions"` // newest first
	// running (by the leader's clock) or applied (as of the newest log entry)
	Clock string `json:"clock"`
}

// Figures are numbers of leases.
type Figures struct {
	Leases  uint32 `json:"leases"`
	Counted uint32 `json:"counted"` // older than one renewal interval
	Fresh   uint32 `json:"fresh"`   // of the counted: renewed lately enough
	Expired uint32 `json:"expired"` // ended, and not evicted
}

// Upstream is Eureka's own formula at the same moment.
type Upstream struct {
	Decides         bool   `json:"decides"` // eureka-compat.expectation
	ExpectedClients uint32 `json:"expected_clients"`
	Threshold       uint32 `json:"threshold"` // renewals per minute
	LastMinute      uint32 `json:"renewals_last_minute"`
	Sliding         uint32 `json:"renewals_sliding"` // of the last 60 s, estimated
	AllowsEviction  bool   `json:"allows_eviction"`
}

// AppFigures is one application's part.
type AppFigures struct {
	App string `json:"app"`
	Figures
	Overdue []Overdue `json:"overdue"` // longest silence first; not all, if there are many
}

// Overdue is a lease that is not fresh.
type Overdue struct {
	ID       string `json:"id"`
	SilentMS int64  `json:"silent_ms"`  // since its last renewal
	EndsInMS int64  `json:"ends_in_ms"` // negative if it has ended
}

// PreservationStep is one transition of self-preservation.
type PreservationStep struct {
	State   string `json:"state"`
	At      int64  `json:"at"`
	Author  string `json:"author"` // empty if it came automatically
	Reason  string `json:"reason"`
	Says    string `json:"says,omitempty"` // whom the author, a principal, named as the author
	Counted uint32 `json:"counted"`
	Fresh   uint32 `json:"fresh"`
	Expired uint32 `json:"expired"`
}
