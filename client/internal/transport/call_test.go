package transport

import (
	"net/http"
	"testing"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestCallEscapesAnIDAsOneSegment(t *testing.T) {
	j := fake.NewJournal()
	c := clusterOf(t, fake.Servers{"a": j.Around(fake.Always(200, ""))}, "a")
	need.Got(c.Perform(t.Context(), EurekaInstance(http.MethodPut, registry.NewKey("orders", "a/b c?#:1"), "status"), ""))(t)
	expect.Equal(t, j.String(), "PUT /eureka/apps/ORDERS/a%2Fb%20c%3F%23:1/status", "got")
}
