package main

import (
	"reflect"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/setting"
)

// rows calls check with every setting of a default configuration.
func rows(t *testing.T, check func(*testing.T, setting.Setting)) {
	t.Helper()
	for _, s := range defaultConfig().settings() {
		t.Run(s.Key, func(t *testing.T) { check(t, s) })
	}
}

func TestEverySettingHasAHelpAndNamesOfItsOwn(t *testing.T) {
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
func TestTheDefaultOfEverySettingIsWithinItsBounds(t *testing.T) {
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

func TestEverySettingSurvivesItsTextForm(t *testing.T) {
	rows(t, func(t *testing.T, s setting.Setting) {
		again := s
		again.Value = reflect.New(s.Value.Type()).Elem()
		err := again.Set(s.String())
		expect.That(t, err == nil && again.String() == s.String(), "%q came back as %q: %v", s, again, err)
	})
}

// noEmptyMaps makes empty maps of settings nil, which have the same text.
func noEmptyMaps(c *Config) {
	for _, s := range setting.Of(c) {
		if s.Value.Kind() == reflect.Map && s.Value.Len() == 0 {
			s.Value.SetZero()
		}
	}
}

func TestEnvironmentVariablesAreSpeltAsDocumented(t *testing.T) {
	expect.Equal(t, (setting.Setting{Key: "http.tls.client-ca"}).Env(), "ROLLCALL_HTTP_TLS_CLIENT_CA", "got")
}
