package client

import (
	"context"
	"fmt"
	"net/url"
	"slices"
)

// Quarantined is an instance that no other list shows. Times are ms since the epoch.
type Quarantined struct {
	App         string `json:"app"`
	ID          string `json:"id"`
	Status      string `json:"status"`
	Host        string `json:"host"`
	IP          string `json:"ip"`
	LastRenewal int64  `json:"last_renewal"`
	Until       int64  `json:"quarantined_until"`
}

// Quarantined returns the instances in quarantine, of one application or, with "", of all, sorted by
// application and id. Explain says who put one there, and why.
func (c *Client) Quarantined(ctx context.Context, app string) ([]Quarantined, error) {
	parameters := url.Values{"quarantined": {"true"}}
	if app != "" {
		parameters.Set("app", app)
	}
	var all []Quarantined
	a, err := c.query(ctx, parameters, "v1", "rollcall", "apps")
	if err == nil {
		err = a.decode(&all)
	}
	if err != nil {
		return nil, fmt.Errorf("read the quarantined instances: %w", err)
	}
	return slices.DeleteFunc(all, func(q Quarantined) bool { return q.Until == 0 }), nil
}
