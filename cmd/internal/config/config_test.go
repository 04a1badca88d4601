package config

import (
	"reflect"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/setting"
)

func TestDefaultLeasesAreThoseOfTheRegistry(t *testing.T) {
	expect.Equal(t, Default().Leases(), registry.DefaultSettings(), "got")
}

func TestSettingsOfLeasesReachTheRegistry(t *testing.T) {
	s, err := loadWith(t, []string{
		"--data-dir=d", "--self-preservation-enabled=false", "--self-preservation-renewal-percent-threshold=0.333333",
		"--self-preservation-min-instances=3", "--self-preservation-max-duration=0s", "--eureka-compat-expectation",
		"--eureka-compat-expected-client-renewal-interval=10s", "--eureka-compat-renewal-threshold-update-interval=90s", "--eureka-compat-doubled-lease",
		"--replication-datacenters=dc2=http://10.1.0.1:8761,dc3=http://10.2.0.1:8761", "--replication-eureka=old=http://10.9.0.1:8761/eureka",
		"--replication-on-cut=old=expire,dc3=keep,dc2=keep-for:60m",
	}, nil, "")
	need.OK(t, err)
	want := registry.DefaultSettings()
	want.SelfPreservation, want.Threshold, want.Population, want.Bound = false, 333_333, 3, 0
	want.Expectation, want.ExpectedInterval, want.ExpectationUpdate, want.DoubledLease = true, 10, 90_000, true
	want.OnCut = "dc2=keep-for:1h0m0s,old=expire"
	expect.Equal(t, s.Leases(), want, "got")
}

func TestSettingsOfLeasesAcceptAThresholdOfZero(t *testing.T) {
	s := need.Got(loadWith(t, []string{"--data-dir=d", "--self-preservation-renewal-percent-threshold=0", "--self-preservation-enabled=false"}, nil, ""))(t)
	got := s.Leases()
	expect.That(t, got.Threshold == 0 && !got.SelfPreservation, "got %+v, want a threshold of 0 without self-preservation", got)
}

func rows(t *testing.T, check func(*testing.T, setting.Setting)) {
	t.Helper()
	for _, s := range Default().Settings() {
		t.Run(s.Key, func(t *testing.T) { check(t, s) })
	}
}

func TestSettingHasAHelpAndNamesOfItsOwn(t *testing.T) {
	seen := make(map[string]string)
	rows(t, func(t *testing.T, s setting.Setting) {
		for _, name := range []string{"--" + s.Flag(), s.Env()} {
			other, taken := seen[name]
			expect.That(t, !taken, "%s belongs to %s too", name, other)
			seen[name] = s.Key
		}
		expect.That(t, s.Help != "" && !strings.Contains(s.Help, "|"), "its help is %q, want a text for a cell of a table", s.Help)
	})
}

// A default or a bound that cannot be parsed panics, in this test at the latest.
func TestSettingHasADefaultWithinItsBounds(t *testing.T) {
	rows(t, func(t *testing.T, s setting.Setting) {
		expect.OKf(t, s.Check(), "its default")
		for _, bound := range []string{s.Min, s.Max} {
			other := s
			other.Value = reflect.New(s.Value.Type()).Elem()
			if bound == "" {
				continue
			}
			if err := other.Set(bound); err != nil {
				t.Errorf("its bound: %v", err)
			} else if err := other.Check(); err != nil {
				t.Errorf("its bound is out of its bounds: %v", err)
			}
		}
	})
}

func TestSettingSurvivesItsTextForm(t *testing.T) {
	rows(t, func(t *testing.T, s setting.Setting) {
		again := s
		again.Value = reflect.New(s.Value.Type()).Elem()
		err := again.Set(s.String())
		expect.That(t, err == nil && again.String() == s.String(), "%q came back as %q: %v", s, again, err)
	})
}

func TestSettingHasTheEnvironmentVariableOfTheDocuments(t *testing.T) {
	expect.Equal(t, (setting.Setting{Key: "http.tls.client-ca"}).Env(), "ROLLCALL_HTTP_TLS_CLIENT_CA", "got")
}
