package httpd

import (
	"log/slog"
	"net/http"

	"github.com/gorilla/mux"
	"github.com/prometheus/client_golang/prometheus"
)

// Handler serves every route of a node. Safe for concurrent use.
type Handler struct {
	config Config
	router *mux.Router
}

// New checks the configuration and builds the routes. It starts nothing.
func New(c Config) (*Handler, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	h := &Handler{config: c.withDefaults(), router: mux.NewRouter().SkipClean(true).UseEncodedPath()}
	return h, nil
}

func (c Config) withDefaults() Config {
	if c.BasePaths == nil {
		c.BasePaths = DefaultBasePaths()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		c.Metrics = prometheus.NewRegistry()
	}
	c.Limits = c.Limits.withDefaults()
	return c
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.router.ServeHTTP(w, r) }
