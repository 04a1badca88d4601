package main

import (
	"io"
	"log/slog"
)

// newLogger returns a logger as the settings want it. They were validated.
func newLogger(w io.Writer, level, format string) *slog.Logger {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	o := &slog.HandlerOptions{Level: levels[level]}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
