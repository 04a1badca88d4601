package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// overviewServer responds to each request with the next of the bodies, and with the last of them from then on. An empty
// body breaks the connection.
func overviewServer(t *testing.T, bodies ...string) string {
	t.Helper()
	var mu sync.Mutex // guards bodies
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/rollcall/overview" || r.URL.Query().Get("consistency") != "stale" {
			w.WriteHeader(http.StatusServiceUnavailable) // as without a leader
			return
		}
		mu.Lock()
		body := bodies[0]
		if len(bodies) > 1 {
			bodies = bodies[1:]
		}
		mu.Unlock()
		if body == "" {
			panic(http.ErrAbortHandler)
		}
		io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// overviewOf is the overview of a node without anything to report.
func overviewOf(node, line string, quorum bool) string {
	return fmt.Sprintf(`{"line":{"text":%q},"status":{"node":%q,"quorum":%v,"nodes":[{"id":%q,"role":"follower"}]}}`, line, node, quorum, node)
}

// watchedStatus runs status --watch until it has printed a text.
func watchedStatus(t *testing.T, until string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &endingWriter{last: until, end: cancel}
	var errs bytes.Buffer
	root := newRootCommand()
	root.SetArgs(append([]string{"status", "--watch", "--interval", "200ms"}, args...))
	root.SetOut(out)
	root.SetErr(&errs)
	code = cli.ExitCode(&errs, "rollcall", root.ExecuteContext(ctx))
	return out.String(), errs.String(), code
}

func TestStatusWatchShowsStatusFiguresAttentionAndApplications(t *testing.T) {
	url := overviewServer(t, `{"line":{"level":"bad","text":"Degraded. n1 leads."},
		"figures":{"up":2,"not_up":1,"apps":2,"writes_per_second":41.26,"write_p99_s":0.00213,"watchers":3,"overdue":4,"sampled_ms":7,"applications":12},
		"attention":[{"level":"bad","text":"PAY: none of 2 instances is UP"}],"apps":[{"app":"PAY\u001b[2J","up":0,"all":2,"overdue":1}],
		"self_preservation":{"state":"off"},
		"status":{"node":"n1","cluster_id":"c1","mode":"cp","leader":"n1","term":2,"quorum":true,"summary":"Degraded.","nodes":[{"id":"n1","role":"leader","version":"0.1"}]}}`)
	stdout, stderr, code := watchedStatus(t, "and 11 more", "--addr", url)
	_, shown, _ := strings.Cut(stdout, "Z  n1\n") // behind the time
	const want = `
CLUSTER  MODE  LEADER  TERM  QUORUM
c1       cp    n1      2     yes

NODE  ROLE    HTTP  NODE-TO-NODE  APPLIED  LAG  CONTACT  DISK  ZONE  VERSION
n1    leader  -     -             -        0    -        -     -     0.1

Degraded. n1 leads.

UP  NOT UP  APPS  OVERDUE  CHANGES/MIN  WRITES/S  P99    WATCHERS  SELF-PRESERVATION
2   1       2     4        ?            41.3      2.1ms  3         off

NEEDS ATTENTION
PAY: none of 2 instances is UP

APP      UP  ALL  OVERDUE
PAY?[2J  0   2    1
and 11 more

`
	expect.Equal(t, shown, want, "printed")
	expect.That(t, code == cli.ExitOK && stderr == "", "exit %d, said %q", code, stderr)
}

func TestStatusWatchBoundsWhatNeedsAttention(t *testing.T) {
	for listed, want := range map[int]string{10: "need 10", 11: "and 1 more", 30: "and 20 more"} {
		var o clusterOverview
		for n := range listed {
			o.Attention = append(o.Attention, client.Attention{Text: fmt.Sprintf("need %d", n+1)})
		}
		rows := o.Table()
		expect.Equal(t, rows[len(rows)-1][0], want, "of %d the last row is", listed)
	}
}

func TestStatusWatchPrintsAJSONLineForEachRequest(t *testing.T) {
	url := overviewServer(t, overviewOf("n1", "first", true), overviewOf("n1", "later", true))
	stdout, stderr, code := watchedStatus(t, "later", "--addr", url, "-o", "json")
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	need.That(t, code == cli.ExitOK && len(lines) == 2, "exit %d, printed %q, said %q", code, stdout, stderr)
	var got client.Overview
	need.OK(t, json.Unmarshal([]byte(lines[1]), &got))
	expect.That(t, got.Line.Text == "later" && got.Status.Node == "n1", "the second line is %+v", got)
}

// TestStatusWatchAsksUntilAServerKnowsALeader: a server without one may be cut off.
func TestStatusWatchAsksUntilAServerKnowsALeader(t *testing.T) {
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	cutOff, other := overviewServer(t, overviewOf("n1", "cut off", false)), overviewServer(t, overviewOf("n2", "no leader", false))
	leading := overviewServer(t, overviewOf("n3", "Healthy.", true))
	for _, tc := range []struct {
		name    string
		servers []string
		shows   string
	}{
		{name: "the last one does", servers: []string{closed.URL, cutOff, leading}, shows: "Healthy."},
		{name: "none does", servers: []string{closed.URL, cutOff, other}, shows: "cut off"},
	} {
		stdout, stderr, code := watchedStatus(t, "UP", "--addr", strings.Join(tc.servers, ","))
		expect.That(t, code == cli.ExitOK && strings.Contains(stdout, "\n"+tc.shows+"\n"), "%s: exit %d, printed\n%s\nand said %q", tc.name, code, stdout, stderr)
	}
}

func TestStatusWatchSaysOnceThatNoServerResponds(t *testing.T) {
	url := overviewServer(t, overviewOf("n1", "before", true), "", "", "", "", "", "", overviewOf("n1", "again", true))
	stdout, stderr, code := watchedStatus(t, "again", "--addr", url)
	expect.That(t, code == cli.ExitOK && strings.Contains(stdout, "before"), "exit %d, printed\n%s", code, stdout)
	expect.Equal(t, strings.Count(stderr, "no server responds, trying again: "), 1, "times that it said so in %q:", stderr)
}

func TestStatusWatchThatCannotBeginIsAnError(t *testing.T) {
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	for _, tc := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{name: "no server responds", args: []string{"status", "--watch", "--addr", closed.URL}, code: cli.ExitError, says: "connection refused"},
		{name: "in no time", args: []string{"status", "--watch", "--interval", "1ms"}, code: cli.ExitUsage, says: "--interval: 1ms is shorter than 200ms"},
		{name: "with an exit code", args: []string{"status", "--watch", "--check"}, code: cli.ExitUsage, says: "give --watch or --check, and not both"},
		{name: "no address", args: []string{"status", "--watch", "--addr", "ftp://a"}, code: cli.ExitUsage, says: "--addr"},
		{name: "another output", args: []string{"status", "--watch", "-o", "xml"}, code: cli.ExitUsage, says: "--output"},
		{name: "an argument", args: []string{"status", "--watch", "ORDERS"}, code: cli.ExitUsage, says: "ORDERS"},
		{name: "the command that was removed", args: []string{"top", "--interval", "5s"}, code: cli.ExitUsage, says: "rollcall status --watch"},
	} {
		stdout, stderr, code := rollcall(t, tc.args...)
		expect.That(t, code == tc.code && stdout == "" && strings.Contains(stderr, tc.says), "%s: exit %d, printed %q and said %q; want exit %d and %q",
			tc.name, code, stdout, stderr, tc.code, tc.says)
	}
}
