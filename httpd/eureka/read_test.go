package eureka_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestApplicationsAreReadAsTheyWereWritten(t *testing.T) {
	tests := []struct {
		file string
		want eureka.Applications
	}{
		{"apps.json", eureka.Applications{Version: "1", HashCode: "OUT_OF_SERVICE_1_UP_2_", Leases: []*registry.Lease{orders1(), orders2(), billing()}}},
		{"apps-empty.json", eureka.Applications{Version: "1"}},
		{"delta.json", eureka.Applications{Version: "7", HashCode: "STARTING_1_UP_2_", Leases: []*registry.Lease{orders2Back(), orders3(), billingGone()}}},
		{"vip.json", eureka.Applications{Version: "-1", HashCode: "UP_1_", Leases: []*registry.Lease{billing()}}},
	}
	for _, tt := range tests {
		got, err := eureka.DecodeApplications(fixture(t, tt.file))
		need.OKf(t, err, "%s", tt.file)
		expect.Deep(t, *got, tt.want, "%s: got", tt.file)
	}
	leases, err := eureka.DecodeApplication(fixture(t, "application.json"))
	expect.That(t, err == nil && reflect.DeepEqual(leases, []*registry.Lease{orders1(), orders2()}), "application.json: got %+v, %v", leases, err)
	l, err := eureka.DecodeInstance(fixture(t, "heartbeat-conflict.json"), full)
	expect.That(t, err == nil && reflect.DeepEqual(l, billingNewer()), "heartbeat-conflict.json: got %+v, %v", l, err)
}

func TestApplicationsAreReadInTheCompactForm(t *testing.T) {
	apps, err := eureka.DecodeApplications(fixture(t, "apps-compact.json"))
	need.That(t, err == nil && len(apps.Leases) == 3 && apps.Version == "1", "got %+v, %v", apps, err)
	got, want := apps.Leases[2], billing()
	check(t, "id", got.Key(), want.Key())
	check(t, "port", got.Instance.Port, want.Instance.Port)
	check(t, "status", got.Instance.Status, want.Instance.Status)
	check(t, "lastUpdatedTimestamp", got.UpdatedAt, want.UpdatedAt)
	check(t, "actionType", got.Action, want.Action)
	check(t, "entries of the data center", len(got.Instance.DataCenter.Metadata), 5)
}

func TestApplicationsOfOlderServersAreRead(t *testing.T) {
	tests := []struct{ name, body, want string }{
		{"single objects", `{"applications":{"application":{"name":"a","instance":{"hostName":"h"}}}}`, "A/h"},
		{"no list", `{"applications":{"versions__delta":1}}`, ""},
		{"null lists", `{"applications":{"application":[{"name":"a","instance":null}]}}`, ""},
		{"null list of applications", `{"applications":{"application":null}}`, ""},
		{"name after the instances", `{"applications":{"application":[{"instance":[{"hostName":"h"},{"app":"b","hostName":"i"}],"name":"a"},{"name":"c","instance":{"hostName":"h"}}]}}`, "A/h B/i C/h"},
		{"a key that compact servers leak", `{"applications":{"application":[],"registeredApplicationsEmpty":true}}`, ""},
	}
	for _, tt := range tests {
		apps, err := eureka.DecodeApplications([]byte(tt.body))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		var keys []string
		for _, l := range apps.Leases {
			keys = append(keys, l.Key().String())
		}
		check(t, tt.name, strings.Join(keys, " "), tt.want)
	}
	for _, body := range []string{`{}`, `[]`, `{"applications":[]}`, `{"applications":{}} x`, `{"applications":{"application":3}}`, `{"application":{}}`} {
		expect.ErrorIs(t, expect.Err(eureka.DecodeApplications([]byte(body))), eureka.ErrUnparsable, "%s: error", body)
	}
	for _, body := range []string{`{}`, `{"application":[]}`, `{"application":{}}{}`} {
		expect.ErrorIs(t, expect.Err(eureka.DecodeApplication([]byte(body))), eureka.ErrUnparsable, "%s: error", body)
	}
}
