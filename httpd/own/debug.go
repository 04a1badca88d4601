package own

import (
	"context"
	"io"
	"net/http"

	"github.com/seed-20419f34/rollcall/httpd/web"
)

// Debug makes bundles that help others to diagnose a node.
type Debug interface {
	// Bundle writes a gzipped tar file. It takes some seconds.
	Bundle(ctx context.Context, w io.Writer) error
}

// debugBundle is GET /v1/rollcall/debug/bundle. A response that has begun and cannot be finished breaks off.
func (c call) debugBundle() (any, error) {
	if c.config.Debug == nil {
		return nil, &web.Refusal{Status: http.StatusNotImplemented, Text: "this node makes no bundles"}
	}
	if !c.bundling.TryLock() {
		return nil, &web.Refusal{Status: http.StatusServiceUnavailable, Text: "another bundle is being made; try again in some seconds", Retry: true}
	}
	defer c.bundling.Unlock()
	c.W.Header().Set("Content-Type", "application/gzip")
	c.W.Header().Set("X-Content-Type-Options", "nosniff")
	out := web.NewPieceWriter(c.W)
	err := c.config.Debug.Bundle(c.R.Context(), out)
	if err != nil && out.Begun {
		c.Log.Warn("a bundle broke off", "to", c.R.RemoteAddr, "err", err)
		panic(http.ErrAbortHandler)
	}
	return web.Sent, err
}
