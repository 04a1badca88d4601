package own

import (
	"net/http"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// LogLevel is the level of the node's log.
type LogLevel interface {
	// Override sets another level for a while.
	Override(level string, d time.Duration)
	Show() api.LogLevel
}

// Bounds of the parameter for.
const (
	defaultLogFor = 10 * time.Minute
	maxLogFor     = 24 * time.Hour
)

// showLogLevel is GET /v1/rollcall/log-level.
func (c call) showLogLevel() (any, error) { return c.config.LogLevel.Show(), nil }

// setLogLevel is PUT /v1/rollcall/log-level: it sets this node's level for a while.
func (c call) setLogLevel() (any, error) {
	level := c.Text("level")
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, level) {
		c.Refuse("level must be debug, info, warn or error")
	}
	d, given := c.Duration("for", time.Second, maxLogFor, "for must be a duration from 1s to 24h, like 10m")
	if c.IgnoreBody(); c.Err != nil {
		return nil, c.Err
	}
	if !given {
		d = defaultLogFor
	}
	c.config.LogLevel.Override(level, d)
	_ = c.Did("log_level", level, registry.Act{}, nil)
	c.Log.Warn("the log's level was changed for a while", "log-level", level, "for", d, "by", c.R.RemoteAddr)
	return c.config.LogLevel.Show(), nil
}

// withLogLevel makes an endpoint from do that refuses where the log's level cannot be changed.
func withLogLevel(do endpoint) endpoint {
	return func(c call) (any, error) {
		if c.config.LogLevel == nil {
			return nil, &web.Refusal{Status: http.StatusNotImplemented, Text: "the level of this node's log cannot be changed"}
		}
		return do(c)
	}
}
