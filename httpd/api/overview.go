package api

// Overview shows a cluster as one of its nodes sees it: what the first page of the dashboard and `rollcall status
// --watch` show (GET /v1/rollcall/overview).
type Overview struct {
	Line             Line             `json:"line"` // the worst that is known
	Figures          OverviewFigures  `json:"figures"`
	Attention        []Attention      `json:"attention"` // what needs attention, worst first
	Apps             []AppCount       `json:"apps"`      // worst first, at most as many as were asked for
	Status           Status           `json:"status"`
	SelfPreservation SelfPreservation `json:"self_preservation"` // without its applications and transitions
	Peers            Peers            `json:"peers"`
}

// Line is the worst that is known of a cluster, in words.
type Line struct {
	Level string `json:"level"` // well, warn or bad
	Text  string `json:"text"`
}

// OverviewFigures are the current figures. Those that a freshly started node does not know yet are null.
type OverviewFigures struct {
	Up           int      `json:"up"`     // instances that are UP
	NotUp        int      `json:"not_up"` // instances that are not UP
	Apps         int      `json:"apps"`   // applications with an instance
	Changes      *float64 `json:"changes_per_minute"`
	Writes       *float64 `json:"writes_per_second"` // that this node responded to, heartbeats included
	WriteP99     *float64 `json:"write_p99_s"`
	Watchers     int      `json:"watchers"`     // of this node
	Overdue      int      `json:"overdue"`      // leases that were not renewed in time
	Applications int      `json:"applications"` // that a filter selects; Apps lists some of them
	SampledMS    int64    `json:"sampled_ms"`   // when the rates were taken, ms since the epoch; 0 for never
}

// Attention is something that needs somebody's attention.
type Attention struct {
	Level string `json:"level"` // warn or bad
	Text  string `json:"text"`
	App   string `json:"app,omitempty"` // that it concerns; empty for the cluster
}

// AppCount is how many instances an application has.
type AppCount struct {
	App     string `json:"app"`
	Up      int    `json:"up"`
	All     int    `json:"all"`
	Before  int    `json:"before"`  // most that were UP within ten minutes
	Overdue int    `json:"overdue"` // leases that were not renewed in time
	Changed int64  `json:"changed"` // ms since the epoch
}
