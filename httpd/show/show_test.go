package show

import (
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestUptimeHasTheFormOfUpstream(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "00:00", 187 * time.Minute: "03:07", 27*time.Hour + 7*time.Minute: "1 day 03:07", 49 * time.Hour: "2 days 01:00",
	} {
		expect.Equal(t, Uptime(d), want, "%v is", d)
	}
}
