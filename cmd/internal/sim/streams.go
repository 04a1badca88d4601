package sim

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// Hold is Call for a request that a node may hold for minutes.
func (w *World) Hold(node, method, path, body string, headers ...string) Reply {
	w.Helper()
	return w.call(node, time.Hour, method, path, body, headers...)
}

// Client returns the HTTP client of a program at an address of its own, whose idle connections end with the scenario.
func (w *World) Client(ip string) *http.Client {
	transport := &http.Transport{DialContext: w.network.host(ip).DialContext}
	w.ends = append(w.ends, transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// URL returns where clients find a node.
func (w *World) URL(node string) string {
	w.Helper()
	return "http://" + w.Node(node).ip + ":8761"
}

// Event is one event of a stream, and when it arrived.
type Event struct {
	Name, ID, Data string
	At             time.Time
}

// Stream is a watch that is read as it arrives.
type Stream struct {
	Node string

	mu     sync.Mutex
	events []Event
	err    error     // how it ended; nil while it goes on
	ended  time.Time // zero while it goes on
}

// Watch opens a stream of a node's changes, with a query ("" for everything from now on), and waits until it has
// begun.
func (w *World) Watch(node, query string, headers ...string) *Stream {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req := need.Got(http.NewRequestWithContext(ctx, "GET", w.URL(node)+"/v1/rollcall/watch?"+query, nil))(w)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := w.clients.Transport.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		cancel()
		w.Fatalf("watch %q at %s: %v, %v", query, node, resp, err)
	}
	s := &Stream{Node: node}
	var reader sync.WaitGroup
	reader.Go(func() { s.read(resp.Body) })
	w.ends = append(w.ends, func() {
		cancel()
		resp.Body.Close()
		reader.Wait()
	})
	w.Await(ReadyWithin, "the watch begins", func() bool { return len(s.Events()) > 0 })
	return s
}

func (s *Stream) read(from io.Reader) {
	for events := api.NewEventReader(from, 4<<10); ; {
		e, err := events.Next()
		s.mu.Lock()
		if err != nil {
			s.err, s.ended = err, time.Now()
			s.mu.Unlock()
			return
		}
		if len(e.Name) > 0 { // otherwise it only keeps a quiet stream alive
			s.events = append(s.events, Event{Name: string(e.Name), ID: string(e.ID), Data: string(e.Data), At: time.Now()})
		}
		s.mu.Unlock()
	}
}

// Events returns the events so far.
func (s *Stream) Events() []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

// Ended returns how the stream ended, and when; nil while it goes on.
func (s *Stream) Ended() (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended, s.err
}

// Changes returns the changes so far. Any other event, except the start, fails the test.
func (w *World) Changes(s *Stream) (changes []api.Change) {
	w.Helper()
	for _, e := range s.Events() {
		var c api.Change
		switch {
		case e.Name == "start":
		case e.Name == "change" && json.Unmarshal([]byte(e.Data), &c) == nil && c.Index == e.ID:
			changes = append(changes, c)
		default:
			w.Errorf("the stream of %s has an event %+v", s.Node, e)
		}
	}
	return changes
}

// Dial opens a connection to the HTTP port of a node from an address. It ends with the scenario.
func (w *World) Dial(from, node string) net.Conn {
	w.Helper()
	conn := need.Got(w.TryDial(from, node))(w)
	w.ends = append(w.ends, func() { conn.Close() })
	return conn
}

// TryDial opens a connection to the HTTP port of a node, if the node listens. The caller closes it.
func (w *World) TryDial(from, node string) (net.Conn, error) {
	w.Helper()
	return w.network.host(from).DialContext(w.Context(), "tcp", w.Node(node).ip+":8761")
}

// TryDialPort opens a connection to the node-to-node port of a node, if the node listens. The caller closes it.
func (w *World) TryDialPort(from, node string) (net.Conn, error) {
	w.Helper()
	return w.network.host(from).DialContext(w.Context(), "tcp", w.Node(node).ip+":7761")
}
