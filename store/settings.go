package store

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// settingsWatch says when the settings that hold in the cluster, which are those of whoever leads,
// are not this node's own: an operator who changed one file of three wants to know.
type settingsWatch struct {
	own   registry.Settings
	state func() registry.Settings // those that hold now
	log   *slog.Logger

	mu   sync.Mutex
	said string // what was logged last; "": they agree
}

// note compares the settings that hold with this node's own, and logs a change of the result.
func (w *settingsWatch) note() {
	w.mu.Lock()
	defer w.mu.Unlock()
	differs := differences(w.state(), w.own)
	if differs == w.said {
		return
	}
	w.said = differs
	if differs == "" {
		w.log.Info("this node's settings are the cluster's again")
		return
	}
	w.log.Warn("the cluster's settings are not this node's: those of the leader hold", "differing", differs)
}

// differences names the settings that differ, by their configuration keys; "" if none does.
func differences(state, own registry.Settings) string {
	var words []string
	for _, s := range settings {
		if in, mine := s.value(state), s.value(own); in != mine {
			words = append(words, fmt.Sprintf("%s is %v in the cluster and %v here", s.key, in, mine))
		}
	}
	return strings.Join(words, "; ")
}

// settings are the settings that travel in the log, by their configuration keys.
var settings = []struct {
	key   string
	value func(registry.Settings) any
}{
	{"self-preservation.enabled", func(s registry.Settings) any { return s.SelfPreservation }},
	{"self-preservation.renewal-percent-threshold", func(s registry.Settings) any { return shareOf(s.Threshold) }},
	{"self-preservation.min-instances", func(s registry.Settings) any { return s.Population }},
	{"self-preservation.max-duration", func(s registry.Settings) any { return milliseconds(s.Bound) }},
	{"eureka-compat.expectation", func(s registry.Settings) any { return s.Expectation }},
	{"eureka-compat.doubled-lease", func(s registry.Settings) any { return s.DoubledLease }},
	{"eureka-compat.expected-client-renewal-interval", func(s registry.Settings) any { return time.Duration(s.ExpectedInterval) * time.Second }},
	{"eureka-compat.renewal-threshold-update-interval", func(s registry.Settings) any { return milliseconds(s.ExpectationUpdate) }},
	{"replication.on-cut", func(s registry.Settings) any { return cmp.Or(s.OnCut, "keep") }},
}

func milliseconds(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// shareOf is a share as configurations write it; package registry has no floating-point numbers.
func shareOf(s registry.Share) float64 { return float64(s) / float64(registry.Whole) }
