package consensus

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/setting"
)

// settingsWatch reports when the settings in force in the cluster, which are the leader's, are not this node's own:
// an operator who changed one file of three wants to know.
type settingsWatch struct {
	own   registry.Settings
	state func() registry.Settings // returns the settings in force
	log   *slog.Logger

	mu     sync.Mutex
	logged string // newest difference that was logged; "" if they agree
}

// compare compares the settings in force with this node's own, and logs a change of the result.
func (w *settingsWatch) compare() {
	w.mu.Lock()
	defer w.mu.Unlock()
	differs := differences(w.state(), w.own)
	if differs == w.logged {
		return
	}
	w.logged = differs
	if differs == "" {
		w.log.Info("this node's settings are the cluster's again")
		return
	}
	w.log.Warn("the cluster's settings are not this node's: those of the leader hold", "differing", differs)
}

// gauge returns 1 while they differ.
func (w *settingsWatch) gauge() float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.logged == "" {
		return 0
	}
	return 1
}

// differences names the settings that differ, by their configuration keys; "" if none does.
func differences(state, own registry.Settings) string {
	var words []string
	here := setting.Of(&own)
	for i, there := range setting.Of(&state) {
		if there.String() != here[i].String() {
			words = append(words, fmt.Sprintf("%s is %s in the cluster and %s here", there.Key, cmp.Or(there.String(), there.Zero), cmp.Or(here[i].String(), there.Zero)))
		}
	}
	return strings.Join(words, "; ")
}
