package httpd

import (
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// shownSettings are the settings of the present leadership by their configuration keys, which may
// differ from this node's file.
type shownSettings struct {
	Enabled          bool    `json:"self-preservation.enabled"`
	Threshold        float64 `json:"self-preservation.renewal-percent-threshold"`
	Population       uint32  `json:"self-preservation.min-instances"`
	Bound            string  `json:"self-preservation.max-duration"`
	Expectation      bool    `json:"eureka-compat.expectation"`
	DoubledLease     bool    `json:"eureka-compat.doubled-lease"`
	ExpectedInterval string  `json:"eureka-compat.expected-client-renewal-interval"`
	Update           string  `json:"eureka-compat.renewal-threshold-update-interval"`
	OnCut            string  `json:"replication.on-cut"`
}

// settings is GET /v1/rollcall/settings.
func (c *call) settings(v freshView) (any, error) {
	s := v.Settings()
	return shownSettings{
		Enabled: s.SelfPreservation, Threshold: shareOf(s.Threshold), Population: s.Population, Bound: spanOf(s.Bound),
		Expectation: s.Expectation, DoubledLease: s.DoubledLease,
		ExpectedInterval: spanOf(int64(s.ExpectedInterval) * 1000), Update: spanOf(s.ExpectationUpdate),
		OnCut: s.OnCut,
	}, nil
}

// shareOf is a share as configurations and people write it.
func shareOf(s registry.Share) float64 { return float64(s) / float64(registry.Whole) }

// spanOf is a time in ms as configurations write it.
func spanOf(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }
