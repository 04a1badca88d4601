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

func TestStatusCountsReadsTheHash(t *testing.T) {
	counts := StatusCounts("DOWN_1_OUT_OF_SERVICE_2_UP_10_")
	expect.That(t, len(counts) == 3 && counts[2] == 1 && counts[4] == 2 && counts[1] == 10, "got %v", counts)
	got := StatusCounts("")
	expect.That(t, len(got) == 0, "an empty hash has %v", got)
}
