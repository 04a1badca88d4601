package integration

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/seed-20419f34/rollcall/client/sse"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// Event is one server-sent event.
type Event struct{ ID, Name, Data string }

// position is the number in an index as the server writes it, epoch-number.
func position(t testing.TB, index string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(index[strings.LastIndexByte(index, '-')+1:], 10, 64)
	need.OKf(t, err, "index %q", index)
	return n
}

// Stream is a watch that is read without delay.
type Stream struct {
	node string
	body io.ReadCloser

	mu     sync.Mutex
	events []Event
	err    error // how it ended; nil: it goes on
}

// Watch opens an event stream with a query ("": everything from now on) and waits for its response. It
// ends with the test.
func (n *Node) Watch(t testing.TB, query string) *Stream {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.URL()+"/v1/rollcall/watch?"+query, nil)
	need.OK(t, err)
	req.Header.Set("Accept", "text/event-stream")
	if n.Token != "" {
		req.Header.Set("Authorization", "Bearer "+n.Token)
	}
	resp, err := n.roundTripper().RoundTrip(req)
	if err != nil {
		cancel()
		t.Fatalf("watch %q at %s: %v", query, n.Name, err)
	}
	if resp.StatusCode != http.StatusOK {
		cancel()
		resp.Body.Close()
		t.Fatalf("watch %q at %s: %s, want 200", query, n.Name, resp.Status)
	}
	s := &Stream{node: n.Name, body: resp.Body}
	var reader sync.WaitGroup
	reader.Go(s.read)
	t.Cleanup(func() {
		cancel()
		resp.Body.Close()
		reader.Wait()
	})
	return s
}

// read takes events until the stream ends.
func (s *Stream) read() {
	err := readEvents(s.body, func(e Event) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.events = append(s.events, e)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// readEvents hands every event of a stream to each and returns how the stream ended: io.EOF if the
// server ended it. A block without a name only keeps a quiet stream alive, and is no event.
func readEvents(stream io.Reader, each func(Event)) error {
	for events := sse.NewReader(stream, 4<<10); ; {
		e, err := events.Next()
		if err != nil {
			return err
		}
		if len(e.Name) > 0 {
			each(Event{ID: string(e.ID), Name: string(e.Name), Data: string(e.Data)})
		}
	}
}

// Changes are the changes that arrived so far, in their order. An end of the stream, a mark other than
// the start or a change under an id that is not its index fails the test.
func (s *Stream) Changes(t testing.TB) []api.Change {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	need.That(t, s.err == nil, "the stream from %s ended: %v", s.node, s.err)
	var changes []api.Change
	for i, e := range s.events {
		if e.Name == "start" && i == 0 {
			continue
		}
		var c api.Change
		err := json.Unmarshal([]byte(e.Data), &c)
		need.That(t, err == nil && e.Name == "change" && c.Index == e.ID,
			"event %d from %s is %+v (%v), want a change under its own index", i, s.node, e, err)
		changes = append(changes, c)
	}
	return changes
}

// AwaitChange waits until the stream has brought the change of an index and returns all up to now.
func (s *Stream) AwaitChange(t testing.TB, index string) []api.Change {
	t.Helper()
	var changes []api.Change
	Eventually(t, ReadyLimit, "the stream from "+s.node+" brings "+index, func() error {
		changes = s.Changes(t)
		return unless(len(changes) != 0 && position(t, changes[len(changes)-1].Index) >= position(t, index), "%d changes so far", len(changes))
	})
	return changes
}
