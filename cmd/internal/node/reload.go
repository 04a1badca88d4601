package node

import (
	"context"
	"log/slog"
	"os"
	"sync"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/world"
)

// reloader reads the settings of a running node again.
type reloader struct {
	load  func() (config.Loaded, error)
	apply func(*config.Config)
	// reads files that settings name again, and returns the settings whose files have changed
	reread  func() (changed []string)
	notify  *notifier // nil if no service manager is told
	log     *slog.Logger
	running config.Config // what the node runs with
}

// during runs do, reloads at each signal meanwhile, and returns do's error.
func (r *reloader) during(ctx context.Context, hup <-chan os.Signal, do func(context.Context) error) error {
	done, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var reloading sync.WaitGroup
	reloading.Go(func() { r.run(done, hup) })
	defer reloading.Wait()
	defer cancel()
	return do(ctx)
}

// run reloads at each signal until ctx ends.
func (r *reloader) run(ctx context.Context, hup <-chan os.Signal) {
	for {
		select {
		case <-hup:
			r.notify.during(r.reload)
		case <-ctx.Done():
			return
		}
	}
}

// reload applies the settings that can change while the node runs, and logs which cannot. Settings with a mistake
// change nothing.
func (r *reloader) reload() {
	s, err := r.load()
	if err != nil {
		r.log.Error("the settings were not read again, the old ones hold", "err", err)
		return
	}
	var now, later []string
	read := s.Config.Settings()
	for i, running := range r.running.Settings() {
		switch {
		case running.String() == read[i].String():
		case running.Reload:
			running.Value.Set(read[i].Value)
			now = append(now, running.Key)
		default:
			later = append(later, running.Key)
		}
	}
	r.apply(&r.running)
	now = append(now, r.reread()...)
	r.log.Info("the settings were read again", "changed", now)
	if len(later) > 0 {
		r.log.Warn("settings have changed that need a restart", "keys", later)
	}
}

// logLevel is the level of the log as own.LogLevel.
type logLevel struct {
	*LogLevel
	world *world.World
}

// Show implements own.LogLevel.
func (l logLevel) Show() api.LogLevel {
	now, configured, until := l.LogLevel.Show()
	shown := api.LogLevel{Level: now, Configured: configured}
	if !until.IsZero() {
		shown.Until = l.world.Wall(until).UnixMilli()
	}
	return shown
}
