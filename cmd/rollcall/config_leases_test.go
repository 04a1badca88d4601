package main

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestLeasesEndAsTheRegistryWouldByDefault(t *testing.T) {
	expect.Equal(t, defaultConfig().leases(), registry.DefaultSettings(), "got")
}

func TestSettingsOfLeasesReachTheRegistry(t *testing.T) {
	s, err := loadWith(t, []string{
		"--data-dir=d", "--self-preservation-enabled=false", "--self-preservation-renewal-percent-threshold=0.333333",
		"--self-preservation-min-instances=3", "--self-preservation-max-duration=0s", "--eureka-compat-expectation",
		"--eureka-compat-expected-client-renewal-interval=10s", "--eureka-compat-renewal-threshold-update-interval=90s", "--eureka-compat-doubled-lease",
		"--replication-datacenters=dc2=http://10.1.0.1:8761,dc3=http://10.2.0.1:8761", "--replication-eureka=old=http://10.9.0.1:8761/eureka",
		"--replication-on-cut=old=expire,dc3=keep,dc2=keep-for:60m",
	}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	want := registry.DefaultSettings()
	want.SelfPreservation, want.Threshold, want.Population, want.Bound = false, 333_333, 3, 0
	want.Expectation, want.ExpectedInterval, want.ExpectationUpdate, want.DoubledLease = true, 10, 90_000, true
	want.OnCut = "dc2=keep-for:1h0m0s,old=expire"
	if got := s.leases(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestAThresholdOfZeroIsAccepted(t *testing.T) {
	s := need.Got(loadWith(t, []string{"--data-dir=d", "--self-preservation-renewal-percent-threshold=0", "--self-preservation-enabled=false"}, nil, ""))(t)
	got := s.leases()
	expect.That(t, got.Threshold == 0 && !got.SelfPreservation, "got %+v, want a threshold of 0 without self-preservation", got)
}

func TestOneSwitchTurnsTheFourOfCompatibilityOn(t *testing.T) {
	four := []string{"doubled-lease", "eviction-timer", "expectation", "read-only-cache"}
	for _, tc := range []struct {
		name string
		args []string
		want []string
	}{
		{name: "none"},
		{name: "one", args: []string{"--eureka-compat-eviction-timer"}, want: []string{"eviction-timer"}},
		{name: "all", args: []string{"--eureka-compat-all"}, want: append([]string{"all"}, four...)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := need.Got(loadWith(t, append(tc.args, "--data-dir=d"), nil, ""))(t)
			var on []string
			for _, each := range s.Config.settings() {
				if name, compat := strings.CutPrefix(each.Key, "eureka-compat."); compat && each.String() == "true" {
					on = append(on, name)
				}
			}
			expect.That(t, slices.Equal(on, tc.want), "%q are on, want %q", on, tc.want)
			if c := s.storeConfig(engineEnv{}); c.Settings != s.leases() {
				t.Errorf("the store gets %+v, want %+v", c.Settings, s.leases())
			}
		})
	}
}

func TestAThresholdThatKeepsEverythingIsWarnedOf(t *testing.T) {
	for _, tc := range []struct {
		threshold registry.Share
		warned    bool
	}{{registry.Whole, true}, {999_000, false}, {0, false}, {850_000, false}} {
		c := oneNode(t)
		c.Store.Settings.Threshold = tc.threshold
		var said bytes.Buffer
		n, err := openNode(c, slog.New(slog.NewTextHandler(&said, nil)))
		need.That(t, err == nil, "threshold %v: %v, want it allowed", tc.threshold, err)
		expect.OK(t, started(t, n)())
		got := strings.Contains(said.String(), "nothing is ever evicted")
		expect.That(t, got == tc.warned, "threshold %v: warned %v, want %v:\n%s", tc.threshold, got, tc.warned, &said)
	}
}
