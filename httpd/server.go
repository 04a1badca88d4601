package httpd

import (
	"log/slog"
	"net/http"
	"time"
)

// NewServer returns a server for addr with the bounds that every listener of a node has: a client
// that sends or reads too slowly, or sends too large a header, is cut off. Nothing is started.
// A nil log discards what net/http reports of broken connections.
func NewServer(addr string, h http.Handler, log *slog.Logger) *http.Server {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &http.Server{
		Addr:              addr,
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       90 * time.Second,
		MaxHeaderBytes:    maxHeaderBytes,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 100}, // spoken over TLS only
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// net/http adds 4096 bytes of slack of its own to the limit that it is given.
const maxHeaderBytes = 16<<10 - 4096
