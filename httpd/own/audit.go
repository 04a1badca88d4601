package own

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/audit"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// Bounds of how many audit records are shown.
const (
	defaultRecords = 100
	maxRecords     = 10_000
)

// recordBytes is about what a record takes in a response.
const recordBytes = 512

// audit is GET /v1/rollcall/audit: what this node has recorded.
func (c call) audit() (any, error) {
	q := audit.Query{Since: c.since(), Principal: c.Text("principal"), Outcome: c.Text("outcome"), Limit: defaultRecords}
	if app := c.Text("app"); app != "" {
		q.Resource = access.App.String() + " " + strings.ToUpper(app)
	}
	if q.Outcome != "" && !slices.Contains(api.AuditOutcomes, q.Outcome) {
		c.Refuse("outcome must be one of %s", strings.Join(api.AuditOutcomes, ", "))
	}
	if c.Given("limit") {
		limit, ok := c.Number("limit")
		if ok && (limit < 1 || limit > maxRecords) {
			c.Refuse("limit must be a number from 1 to %d", maxRecords)
		}
		q.Limit = int(limit)
	}
	if c.Err != nil {
		return nil, c.Err
	}
	if err := c.Reserve(min(q.Limit*recordBytes, audit.MaxRead)); err != nil {
		return nil, err
	}
	records, err := c.Audit.Read(c.R.Context(), q)
	if errors.Is(err, audit.ErrNotKept) {
		return nil, &web.Refusal{Status: http.StatusNotImplemented, Text: err.Error(), Cause: err}
	}
	if err != nil {
		return nil, err
	}
	return api.Audit{Node: c.Name, Records: records}, nil
}

// since reads the time from which on records are wanted: a duration ago, or a time.
func (c call) since() time.Time {
	text := c.Text("since")
	if text == "" {
		return time.Time{}
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return c.World.Now().Add(-ago)
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		c.Refuse("since must be a duration, like 2h, or a time, like 2026-11-22T10:00:00Z")
	}
	return at
}
