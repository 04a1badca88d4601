package httpd_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func (n *bubbled) poll(t *testing.T, query string) api.Changes {
	t.Helper()
	got := n.get(t, "/v1/rollcall/watch"+query)
	var p api.Changes
	err := strictly(got.body, &p)
	need.That(t, err == nil && got.status == 200 && p.Changes != nil && got.header.Get("X-Rollcall-Index") == p.Index,
		"%s: %d %s, %v", query, got.status, got.body, err)
	return p
}

func TestALongPollAnswersAtOnceWhatChangedAlready(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newBubbled(t, httpd.Config{})
		n.Perform(t, registry.Register{Instance: newInstance("A", "1")}, registry.Register{Instance: newInstance("B", "2")})
		for _, wait := range []string{"0s", "10m"} {
			begun := time.Now()
			p := n.poll(t, "?index=test-0&app=a&wait="+wait)
			expect.That(t, p.Index == "test-2" && len(p.Changes) == 1 && p.Changes[0].ID == "1" && p.Changes[0].Index == "test-1", "got %+v", p)
			expect.Equal(t, time.Since(begun), 0, "it took")
		}
	})
}

func TestALongPollAnswersWhenSomethingChanges(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newBubbled(t, httpd.Config{})
		begun := time.Now()
		time.AfterFunc(9*time.Minute, func() { n.Perform(t, registry.Register{Instance: newInstance("A", "1")}) })
		p := n.poll(t, "?index=test-0&wait=10m")
		took := time.Since(begun)
		expect.That(t, p.Index == "test-1" && len(p.Changes) == 1 && took == 9*time.Minute, "got %+v after %v", p, took)
	})
}

func TestALongPollEndsInTimeAndSaysWhereToGoOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newBubbled(t, httpd.Config{})
		begun := time.Now()
		time.AfterFunc(time.Second, func() { n.Perform(t, registry.Register{Instance: newInstance("OTHER", "1")}) })
		p := n.poll(t, "?index=test-0&app=A&wait=10m")
		took := time.Since(begun)
		expect.That(t, p.Index == "test-1" && len(p.Changes) == 0 && took == 10*time.Minute, "got %+v after %v", p, took)
		if p := n.poll(t, "?wait=0s"); p.Index != "test-1" || len(p.Changes) != 0 {
			t.Errorf("without an index: got %+v, want where it is now", p)
		}
	})
}

func TestManyChangesAreReadInParts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newBubbled(t, httpd.Config{})
		const many = 5000
		for i := range many {
			n.Perform(t, registry.Register{Instance: newInstance("A", fmt.Sprint(i))})
		}
		at, next := "test-0", 0
		for range 3 {
			p := n.poll(t, "?wait=1m&index="+at)
			for _, c := range p.Changes {
				need.That(t, c.ID == fmt.Sprint(next), "got %+v, want %d", c, next)
				next++
			}
			at = p.Index
		}
		expect.That(t, next == many && at == fmt.Sprintf("test-%d", many), "three polls got %d changes up to %s", next, at)
		s := n.watch(t, "?index=test-0")
		for i := range many {
			e := s.want("change")
			if e.data.ID != fmt.Sprint(i) || !e.at.Equal(s.start.at) {
				t.Fatalf("got %s after %v, want %d at once", e.text, e.at.Sub(s.start.at), i)
			}
		}
	})
}

func TestPositionsAreReadAsTheyAreWritten(t *testing.T) {
	for _, row := range []struct {
		text, epoch string
		index       registry.Index
	}{
		{"test-0", "test", 0},
		{"c0ffee-1-42", "c0ffee-1", 42},
		{"-7", "", 7},
		{"a--7", "a-", 7},
		{"test-18446744073709551615", "test", 1<<64 - 1},
	} {
		epoch, index, back, ok := httpd.ParsePosition(row.text)
		expect.That(t, ok && epoch == row.epoch && index == row.index && back == row.text, "%q: got %q %d %q, %v", row.text, epoch, index, back, ok)
	}
}

// FuzzPositions: what is accepted has one spelling, and can be sent in a line of an event.
func FuzzPositions(f *testing.F) {
	for _, seed := range []string{"test-1", "a-b-0", "-0", "", "-", "test-01", "test-+1", "test-18446744073709551616", "te\nst-1", "test\xff-1", "test-1\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		epoch, _, back, ok := httpd.ParsePosition(text)
		if !ok {
			return
		}
		expect.That(t, back == text && strings.HasPrefix(text, epoch+"-"), "%q was read as %q", text, back)
		expect.That(t, !strings.ContainsAny(text, "\r\n\x00") && len(text) <= 255, "%q was accepted", text)
	})
}

