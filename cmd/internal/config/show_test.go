package config

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/setting"
)

func TestWriteHidesThePasswordsOfPeers(t *testing.T) {
	s, err := loadWith(t, []string{"--data-dir", "d", "--replication-eureka", "old=http://user:secret@h:8761/eureka",
		"--replication-datacenters", "dc2=http://secret@h:1 http://user:secret@h:2 http://rct_secret:x@h:3"}, nil, "")
	need.OK(t, err)
	var out strings.Builder
	need.OK(t, s.Write(&out, false))
	expect.That(t, !strings.Contains(out.String(), "secret") && strings.Contains(out.String(), "http://user:xxxxx@h:2"),
		"it prints\n%s", out.String())
}

func TestWritePrintsWhatIsSetWithItsSource(t *testing.T) {
	s, err := loadWith(t,
		[]string{"--data-dir=/var/lib/rollcall", "--test-dial=n2=127.0.0.1:9"},
		map[string]string{"ROLLCALL_RAFT_HEARTBEAT_TIMEOUT": "700ms"},
		"cluster: {join: ['127.0.0.1:7761', '127.0.0.1:7762']}")
	need.OK(t, err)
	var out bytes.Buffer
	need.OK(t, s.Write(&out, false))
	const want = `cluster:
  join: ['127.0.0.1:7761', '127.0.0.1:7762'] # file
data:
  dir: /var/lib/rollcall # flag
raft:
  heartbeat-timeout: 700ms # env
test:
  dial: {n2: '127.0.0.1:9'} # flag
`
	expect.That(t, out.String() == want, "got\n%s\nwant\n%s", out.String(), want)
}

func TestWritePrintsAFileThatLoadsToTheSame(t *testing.T) {
	s := need.Got(loadWith(t, []string{"--data-dir=/d", "--cluster-join=a:1,b:2", "--test-dial=x=a:1", "--log-level=debug"}, nil, ""))(t)
	var out bytes.Buffer
	need.OK(t, s.Write(&out, true))
	again, err := loadWith(t, nil, nil, out.String())
	need.That(t, err == nil, "%v in\n%s", err, out.String())
	noEmptyMaps(again.Config)
	noEmptyMaps(s.Config)
	expect.Deep(t, again.Config, s.Config, "got")
	got, want := strings.Count(out.String(), " # default\n"), len(s.Config.Settings())-4
	expect.That(t, got == want, "%d keys are marked as defaults, want %d:\n%s", got, want, out.String())
}

// noEmptyMaps makes empty maps of settings nil, which have the same text.
func noEmptyMaps(c *Config) {
	for _, s := range setting.Of(c) {
		if s.Value.Kind() == reflect.Map && s.Value.Len() == 0 {
			s.Value.SetZero()
		}
	}
}
