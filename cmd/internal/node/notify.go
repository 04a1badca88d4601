package node

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/seed-20419f34/rollcall/internal/wait"
)

// notifier tells a service manager how the node is, through the socket that the environment names; without one it
// does nothing.
type notifier struct {
	readiness func() (ready bool, sentence string)
	alive     func(context.Context) bool // see engine
	log       *slog.Logger

	mu       sync.Mutex
	status   string // the last one sent
	ready    bool   // READY was sent
	stopping bool   // STOPPING was sent
	failed   bool   // the last message could not be sent
}

// readinessInterval is the time between two checks whether the node is ready.
const readinessInterval = 250 * time.Millisecond

// run reports changes, and that the store is alive, until ctx ends.
func (n *notifier) run(ctx context.Context) {
	if ctx.Err() != nil {
		return // the node was opened and will not run
	}
	if sent, err := daemon.SdNotify(false, "STATUS=starting"); !sent && err == nil {
		return // no socket
	}
	within, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		n.log.Warn("the service manager's watchdog gets no signs of life", "err", err)
	}
	var watchdog sync.WaitGroup
	if within > 0 {
		watchdog.Go(func() { n.signs(ctx, within/3) })
	}
	n.look()
	wait.Every(ctx, readinessInterval, func(time.Time) { n.look() })
	watchdog.Wait()
}

// signs sends signs of life, each only after the store's own loop has replied, so a node whose store hangs sends none.
func (n *notifier) signs(ctx context.Context, interval time.Duration) {
	wait.Every(ctx, interval, func(time.Time) {
		if n.alive(ctx) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.notify(daemon.SdNotifyWatchdog)
		}
	})
}

// look reports what has changed. READY is sent once: a node that loses its leader afterwards keeps serving, and must
// not be restarted.
func (n *notifier) look() {
	ready, sentence := n.readiness()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopping {
		return
	}
	var lines []string
	if ready && !n.ready {
		n.ready = true
		lines = append(lines, daemon.SdNotifyReady)
	}
	if sentence != n.status {
		n.status = sentence
		lines = append(lines, "STATUS="+sentence)
	}
	if len(lines) > 0 {
		n.notify(lines...)
	}
}

// during reports that the settings are being read again, while do does so.
func (n *notifier) during(do func()) {
	if n == nil {
		do()
		return
	}
	n.mu.Lock()
	announced := n.ready && !n.stopping
	if announced {
		n.notify(daemon.SdNotifyReloading, strings.TrimSpace(daemon.SdNotifyMonotonicUsec()))
	}
	n.mu.Unlock()
	do()
	n.mu.Lock()
	defer n.mu.Unlock()
	if announced && !n.stopping {
		n.notify(daemon.SdNotifyReady)
	}
}

// stop reports that the node ends within a time, after which the manager may kill it. Nothing follows but the reason,
// if there is one.
func (n *notifier) stop(within time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopping {
		return
	}
	n.stopping = true
	lines := []string{daemon.SdNotifyStopping, fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", within.Microseconds())}
	if _, sentence := n.readiness(); sentence != n.status {
		lines = append(lines, "STATUS="+sentence)
	}
	n.notify(lines...)
}

// fail reports that the node has ended, and why.
func (n *notifier) fail(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stopping = true
	text, _, _ := strings.Cut(err.Error(), "\n")
	n.notify(daemon.SdNotifyStopping, "STATUS=ended: "+text)
}

// notify sends lines as one message. It logs the first of several failures in a row. The caller holds mu.
func (n *notifier) notify(lines ...string) {
	_, err := daemon.SdNotify(false, strings.Join(lines, "\n"))
	if err != nil && !n.failed {
		n.log.Warn("the service manager does not learn the node's state", "err", fmt.Errorf("NOTIFY_SOCKET: %w", err))
	}
	n.failed = err != nil
}
