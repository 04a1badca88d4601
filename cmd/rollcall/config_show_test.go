package main

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

func TestShowPrintsWhatIsSetAndWhereItCameFrom(t *testing.T) {
	s, err := loadWith(t,
		[]string{"--data-dir=/var/lib/rollcall", "--cluster-dial=n2=127.0.0.1:9"},
		map[string]string{"ROLLCALL_RAFT_HEARTBEAT_TIMEOUT": "700ms"},
		"cluster: {join: ['127.0.0.1:7761', '127.0.0.1:7762']}")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := s.write(&out, false); err != nil {
		t.Fatal(err)
	}
	const want = `cluster:
  join: ['127.0.0.1:7761', '127.0.0.1:7762'] # file
  dial: {n2: '127.0.0.1:9'} # flag
data:
  dir: /var/lib/rollcall # flag
raft:
  heartbeat-timeout: 700ms # env
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestEffectiveSettingsLoadToTheSame(t *testing.T) {
	s, err := loadWith(t, []string{"--data-dir=d", "--cluster-join=a:1,b:2", "--cluster-dial=x=a:1", "--log-level=debug"}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := s.write(&out, true); err != nil {
		t.Fatal(err)
	}
	again, err := loadWith(t, nil, nil, out.String())
	if err != nil {
		t.Fatalf("%v in\n%s", err, out.String())
	}
	if !reflect.DeepEqual(again.Config, s.Config) {
		t.Errorf("got\n%+v, want\n%+v", again.Config, s.Config)
	}
	if got, want := strings.Count(out.String(), " # default\n"), len(configKeys())-4; got != want {
		t.Errorf("%d keys are marked as defaults, want %d:\n%s", got, want, out.String())
	}
}
