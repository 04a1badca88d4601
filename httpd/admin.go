package httpd

import (
	"context"
	"log/slog"
	"net"
	"net/http"

	"github.com/seed-20419f34/rollcall/httpd/web"
)

// AdminSocket is the name of the socket in a node's data directory: whoever can open it may do everything.
const AdminSocket = "admin.sock"

// NewAdminServer returns a server for the socket: its calls need no credential.
func NewAdminServer(h *Handler, log *slog.Logger) *http.Server {
	server := NewServer("", h, log)
	server.ConnContext = func(ctx context.Context, _ net.Conn) context.Context { return web.AsAdministrator(ctx) }
	server.RegisterOnShutdown(h.EndWatches)
	return server
}
