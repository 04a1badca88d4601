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
	until      time.Time   // of another level; zero: there is none
	end        *time.Timer // of it
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

// Configure changes the level that the settings name. Another one that holds for a while is left to its end.
func (l *LogLevel) Configure(word string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.configured = word
	if l.until.IsZero() {
		l.now.Set(levelOf(word))
	}
}

// Override lets another level hold for a while.
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

// Show is the level of now, the one that the settings name, and until when the former holds; zero: they are the same.
func (l *LogLevel) Show() (now, configured string, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.ToLower(l.now.Level().String()), l.configured, l.until
}
