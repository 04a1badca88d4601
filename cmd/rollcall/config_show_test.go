package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/cmd/cli"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestShowPrintsWhatIsSetAndWhereItCameFrom(t *testing.T) {
	s, err := loadWith(t,
		[]string{"--data-dir=/var/lib/rollcall", "--test-dial=n2=127.0.0.1:9"},
		map[string]string{"ROLLCALL_RAFT_HEARTBEAT_TIMEOUT": "700ms"},
		"cluster: {join: ['127.0.0.1:7761', '127.0.0.1:7762']}")
	need.OK(t, err)
	var out bytes.Buffer
	need.OK(t, s.write(&out, false))
	const want = `cluster:
  join: ['127.0.0.1:7761', '127.0.0.1:7762'] # file
data:
  dir: /var/lib/rollcall # flag
raft:
  heartbeat-timeout: 700ms # env
test:
  dial: {n2: '127.0.0.1:9'} # flag
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestEffectiveSettingsLoadToTheSame(t *testing.T) {
	s := need.Got(loadWith(t, []string{"--data-dir=d", "--cluster-join=a:1,b:2", "--test-dial=x=a:1", "--log-level=debug"}, nil, ""))(t)
	var out bytes.Buffer
	need.OK(t, s.write(&out, true))
	again, err := loadWith(t, nil, nil, out.String())
	if err != nil {
		t.Fatalf("%v in\n%s", err, out.String())
	}
	noEmptyMaps(again.Config)
	noEmptyMaps(s.Config)
	expect.Deep(t, again.Config, s.Config, "got")
	if got, want := strings.Count(out.String(), " # default\n"), len(s.Config.settings())-4; got != want {
		t.Errorf("%d keys are marked as defaults, want %d:\n%s", got, want, out.String())
	}
}

func TestSettingsThatDifferFromTheClustersAreMarked(t *testing.T) {
	s := newFakeServer(t, 200, `{"self-preservation.enabled":true,"self-preservation.renewal-percent-threshold":0.850,"self-preservation.min-instances":20,
		"self-preservation.max-duration":"60m","eureka-compat.expectation":true,"replication.on-cut":"dc2=keep-for:1h0m0s","unknown.key":1}`)
	stdout, stderr, code := rollcall(t, "config", "show", "--effective", "--data-dir=d", "--addr", s.URL,
		"--replication-datacenters=dc2=http://10.1.0.1:8761,dc3=http://10.1.0.2:8761", "--replication-on-cut=dc2=keep-for:60m,dc3=keep")
	need.That(t, code == cli.ExitOK, "exit %d: %s", code, stderr)
	if want := "GET /v1/rollcall/settings"; len(s.requests) != 1 || s.requests[0] != want {
		t.Errorf("sent %q, want %q", s.requests, want)
	}
	var marked []string
	for line := range strings.Lines(stdout) {
		if strings.Contains(line, "the cluster has") {
			marked = append(marked, strings.TrimSpace(line))
		}
	}
	want := []string{"expectation: false # default, but the cluster has true", "min-instances: 10 # default, but the cluster has 20"}
	expect.Deep(t, marked, want, "marked")
}

func TestSettingsAreNotComparedWithAClusterThatCannotBeAsked(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		code int
		says string
	}{
		"nobody there":        {args: []string{"--effective", "--addr", "127.0.0.1:1"}, code: cli.ExitError, says: "read the cluster's settings"},
		"no URL":              {args: []string{"--effective", "--addr", "ftp://a"}, code: cli.ExitUsage, says: "--addr"},
		"without --effective": {args: []string{"--addr", "127.0.0.1:1"}, code: cli.ExitUsage, says: "give --effective too"},
	} {
		stdout, stderr, code := rollcall(t, append([]string{"config", "show", "--data-dir=d"}, tc.args...)...)
		expect.That(t, code == tc.code && strings.Contains(stderr, tc.says) && stdout == "",
			"%s: exit %d, said %q, printed %q, want exit %d and %q", name, code, stderr, stdout, tc.code, tc.says)
	}
}
