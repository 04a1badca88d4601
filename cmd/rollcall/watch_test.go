package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

const watchStream = `event: start
id: e-5
data: {"index":"e-5"}

event: change
id: e-6
data: {"index":"e-6","action":"ADDED","why":"registered","app":"ORDERS","id":"orders-1","status":"UP","instance":{"instanceId":"orders-1","app":"ORDERS","status":"UP","port":{"$":80,"@enabled":"true"}}}

event: reset
id: e-9
data: {"index":"e-9","reason":"too old"}

event: change
id: e-10
data: {"index":"e-10","action":"DELETED","why":"evicted","app":"ORDERS","id":"x\u001b[2J","status":"UP"}

`

// watched runs a watch on a server that sends watchStream until it is cut off after the line that
// ends with last.
func watched(t *testing.T, last string, args ...string) (stdout, stderr string, code int, asked string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Method + " " + r.URL.RequestURI()
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, watchStream)
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &endingWriter{last: last, end: cancel}
	var errs bytes.Buffer
	root := newRootCommand()
	root.SetArgs(append([]string{"watch", "--addr", s.URL}, args...))
	root.SetOut(out)
	root.SetErr(&errs)
	code = cli.ExitCode(&errs, "rollcall", root.ExecuteContext(ctx))
	return out.String(), strings.ReplaceAll(errs.String(), s.URL, "SERVER"), code, asked
}

// endingWriter ends something when a text was written.
type endingWriter struct {
	bytes.Buffer
	last string
	end  func()
}

func (w *endingWriter) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if strings.Contains(w.String(), w.last) {
		w.end()
	}
	return n, err
}

func TestWatchPrintsALineForEachChange(t *testing.T) {
	stdout, stderr, code, asked := watched(t, "evicted", "orders", "--index", "e-5")
	lines := strings.Split(stdout, "\n")
	if code != cli.ExitOK || len(lines) != 3 ||
		!strings.HasSuffix(lines[0], "Z  ADDED     ORDERS/orders-1  UP  registered") || !strings.HasSuffix(lines[1], "Z  DELETED   ORDERS/x?[2J  UP  evicted") {
		t.Errorf("exit %d, printed %q", code, lines)
	}
	expect.OK(t, expect.Err(time.Parse("2006-01-02T15:04:05.000Z", strings.Fields(stdout)[0])))
	expect.Equal(t, stderr, "watching SERVER, after e-5\nchanges before e-9 may have been missed: too old\n", "said")
	expect.Equal(t, asked, "GET /v1/rollcall/watch?app=ORDERS&index=e-5", "sent")
}

func TestWatchPrintsAJSONLineForEachEvent(t *testing.T) {
	stdout, _, code, _ := watched(t, "evicted", "-o", "json")
	_, rest, _ := strings.Cut(stdout, "\n") // the first one names the server
	const want = `{"event":"change","index":"e-6","action":"ADDED","why":"registered","app":"ORDERS","id":"orders-1","status":"UP","instance":{"app":"ORDERS","id":"orders-1","status":"UP","host":"","ip":"","port":80,"lease_seconds":90,"interval_seconds":30,"last_renewal":0,"registered":0,"index":6}}
{"event":"reset","index":"e-9","reason":"too old"}
{"event":"change","index":"e-10","action":"DELETED","why":"evicted","app":"ORDERS","id":"x\u001b[2J","status":"UP"}
`
	expect.That(t, code == cli.ExitOK && rest == want && strings.HasPrefix(stdout, `{"event":"start","index":"e-5","server":"http://`),
		"exit %d, printed\n%s\nwant a start and\n%s", code, stdout, want)
}

func TestWatchEndsAfterATimeOrANumberOfChanges(t *testing.T) {
	stdout, _, code, _ := watched(t, "never", "--count", "1")
	expect.That(t, code == cli.ExitOK && strings.Count(stdout, "\n") == 1 && strings.Contains(stdout, "ADDED"), "with --count 1: exit %d, printed %q", code, stdout)
	began := time.Now()
	stdout, _, code, _ = watched(t, "never", "--for", "300ms")
	expect.That(t, code == cli.ExitOK && strings.Count(stdout, "\n") == 2 && time.Since(began) >= 300*time.Millisecond, "with --for: exit %d, printed %q", code, stdout)
	_, stderr, code, _ := watched(t, "never", "--for", "-1s")
	expect.That(t, code == cli.ExitUsage && strings.Contains(stderr, "--for -1s"), "with a negative time: exit %d, %q", code, stderr)
}

func TestKVWatchPrintsWhatChanged(t *testing.T) {
	states := [][]client.Pair{
		{{Key: "b", ModifyIndex: 5, Value: []byte("blue\n")}, {Key: "c", ModifyIndex: 6}},
		{{Key: "a", ModifyIndex: 7, Value: []byte{0}}, {Key: "b", ModifyIndex: 8, Session: "s1"}, {Key: "c", ModifyIndex: 6}},
		{{Key: "b", ModifyIndex: 9}},
		nil,
	}
	want := `T  present   b  5  blue
T  present   c  6  -
T  written   a  7  1 bytes
T  acquired  b  8  -
T  deleted   a  -  -
T  released  b  9  -
T  deleted   c  -  -
T  deleted   b  -  -
`
	var out strings.Builder
	now := time.UnixMilli(0)
	p := keyPrinter{out: &out, form: cli.Table, now: func() time.Time { return now }}
	for _, state := range states {
		need.OK(t, p.tree(state))
	}
	got := strings.ReplaceAll(out.String(), "1970-01-01T00:00:00.000Z", "T")
	expect.That(t, got == want, "got\n%swant\n%s", got, want)
}

func TestKVWatchPrintsALinePerChangeInJSON(t *testing.T) {
	var out strings.Builder
	p := keyPrinter{out: &out, form: cli.JSON}
	for _, state := range [][]client.Pair{{{Key: "a", ModifyIndex: 5, Value: []byte("x")}}, nil} {
		need.OK(t, p.tree(state))
	}
	want := `{"event":"present","key":"a","value":"eA==","flags":0,"lock_index":0,"create_index":0,"modify_index":5}
{"event":"deleted","key":"a","value":"","flags":0,"lock_index":0,"create_index":0,"modify_index":0}
`
	expect.That(t, out.String() == want, "got\n%swant\n%s", out.String(), want)
}
