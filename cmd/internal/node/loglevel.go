package node

import (
	"log/slog"
	"strings"
	"sync"
	"time"
)

// LogLevel is what a log shows: the level that the settings name, or another one for a while. Levels are the words of
// log.level, which were validated. Safe for concurrent use.
type LogLevel struct {
	now slog.LevelVar

	mu         sync.Mutex
	configured string
	until      time.Time   // of another level; zero if there is none
	end        *time.Timer // timer for the end of it
}

// NewLogLevel is a level that the settings name.
func NewLogLevel(word string) *LogLevel {
	l := new(LogLevel)
	l.Configure(word)
	return l
}

func levelOf(word string) slog.Level {
	return map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}[word]
}

// Configure changes the level in the settings. A temporary level stays until its end.
func (l *LogLevel) Configure(word string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.configured = word
	if l.until.IsZero() {
		l.now.Set(levelOf(word))
	}
}

// Override sets another level for a while.
func (l *LogLevel) Override(word string, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.end != nil {
		l.end.Stop()
	}
	until := time.Now().Add(d)
	l.until = until
	l.now.Set(levelOf(word))
	l.end = time.AfterFunc(d, func() { l.restore(until) })
}

// restore ends what Override began, unless it was called again meanwhile.
func (l *LogLevel) restore(until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.until.Equal(until) {
		l.until = time.Time{}
		l.now.Set(levelOf(l.configured))
	}
}

// Show returns the current level, the one in the settings, and until when the former lasts; zero if they are the
// same.
func (l *LogLevel) Show() (now, configured string, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.ToLower(l.now.Level().String()), l.configured, l.until
}
