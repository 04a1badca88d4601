package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/cmd/cli"
	"github.com/seed-20419f34/rollcall/cmd/localcluster"
	"runtime/debug"
)

// newBenchBareCommand is the baseline of the ratios, in a process of its own like the nodes.
func newBenchBareCommand() *cobra.Command {
	var addr string
	var gcPercent int
	cmd := &cobra.Command{
		Use:    "bare",
		Short:  "Serve the bare handler that bench compares with",
		Hidden: true,
		Args:   cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := localcluster.UntilParentEnds(cmd.Context(), os.LookupEnv, cmd.InOrStdin())
			defer cancel()
			debug.SetGCPercent(gcPercent) // as the nodes: the ratio is about the work
			return serveUntil(ctx, addr, new(bareHandler))
		},
	}
	cmd.Flags().StringVar(&addr, "http-addr", "", "address to serve")
	cmd.Flags().IntVar(&gcPercent, "gc-percent", 100, "as the servers have it")
	return cmd
}

// serveUntil serves until ctx ends.
func serveUntil(ctx context.Context, addr string, handler http.Handler) error {
	server := &http.Server{Addr: addr, Handler: handler}
	context.AfterFunc(ctx, func() { server.Close() })
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// bareHandler answers any PUT with an empty 200, and GET /bytes/N with the same N bytes each time.
type bareHandler struct {
	payloads sync.Map // of []byte by length
}

// barePath is the path of a payload of n bytes.
func barePath(n int64) string { return "/bytes/" + strconv.FormatInt(n, 10) }

// maxBarePayload keeps a mistaken path from taking all memory.
const maxBarePayload = 1 << 30

func (h *bareHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut {
		return
	}
	var n int64
	if _, err := fmt.Sscanf(r.URL.Path, "/bytes/%d", &n); err != nil || n < 0 || n > maxBarePayload {
		http.NotFound(w, r)
		return
	}
	payload, ok := h.payloads.Load(n)
	if !ok {
		payload, _ = h.payloads.LoadOrStore(n, make([]byte, n))
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Content-Encoding", "gzip")
	header.Set("Content-Length", strconv.FormatInt(n, 10))
	w.Write(payload.([]byte))
}
