package main

import (
	"reflect"
	"testing"
)

func TestKeysHaveDistinctFlagsAndVariablesAndAHelp(t *testing.T) {
	seen := make(map[string]string)
	for _, k := range configKeys() {
		for _, name := range []string{"--" + k.flag(), k.env()} {
			if other, taken := seen[name]; taken {
				t.Errorf("%s belongs to %s and to %s", name, other, k.name)
			}
			seen[name] = k.name
		}
		if k.help == "" {
			t.Errorf("%s has no help", k.name)
		}
	}
}

func TestDefaultsSurviveTheirTextForm(t *testing.T) {
	got := new(Config)
	for _, k := range configKeys() {
		if err := k.set(got, k.format(defaultConfig())); err != nil {
			t.Errorf("%s: %v", k.name, err)
		}
	}
	noEmptyMaps(got)
	if want := defaultConfig(); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
}

// noEmptyMaps makes empty maps of settings nil, which have the same text.
func noEmptyMaps(c *Config) {
	for _, k := range configKeys() {
		if f := k.field(c); f.Kind() == reflect.Map && f.Len() == 0 {
			f.SetZero()
		}
	}
}

func TestEnvironmentVariablesAreSpeltAsDocumented(t *testing.T) {
	if got, want := (key{name: "http.tls.client-ca"}).env(), "ROLLCALL_HTTP_TLS_CLIENT_CA"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
