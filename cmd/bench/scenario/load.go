package scenario

import (
	"maps"
	"time"
)

// defaults is a scenario of which nothing was said.
func defaults() Scenario {
	return Scenario{
		Datacenters: 1,
		Rounds:      1,
		Load: Load{
			Instances:  300,
			Heartbeat:  Span(time.Second),
			Lease:      Span(3 * time.Second),
			Registers:  5,
			Writes:     60,
			Reads:      150,
			Fetches:    5,
			Deltas:     20,
			Watchers:   6,
			Sightings:  4,
			OwnKeys:    12,
			SharedKeys: 6,
		},
	}
}

// rateFields are the rates of a load that a storm may change, by their names in files.
func rateFields(l *Load) map[string]*float64 {
	return map[string]*float64{
		"registers": &l.Registers,
		"writes":    &l.Writes,
		"reads":     &l.Reads,
		"fetches":   &l.Fetches,
		"deltas":    &l.Deltas,
	}
}

// With is the load with other rates, by their names in files, as in a storm. Names that a storm cannot hold
// change nothing.
func (l Load) With(rates map[string]float64) Load {
	of := rateFields(&l)
	for name, rate := range rates {
		if to, ok := of[name]; ok {
			*to = rate
		}
	}
	return l
}

// Rates are the rates that a storm may change, by their names in files.
func (l Load) Rates() map[string]float64 {
	rates := make(map[string]float64)
	for name, rate := range maps.All(rateFields(&l)) {
		rates[name] = *rate
	}
	return rates
}
