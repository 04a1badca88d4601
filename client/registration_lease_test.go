package client

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestTheIntervalIsTheInstancesUnlessTheServerTookAnother(t *testing.T) {
	for _, row := range []struct {
		name               string
		interval, duration int32 // of the instance, seconds
		clamped            string
		want               leaseTimes
	}{
		{"as given", 10, 30, "", leaseTimes{10 * time.Second, 30 * time.Second}},
		{"not given", 0, 0, "", leaseTimes{30 * time.Second, 90 * time.Second}},
		{"out of our bounds", 7200, 1 << 30, "", leaseTimes{time.Hour, 24 * time.Hour}},
		{"both clamped", 1, 3, "renewalIntervalInSecs=5, durationInSecs=20", leaseTimes{5 * time.Second, 20 * time.Second}},
		{"the duration clamped", 10, 30, "durationInSecs=60", leaseTimes{10 * time.Second, time.Minute}},
		{"without a space", 1, 3, "renewalIntervalInSecs=5,durationInSecs=20", leaseTimes{5 * time.Second, 20 * time.Second}},
		{"other words", 10, 30, "renewalintervalinsecs=5, durationInSecs=-1, durationInSecs=x, evictionInSecs=3, =4, renewalIntervalInSecs", leaseTimes{10 * time.Second, 30 * time.Second}},
		{"out of all bounds", 10, 30, "renewalIntervalInSecs=2147483647, durationInSecs=2147483648", leaseTimes{time.Hour, 30 * time.Second}},
	} {
		expect.Equal(t, leaseOf(&registry.Instance{RenewalInterval: row.interval, Duration: row.duration}, row.clamped), row.want, "%s: got", row.name)
	}
}

func TestHeartbeatsComeAtTheIntervalThatTheServerTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRegistrar()
		s.clamped = "renewalIntervalInSecs=20, durationInSecs=60"
		r := s.register(t)
		time.Sleep(45 * time.Second)
		s.wantVisits(t, "0s POST UP", "20s PUT", "40s PUT")
		expect.Equal(t, r.Interval(), 20*time.Second, "the interval is")
		s.fails(503)
		time.Sleep(54 * time.Second) // 59 s after the last one
		expect.OKf(t, r.Healthy(), "within the lease that the server took")
	})
}

func FuzzParseClamped(f *testing.F) {
	f.Add("renewalIntervalInSecs=3600, durationInSecs=86400")
	f.Add("durationInSecs=3")
	f.Add(",=, renewalIntervalInSecs=99999999999999999999")
	f.Fuzz(func(t *testing.T, header string) {
		interval, duration := parseClamped(header)
		expect.That(t, interval >= 0 && duration >= 0, "%q: %d, %d", header, interval, duration)
		lease := leaseOf(&registry.Instance{}, header)
		expect.That(t, lease.interval >= time.Second && lease.interval <= time.Hour && lease.duration >= 3*time.Second && lease.duration <= 24*time.Hour,
			"%q: %v is out of bounds", header, lease)
	})
}
