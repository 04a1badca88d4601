//go:build nextlevel || skiplevel

package own

import (
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// nextRoutes are the routes of a program that plays the next version in tests of upgrades.
var nextRoutes = []documented{
	{route{web.ByOperation, web.Put, "/v1/rollcall/notes/{key}", web.JSONForm, web.WithCoordination(web.Bodiless(call.putNote))}, nil},
}

// putNote is PUT /v1/rollcall/notes/{key}?value=, which needs level 4.
func (c call) putNote() (any, error) {
	result, err := c.Coordinate(c.R.Context(), kv.Note{Key: c.Segment("key"), Value: []byte(c.Text("value"))})
	if err != nil {
		return nil, err
	}
	return result.Index, nil
}
