package sim

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/world"
)

// Others returns the names of the nodes except those given.
func (w *World) Others(not ...string) []string {
	return slices.DeleteFunc(w.Names(), func(n string) bool { return slices.Contains(not, n) })
}

// Dir returns the data directory of a node.
func (w *World) Dir(node string) string {
	w.Helper()
	return w.dir(w.Node(node))
}

// Wipe empties the data directory of a stopped node, as a new disk does.
func (w *World) Wipe(node string) {
	w.Helper()
	n := w.Node(node)
	need.That(w, !n.running(), "%s runs", node)
	need.OK(w, os.RemoveAll(w.dir(n)))
}

// At returns the world of a program on a node's machine that is not the node.
func (w *World) At(node string) *world.World {
	w.Helper()
	return w.Node(node).world(w.network.host(w.Node(node).ip))
}

// Log returns what all nodes have logged so far.
func (w *World) Log() string {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	return w.log.text.String()
}

// Metric reads a number from a node's metrics; name includes its labels.
func (w *World) Metric(node, name string, headers ...string) float64 {
	w.Helper()
	r := w.Call(node, "GET", "/metrics", "", append(headers, "Accept: */*")...)
	for line := range strings.Lines(r.Body) {
		var number float64
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			need.Got(fmt.Sscan(value, &number))(w)
			return number
		}
	}
	w.Fatalf("%s has no metric %s: %d", node, name, r.Status)
	return 0
}

// Admin sends a request through the socket in a node's data directory, which asks for no credential.
func (w *World) Admin(node, method, path, body string) Reply {
	w.Helper()
	n := w.Node(node)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return w.network.host(n.ip).DialContext(ctx, "unix", filepath.Join(w.dir(n), "admin.sock"))
	}
	local := *w
	local.clients = &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}, Timeout: 10 * time.Second}
	return local.Call(node, method, path, body)
}
