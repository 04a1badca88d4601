package client

import (
	"context"
	"fmt"
	"net/url"
)

// Instance is an instance as Rollcall's own API shows it. Times are ms since the epoch.
type Instance struct {
	App         string `json:"app"`
	ID          string `json:"id"`
	Status      string `json:"status"`
	Overridden  string `json:"overridden,omitempty"` // the override, if there is one
	Host        string `json:"host"`
	IP          string `json:"ip"`
	Port        int    `json:"port,omitempty"`        // 0: it does not listen there
	SecurePort  int    `json:"secure_port,omitempty"` // as Port
	VIP         string `json:"vip,omitempty"`
	Lease       int32  `json:"lease_seconds"`
	Interval    int32  `json:"interval_seconds"`
	LastRenewal int64  `json:"last_renewal"`
	Registered  int64  `json:"registered"`
	// Datacenter is the datacenter (or Eureka server) that it belongs to; empty: the cluster's own.
	Datacenter string `json:"datacenter,omitempty"`
	// UnheardMS is for how long (ms of lease clock) nothing was heard of Datacenter; 0: its link is
	// not cut.
	UnheardMS int64             `json:"unheard_ms,omitempty"`
	Metadata  map[string]string `json:"metadata,omitempty"`
}

// List returns the listed instances of one application, in any case, or with "" of all, sorted by
// application and id. Unlike Apps and Instances it says whose they are and when they were last
// renewed, and is not kept waiting by a rate limit.
func (c *Client) List(ctx context.Context, app string) ([]Instance, error) {
	parameters := make(url.Values)
	if app != "" {
		parameters.Set("app", app)
	}
	var all []Instance
	a, err := c.query(ctx, parameters, "v1", "rollcall", "apps")
	if err == nil {
		err = a.decode(&all)
	}
	if err != nil {
		return nil, fmt.Errorf("list the instances: %w", err)
	}
	return all, nil
}
