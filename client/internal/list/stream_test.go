package list

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/transport"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

func serving(text string) *transport.Cluster {
	return transport.New(transport.Config{
		Servers: []string{"http://a"}, Timeout: time.Minute,
		HTTPClient: &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: make(http.Header), Body: io.NopCloser(strings.NewReader(text))}, nil
		})},
	})
}

func TestStreamIsIdleOncePerReadNotPerEvent(t *testing.T) {
	const changes = 1000
	var text strings.Builder
	text.WriteString("event: start\nid: e-1\ndata: {\"index\":\"e-1\"}\n\n")
	for n := range changes {
		fmt.Fprintf(&text, "event: change\nid: e-%[1]d\ndata: {\"index\":\"e-%[1]d\",\"action\":\"DELETED\",\"app\":\"ORDERS\",\"id\":\"o%[1]d\"}\n\n", n+2)
	}
	c := serving(text.String())
	events, lots, last := 0, 0, 0
	w := &stream{Cluster: c, Each: func(Event) error { events++; return nil }, Idle: func() {
		if events != last {
			lots++
		}
		last = events
	}}
	_ = w.Follow(t.Context(), c.Known()[0]) // it ends with the text
	most := text.Len()/fetchSSE + 2
	expect.That(t, events == changes+1 && last == events && lots <= most,
		"%d events in %d lots, the last one after %d, want %d in %d at most", events, lots, last, changes+1, most)
}
