package load

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// A server that closes a connection on what it has not read waits for half a second before, by itself.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

var anInstance = described{
	app: "LOAD-003", id: "LOAD-003-000025.cluster.example.internal:8080", number: 37, interval: 2, duration: 7,
}

// parse reads a preformatted request as a server does.
func parse(t *testing.T, request []byte) (r *http.Request, body []byte) {
	t.Helper()
	rest := bufio.NewReader(bytes.NewReader(request))
	r, err := http.ReadRequest(rest)
	need.That(t, err == nil, "%v in %q", err, request)
	body, err = io.ReadAll(r.Body)
	need.OK(t, err)
	n := rest.Buffered()
	need.That(t, n == 0, "%d bytes too many in %q", n, request)
	return r, body
}

func TestRequestOfARegistrationIsWhatAServerReads(t *testing.T) {
	r, body := parse(t, anInstance.registration(42))
	expect.That(t, r.Method == http.MethodPost && r.URL.Path == "/eureka/apps/LOAD-003", "%s %s, want POST to the application", r.Method, r.URL)
	i := need.Got(eureka.DecodeRegistration(body, eureka.Format{}, anInstance.app))(t)
	expect.That(t, i.ID() == anInstance.id && i.App == anInstance.app && i.Status == registry.Up && i.HostName == "LOAD-003-000025.cluster.example.internal",
		"the server reads instance %+v", i)
	expect.That(t, i.RenewalInterval == 2 && i.Duration == 7,
		"the server reads a lease of %d s renewed every %d s, want 7 s and 2 s", i.Duration, i.RenewalInterval)
	expect.Equal(t, i.LastDirty, DirtyBase+42, "lastDirtyTimestamp")
	l := &registry.Lease{Instance: i}
	v, ok := seenVersion(eureka.AppendInstanceDocument(nil, eureka.Format{}, l, registry.Stamp{}))
	expect.That(t, ok && v == 42, "version %d (%t) in what the server answers, want 42", v, ok)
	expect.That(t, len(body) >= 950 && len(body) <= 1300, "%d bytes, want about 1 KB: %s", len(body), body)
}

func TestVersionIsReadFromMetadataOnly(t *testing.T) {
	for _, tc := range []struct {
		name, document string
		want           int64
		ok             bool
	}{
		{name: "the only entry", document: `{"instance":{"metadata":{"n":"7"},"x":"y"}}`, want: 7, ok: true},
		{name: "one of several", document: `{"instance":{"metadata":{"@class":"c","zone":"a","n":"123456789012"}}}`, want: 123456789012, ok: true},
		{name: "indented", document: "{\"metadata\" : {\n \"n\" : \"8\"\n}}", want: 8, ok: true},
		{name: "outside of the metadata", document: `{"instance":{"n":"7","metadata":{"zone":"a"}}}`},
		{name: "without a number", document: `{"instance":{"metadata":{"n":"x"}}}`},
		{name: "empty"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, ok := seenVersion([]byte(tc.document))
			expect.That(t, got == tc.want && ok == tc.ok, "version %d (%t) in %s, want %d (%t)", got, ok, tc.document, tc.want, tc.ok)
		})
	}
}

func loadThatRan(t *testing.T, c *fakeCluster) *Load {
	t.Helper()
	l := newLoad(t, Config{Nodes: c.addrs(), Load: scenario.Load{
		Instances: 10, Heartbeat: scenario.Span(time.Second), Lease: scenario.Span(3 * time.Second),
		Registers: 50, Writes: 50, OwnKeys: 3, SharedKeys: 2,
	}, Timeout: 10 * time.Second})
	need.OK(t, l.Register(t.Context()))
	run(t, l, 200*time.Millisecond)
	l.Stop()
	return l
}

func TestCancelAllCancelsEverythingWhereItWasRegistered(t *testing.T) {
	c := newFakeCluster(t, 3)
	l := loadThatRan(t, c)
	need.That(t, l.fleet.arrivals.Load() != 0, "no instance came that would have gone later")
	err := l.CancelAll(t.Context())
	expect.That(t, err == nil && c.registered() == 0, "%d are still registered, %v, want none", c.registered(), err)
	for _, s := range c.requests(http.MethodDelete, "") {
		if strings.HasPrefix(s.id, "own-") || strings.HasPrefix(s.id, "shared-") {
			continue // they are canceled everywhere
		}
		node := c.requests(http.MethodPost, s.id)[0].node
		expect.That(t, s.node == node, "%s was registered at node %d and canceled at %d", s.id, node, s.node)
	}
}

func TestCancelAllThatFailsSaysHowManyStay(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := loadThatRan(t, c)
	refused := l.fleet.lasting[7].id
	c.decide(func(s seen) int {
		if s.id == refused {
			return http.StatusServiceUnavailable
		}
		return 0
	})
	err := l.CancelAll(t.Context())
	expect.That(t, err != nil && strings.HasPrefix(err.Error(), "1 of ") && c.registered() == 1,
		"%d are still registered, %v, want one and an error", c.registered(), err)
}
