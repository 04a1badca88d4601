package own

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// Config is what the routes need beside a web.Node.
type Config struct {
	// Moved says how an instance changed its address while it had a lease, or returns "".
	Moved   func(registry.Key) string
	Members Members // nil if the nodes cannot be changed here
	Upgrade Upgrade // nil if the node does not say which levels it writes
	Debug   Debug   // nil if the node makes no bundles
	Peers   Peers   // nil if nothing is replicated
	// Snapshots is nil where snapshots are not offered.
	Snapshots  Snapshots
	JudgeProbe web.ProbeJudge // nil if this node runs no checks
	// LogLevel is nil where the log's level cannot be changed.
	LogLevel LogLevel
}

// Own serves our own API. It is safe for concurrent use.
type Own struct {
	*web.Node
	config   Config
	events   prometheus.Counter // changes sent to watchers
	texts    changeTexts
	bundling sync.Mutex             // held while a bundle is made
	resets   *prometheus.CounterVec // watchers that had to fetch everything, by reason

	peersUnknown atomic.Bool // set after a failed question for the state of the peers, which is logged once
}

// call is a call of our own API.
type call struct {
	*web.Call
	*Own
}

type endpoint func(c call) (document any, err error)

type route web.Route[call]

// New makes the API. It starts nothing.
func New(n *web.Node, c Config) *Own {
	o := &Own{Node: n, config: c}
	o.events = web.NewCounters(n.Metrics, "rollcall_http_watch_events_total", "Changes sent to watchers, in event streams and responses of long polls.").WithLabelValues()
	o.resets = web.NewCounters(n.Metrics, "rollcall_http_watch_resets_total", "Watchers told to fetch everything, by reason; cut: the watcher did not read and was disconnected.", "reason")
	for _, reason := range []string{"too_old", "foreign", "slow", "cut"} {
		o.resets.WithLabelValues(reason)
	}
	return o
}
