package raftio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/store/disk"
)

// NewLogger returns a logger for hashicorp/raft that writes to slog.
func NewLogger(log *slog.Logger) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "raft", Level: hclog.Debug, Output: io.Discard})
	l.RegisterSink(&sink{log: log, last: map[string]time.Time{}})
	return l
}

// sink passes on what raft logs. Its info is our debug: elections and heartbeats, which the lines of this package
// report to an operator. Raft repeats a warning at every try; one a minute says as much.
type sink struct {
	log *slog.Logger

	mu   sync.Mutex
	last map[string]time.Time // message -> when it was last passed on
}

const repeatAfter = time.Minute

var slogLevels = map[hclog.Level]slog.Level{
	hclog.Trace: slog.LevelDebug,
	hclog.Debug: slog.LevelDebug,
	hclog.Info:  slog.LevelDebug,
	hclog.Warn:  slog.LevelInfo,
	hclog.Error: slog.LevelWarn,
}

// taken has the keys that every line of a node's log already has; Raft uses some of them, too.
var taken = map[string]bool{"time": true, "level": true, "msg": true, "node": true}

// Accept implements hclog.SinkAdapter.
func (s *sink) Accept(name string, level hclog.Level, msg string, args ...any) {
	l := slogLevels[level]
	if !s.log.Enabled(context.Background(), l) || (l > slog.LevelDebug && s.repeated(msg, time.Now())) {
		return
	}
	args = append([]any{"component", name}, args...)
	for i := 2; i < len(args); i += 2 {
		if key, ok := args[i].(string); ok && taken[key] {
			args[i] = "its-" + key
		}
	}
	s.log.Log(context.Background(), l, msg, args...)
}

func (s *sink) repeated(msg string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, ok := s.last[msg]; ok && now.Sub(last) < repeatAfter {
		return true
	}
	s.last[msg] = now // messages are constants of the library, so there are few
	return false
}

// ErrNoResult means that the outcome of a request to Raft is unknown.
var ErrNoResult = errors.New("no answer")

// Wait waits for a future of hashicorp/raft for at most limit. Raft never answers those that are queued when it shuts
// down.
func Wait(ctx context.Context, f raft.Future, limit time.Duration) error {
	done, ended := make(chan error, 1), make(chan struct{})
	defer close(ended)
	// Raft itself ends some of its futures with a channel of its own. All others end when this call does.
	if v := reflect.ValueOf(f); v.Kind() == reflect.Pointer && v.Elem().Kind() == reflect.Struct {
		if field := v.Elem().FieldByName("ShutdownCh"); field.IsValid() && field.IsNil() {
			field.Set(reflect.ValueOf(ended))
		}
	}
	go func() { done <- f.Error() }()
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case err := <-done:
		return err
	case <-t.C:
		return fmt.Errorf("%w within %v", ErrNoResult, limit)
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrNoResult, ctx.Err())
	}
}

// Within is Wait for a request to Raft that may itself have to wait for a place in Raft's queue. It grants half of
// limit for that, so that a refusal is not mistaken for an unknown outcome. It ends within limit.
func Within(ctx context.Context, limit time.Duration, ask func(patience time.Duration) raft.Future) error {
	began := time.Now()
	f := ask(limit / 2)
	return Wait(ctx, f, limit-time.Since(began))
}

// Later is a future that must itself be waited for: Raft accepts a request for a snapshot only when it has finished
// the one before.
type Later func() raft.SnapshotFuture

// Error implements raft.Future.
func (l Later) Error() error { return l().Error() }

// New is raft.NewRaft, but returns an error instead of panicking if a log lacks what the snapshots need.
func New(conf *raft.Config, state raft.FSM, logs raft.LogStore, stable raft.StableStore, snaps raft.SnapshotStore, t raft.Transport) (r *raft.Raft, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", disk.ErrDamaged, p)
		}
	}()
	return raft.NewRaft(conf, state, logs, stable, snaps, t)
}
