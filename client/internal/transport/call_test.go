package transport

import (
	"net/http"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestCallEscapesAnIDAsOneSegment(t *testing.T) {
	j := newJournal()
	c := servers{"a": j.around(always(200, ""))}.cluster(t, "a")
	need.Got(c.Perform(t.Context(), EurekaInstance(http.MethodPut, registry.NewKey("orders", "a/b c?#:1"), "status"), ""))(t)
	expect.Equal(t, j.String(), "PUT /eureka/apps/ORDERS/a%2Fb%20c%3F%23:1/status", "got")
}
