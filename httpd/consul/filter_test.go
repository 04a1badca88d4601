package consul

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestFilterStopsAtItsTime(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for _, row := range []struct {
		name string
		ctx  context.Context
		end  time.Time
		want error
		kept int
	}{
		{"in time", t.Context(), time.Time{}, nil, 1},
		{"too late", t.Context(), time.Now().Add(-time.Second), errFilterTooSlow, 0},
		{"client gone", ended, time.Time{}, errFilterTooSlow, 0},
	} {
		r := httptest.NewRequestWithContext(row.ctx, "GET", "/v1/catalog/nodes?filter=Node+==+n1", nil)
		c := call{Call: &web.Call{Params: web.ParamsOf(r), R: r}}
		f := filterOf[listedNode](c)
		f.end = row.end
		kept := f.of([]listedNode{{Node: "n2"}, {Node: "n1"}})
		expect.That(t, len(kept) == row.kept && c.Err == row.want, "%s: kept %v and the error is %v", row.name, kept, c.Err)
	}
}
