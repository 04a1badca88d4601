package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestConfigShowMarksSettingsThatDifferFromTheClusters(t *testing.T) {
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

func TestConfigShowFailsWhenTheClusterCannotBeAsked(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		code int
		says string
	}{
		"no server there":     {args: []string{"--effective", "--addr", "127.0.0.1:1"}, code: cli.ExitError, says: "read the cluster's settings"},
		"no URL":              {args: []string{"--effective", "--addr", "ftp://a"}, code: cli.ExitUsage, says: "--addr"},
		"without --effective": {args: []string{"--addr", "127.0.0.1:1"}, code: cli.ExitUsage, says: "give --effective too"},
	} {
		stdout, stderr, code := rollcall(t, append([]string{"config", "show", "--data-dir=d"}, tc.args...)...)
		expect.That(t, code == tc.code && strings.Contains(stderr, tc.says) && stdout == "",
			"%s: exit %d, said %q, printed %q, want exit %d and %q", name, code, stderr, stdout, tc.code, tc.says)
	}
}

func TestConfigInitWritesAFileThatValidateTakesAndOverwritesNone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rollcall.yaml")
	for _, step := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"config", "init", file}, cli.ExitOK, ""},
		{[]string{"config", "validate", file}, cli.ExitOK, ""},
		{[]string{"config", "init", file}, cli.ExitError, "not overwritten"},
		{[]string{"config", "validate", file + ".missing"}, cli.ExitError, "no such file"},
		{[]string{"config", "validate"}, cli.ExitUsage, ""},
	} {
		_, stderr, code := rollcall(t, step.args...)
		expect.That(t, code == step.code && strings.Contains(stderr, step.says), "%v: exit %d, %q, want %d and %q", step.args, code, stderr, step.code, step.says)
	}
	stdout, _, code := rollcall(t, "config", "schema")
	expect.That(t, code == cli.ExitOK && json.Valid([]byte(stdout)) && strings.Contains(stdout, `"shutdown-delay"`), "schema: exit %d, %.200s", code, stdout)
}

func TestConfigInitWithTLSWritesFoldersThatValidateTakes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	for _, step := range []struct {
		args []string
		code int
		says string // on either output
	}{
		{[]string{"init", "--tls", dir, "n1=127.0.0.1", "n2=127.0.0.2"}, cli.ExitOK, filepath.Join(dir, "n2") + ": copy this folder to 127.0.0.2"},
		{[]string{"validate", filepath.Join(dir, "n2", "rollcall.yaml")}, cli.ExitOK, ""},
		{[]string{"init", "--tls", dir, "n1=127.0.0.9"}, cli.ExitError, "node n1 is there already"},
		{[]string{"init", "--tls", dir, "n3=127.0.0.3"}, cli.ExitOK, "n3"},
		{[]string{"init", "--tls", dir}, cli.ExitUsage, "no node is named"},
		{[]string{"init", "--tls", "n1=127.0.0.9"}, cli.ExitUsage, "give the folder to write into"},
		{[]string{"init", "--tls", dir, "n4=127.0.0.4:1"}, cli.ExitUsage, "without a port"},
		{[]string{"init", dir, "n4=127.0.0.4"}, cli.ExitUsage, "needs --tls"},
	} {
		stdout, stderr, code := rollcall(t, append([]string{"config"}, step.args...)...)
		expect.That(t, code == step.code && strings.Contains(stdout+stderr, step.says), "%v: exit %d, %q, %q, want %d and %q", step.args, code, stdout, stderr, step.code, step.says)
	}
}
