package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// outcomeRow is a row of the table of statuses in docs/reference/outcomes.md.
var outcomeRow = regexp.MustCompile(`(?m)^\| (\d{3}|no connection|connection lost)(?: ` + "`([^`]*)`" + `)? \|[^|]*\|[^|]*\| (\w+) \| (\w+) \| (\w+) \|$`)

// respondsWith is a server that answers as a row says.
func respondsWith(status, word string) func(*http.Request) (*http.Response, error) {
	switch status {
	case "no connection":
		return fake.Unreachable
	case "connection lost":
		return fake.CutOff
	}
	code, _ := strconv.Atoi(status)
	body, header := `{"error":"why"}`, []string{}
	switch word {
	case "unknown", "refused":
		header = []string{"X-Rollcall-Outcome", word}
	case "":
	default:
		body = word
	}
	return fake.Always(code, body, header...)
}

// TestEachStatusMeansWhatThePageSays sends a write of each API to servers that answer alike.
func TestEachStatusMeansWhatThePageSays(t *testing.T) {
	page := string(need.Got(os.ReadFile("../docs/reference/outcomes.md"))(t))
	rows := outcomeRow.FindAllStringSubmatch(page, -1)
	need.That(t, len(rows) > 15, "docs/reference/outcomes.md has %d rows", len(rows))
	for _, row := range rows {
		server := respondsWith(row[1], row[2])
		for i, write := range []func(context.Context, *Client) error{
			func(ctx context.Context, c *Client) error {
				return c.Cancel(ctx, registry.Key{App: "A", ID: "i"})
			},
			func(ctx context.Context, c *Client) error {
				_, err := c.CreateSession(ctx, SessionOptions{})
				return err
			},
			func(ctx context.Context, c *Client) error { return c.KV().Put(ctx, "k", []byte("v")) },
		} {
			c := clientOf(t, fake.Servers{"a": server, "b": server}, "a", "b")
			err := write(t.Context(), c)
			got := "refused"
			if errors.Is(err, ErrUnknownOutcome) {
				got = "unknown"
			}
			expect.That(t, err != nil && got == row[3+i], "%s: write %d: %v is %s, want %s", strings.Join(row[1:3], " "), i, err, got, row[3+i])
		}
	}
}

func TestStaleSnapshotThroughTheSocketAsksTheUnheard(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l := need.Got(net.Listen("unix", path))(t)
	asked := make(chan string, 2)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Query().Get("unheard")
		w.Header().Set("Content-Type", "application/vnd.rollcall.snapshot")
	}))
	server.Listener.Close()
	server.Listener = l
	server.Start()
	defer server.Close()
	c := need.Got(New(Config{Servers: []string{"unix:" + path}}))(t)
	defer c.Close(t.Context())
	for stale, want := range map[bool]string{true: "true", false: ""} {
		need.OK(t, c.SaveSnapshot(t.Context(), io.Discard, stale))
		expect.Equal(t, <-asked, want, "stale %t: unheard is", stale)
	}
}
