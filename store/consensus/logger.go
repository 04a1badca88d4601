package consensus

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// newRaftLogger gives hashicorp/raft a logger that writes to slog.
func newRaftLogger(log *slog.Logger) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "raft", Level: hclog.Debug, Output: io.Discard})
	l.RegisterSink(&sink{log: log, last: map[string]time.Time{}})
	return l
}

// sink passes on what raft logs. Its info is our debug: elections and heartbeats, of which an
// operator is told by the lines of this package. Raft repeats a warning at every try; one a minute
// says as much.
type sink struct {
	log *slog.Logger

	mu   sync.Mutex
	last map[string]time.Time // message -> when it was passed on
}

const repeatAfter = time.Minute

var slogLevels = map[hclog.Level]slog.Level{
	hclog.Trace: slog.LevelDebug,
	hclog.Debug: slog.LevelDebug,
	hclog.Info:  slog.LevelDebug,
	hclog.Warn:  slog.LevelInfo,
	hclog.Error: slog.LevelWarn,
}

// Accept implements hclog.SinkAdapter.
func (s *sink) Accept(name string, level hclog.Level, msg string, args ...any) {
	l := slogLevels[level]
	if !s.log.Enabled(context.Background(), l) || (l > slog.LevelDebug && s.repeated(msg, time.Now())) {
		return
	}
	s.log.Log(context.Background(), l, msg, append([]any{"component", name}, args...)...)
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
