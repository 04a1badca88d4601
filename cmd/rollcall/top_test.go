package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestTopPrintsOneFrameWhereThereIsNoTerminal(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/rollcall/status":
			io.WriteString(w, `{"node":"n1","mode":"cp","leader":"n1","ready":true,"quorum":true,"condition":"well","summary":"Healthy: no node may fail.","nodes":[{"id":"n1","role":"leader"}]}`)
		case "/v1/rollcall/apps":
			io.WriteString(w, `[{"app":"ORDERS","id":"x\u001b[2J","status":"UP"}]`)
		default:
			io.WriteString(w, "{}")
		}
	}))
	defer s.Close()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	for _, tc := range []struct {
		name   string
		args   []string
		code   int
		prints string
		says   string
	}{
		{name: "one server", args: []string{"--addr", s.URL}, prints: "\nHealthy: no node may fail. n1 leads; 1 of 1 nodes answer.\nInstances 1 UP, 0 not UP "},
		{name: "the first is down", args: []string{"--addr", closed.URL + "," + s.URL}, prints: "\nNo answer from " + closed.URL + " since "},
		{name: "all are down", args: []string{"--addr", closed.URL}, code: cli.ExitError, says: "connection refused"},
		{name: "in no time", args: []string{"--interval", "1ms"}, code: cli.ExitUsage, says: "--interval: 1ms is shorter than 200ms"},
		{name: "no address", args: []string{"--addr", "ftp://a"}, code: cli.ExitUsage, says: "--addr"},
		{name: "an argument", args: []string{"ORDERS"}, code: cli.ExitUsage, says: "ORDERS"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stdout, stderr, code := rollcall(t, append([]string{"top"}, tc.args...)...)
			expect.That(t, code == tc.code && strings.Contains(stdout, tc.prints) && strings.Contains(stderr, tc.says),
				"exit %d, printed\n%s\nand said %q; want exit %d, %q and %q", code, stdout, stderr, tc.code, tc.prints, tc.says)
		})
	}
}
