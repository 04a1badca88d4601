package httpd

import (
	"strings"
	"testing"
	"time"
)

func TestEveryMistakeOfTheConfigurationIsReportedAtOnce(t *testing.T) {
	_, err := New(Config{Reads: "fresh", BasePaths: []string{"eureka", "/eureka/"}, Limits: Limits{BatchBytes: -1, InstancesInApp: -2}})
	if err == nil {
		t.Fatal("the configuration was accepted")
	}
	for _, want := range []string{"Service", "reads.eureka", `"eureka"`, `"/eureka/"`, "limits.batch-bytes", "limits.instances-in-app"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
}

func TestUptimeIsInUpstreamsForm(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "00:00", 187 * time.Minute: "03:07", 27*time.Hour + 7*time.Minute: "1 day 03:07", 49 * time.Hour: "2 days 01:00",
	} {
		if got := uptime(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

func TestStatusCountsAreReadFromTheHash(t *testing.T) {
	counts := statusCounts("DOWN_1_OUT_OF_SERVICE_2_UP_10_")
	if len(counts) != 3 || counts[2] != 1 || counts[4] != 2 || counts[1] != 10 {
		t.Errorf("got %v", counts)
	}
	if got := statusCounts(""); len(got) != 0 {
		t.Errorf("an empty hash has %v", got)
	}
}
