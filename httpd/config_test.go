package httpd

import (
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestEveryMistakeOfTheConfigurationIsReportedAtOnce(t *testing.T) {
	_, err := New(Config{Reads: "fresh", BasePaths: []string{"eureka", "/eureka/"}, Limits: Limits{BatchBytes: -1, InstancesInApp: -2}})
	need.That(t, err != nil, "the configuration was accepted")
	for _, want := range []string{"Service", "reads.eureka", `"eureka"`, `"/eureka/"`, "limits.batch-bytes", "limits.instances-in-app"} {
		expect.That(t, strings.Contains(err.Error(), want), "the error does not name %s: %v", want, err)
	}
}

func TestUptimeIsInUpstreamsForm(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "00:00", 187 * time.Minute: "03:07", 27*time.Hour + 7*time.Minute: "1 day 03:07", 49 * time.Hour: "2 days 01:00",
	} {
		expect.Equal(t, uptime(d), want, "%v is", d)
	}
}

func TestStatusCountsAreReadFromTheHash(t *testing.T) {
	counts := statusCounts("DOWN_1_OUT_OF_SERVICE_2_UP_10_")
	expect.That(t, len(counts) == 3 && counts[2] == 1 && counts[4] == 2 && counts[1] == 10, "got %v", counts)
	got := statusCounts("")
	expect.That(t, len(got) == 0, "an empty hash has %v", got)
}