// certified is the certificate of package httptest, for example.com, and who trusts it.
func certified(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	return server.TLS.Certificates[0], pool
}

// newSecure is a server with its own settings in a bubble, and a client that speaks HTTP/2 with it.
func newSecure(t *testing.T, certificate tls.Certificate, trusted *x509.CertPool) (*registrytest.Memory, *http.Client) {
	t.Helper()
	m := registrytest.New()
	handler := need.Got(httpd.New(httpd.Config{Service: m}))(t)
	server := httpd.NewServer("", handler, nil)
	server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.RegisterOnShutdown(handler.EndWatches)
	p := &pipes{dialed: make(chan net.Conn), closed: make(chan struct{})}
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(p, "", "") }()
	transport := &http.Transport{DialContext: p.dial, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: trusted, ServerName: "example.com"}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
		<-served
	})
	return m, &http.Client{Transport: transport}
}

// In HTTP/2 a time limit for writes ends a stream on which nothing is written, too.
func TestQuietWatchesLiveOverHTTP2(t *testing.T) {
	certificate, trusted := certified(t)
	bubble(t, func(t *testing.T) {
		m, client := newSecure(t, certificate, trusted)
		resp := need.Got(client.Get("https://example.com/v1/rollcall/watch"))(t)
		defer resp.Body.Close()
		need.That(t, resp.ProtoMajor == 2, "it speaks %s", resp.Proto)
		s := newEvents(t, resp.Body)
		s.want("start")
		time.AfterFunc(5*time.Minute, func() {
			_, _ = m.Apply(context.Background(), registry.FromClient, registry.Register{Instance: newInstance("A", "1")})
		})
		polled := need.Got(client.Get("https://example.com/v1/rollcall/watch?wait=10m&index=test-0"))(t)
		defer polled.Body.Close()
		body, err := io.ReadAll(polled.Body)
		expect.That(t, err == nil && strings.HasPrefix(string(body), `{"index":"test-1","changes":[{"index":"test-1","action":"ADDED"`),
			"the poll got %s, %v", body, err)
		for {
			e, ok := s.next()
			need.That(t, ok, "the stream ended")
			if e.name == "change" {
				return
			}
		}
	})
}

// event is a server-sent event as a browser understands it. One without a name and data is an id alone.
type event struct {
	name, id, comment string
	data              struct {
		Index, Action, Why, App, ID, Status, Reason string
		Instance                                    map[string]any
	}
	text string // of data
	at   time.Time
}

// events reads a stream of events.
type events struct {
	t     testing.TB
	in    *bufio.Reader
	start event
}

// documents are what the data of an event is, by its name. Servers write them by hand.
var documents = map[string]any{"start": &api.Start{}, "change": &api.Change{}, "reset": &api.Reset{}}

// strictly reads a document that has no member which package api does not declare.
func strictly(text string, into any) error {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	return dec.Decode(into)
}

func newEvents(t testing.TB, body io.Reader) *events { return &events{t: t, in: bufio.NewReader(body)} }

// next reads an event; ok is false at the end of the stream.
func (s *events) next() (e event, ok bool) {
	s.t.Helper()
	for {
		line, err := s.in.ReadString('\n')
		if err == io.EOF && line == "" && e.name+e.id == "" {
			return e, false
		}
		if err != nil {
			s.t.Fatalf("the stream broke off after %+v: %v", e, err)
		}
		line = strings.TrimSuffix(line, "\n")
		field, value, _ := strings.Cut(line, ": ")
		switch field {
		case "":
			if line == "" {
				e.at = time.Now()
				return e, true
			}
			e.comment = value
		case "event":
			e.name = value
		case "id":
			e.id = value
		case "data":
			e.text = value
			if err := errors.Join(json.Unmarshal([]byte(value), &e.data), strictly(value, documents[e.name])); err != nil {
				s.t.Fatalf("%v in %q", err, value)
			}
		default:
			s.t.Fatalf("a line of an unknown kind: %q", line)
		}
	}
}

// want reads an event, which must have a name.
func (s *events) want(name string) event {
	s.t.Helper()
	e, ok := s.next()
	if !ok || e.name != name {
		s.t.Fatalf("got %+v, %v, want an event %q", e, ok, name)
	}
	return e
}
