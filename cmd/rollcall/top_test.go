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
		if r.URL.Path == "/v1/rollcall/overview" && r.URL.Query().Get("consistency") != "stale" {
			w.WriteHeader(http.StatusServiceUnavailable) // as without a leader
			return
		}
		io.WriteString(w, `{"line":{"level":"well","text":"Healthy. n1 leads."},"figures":{"up":1,"apps":1,"applications":1},
			"apps":[{"app":"ORDERS\u001b[2J","up":1,"all":1}],"status":{"node":"n1","quorum":true,"nodes":[{"id":"n1","role":"leader"}]}}`)
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
		{name: "one server", args: []string{"--addr", s.URL}, prints: "\nHealthy. n1 leads.\nInstances 1 UP, 0 not UP "},
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
