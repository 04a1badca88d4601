package transport

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

func TestCallFindsRollcallOnceAmongServersOfBothKinds(t *testing.T) {
	j := fake.NewJournal()
	c := clusterOf(t, fake.Servers{"a": j.Around(fake.Always(404, springAnswer)), "b": fake.Always(200, `{}`)}, "a", "b")
	for range 3 {
		need.Got(c.status(t.Context()))(t)
	}
	expect.Equal(t, len(j.Times()), 1, "requests at the server that is not Rollcall:")
}

// The others may respond the next time.
func TestCallToOneServerThatIsNotRollcallProvesNothing(t *testing.T) {
	_, err := clusterOf(t, fake.Servers{"a": fake.Always(404, "<html>"), "b": fake.Unreachable}, "a", "b").status(t.Context())
	expect.That(t, err != nil && !errors.Is(err, ErrNeedsRollcall) && strings.Contains(err.Error(), "http://a"),
		"Status: %v, want an error that names both servers and is not ErrNeedsRollcall", err)
}

func TestWriteHasThreeOutcomes(t *testing.T) {
	unknown := fake.Always(504, "", "X-Rollcall-Outcome", "unknown")
	for _, tc := range []struct {
		name          string
		first, second func(*http.Request) (*http.Response, error)
		want          error // nil if done
		status        int   // of the StatusError; 0 for none; negative for any other error
	}{
		{name: "done", first: fake.Always(200, ""), second: fake.CutOff},
		{name: "unknown instance", first: fake.Always(404, ""), second: fake.CutOff, want: errMissing},
		{name: "refused", first: fake.Always(400, "no"), second: fake.Always(200, ""), status: 400},
		{name: "no leader there, done elsewhere", first: fake.Always(503, ""), second: fake.Always(200, "")},
		{name: "no leader anywhere", first: fake.Always(503, ""), second: fake.Always(503, ""), status: 503},
		{name: "unreachable, done elsewhere", first: fake.Unreachable, second: fake.Always(200, "")},
		{name: "unreachable, unknown instance elsewhere", first: fake.Unreachable, second: fake.Always(404, ""), want: errMissing},
		{name: "the server does not know", first: unknown, second: fake.Always(200, ""), want: ErrUnknownOutcome},
		{name: "cut off, done elsewhere", first: fake.CutOff, second: fake.Always(200, "")},
		{name: "cut off, no server elsewhere", first: fake.CutOff, second: fake.Unreachable, want: ErrUnknownOutcome},
		{name: "cut off, no leader elsewhere", first: fake.CutOff, second: fake.Always(503, ""), want: ErrUnknownOutcome},
		{name: "cut off, refused elsewhere", first: fake.CutOff, second: fake.Always(409, "full"), want: ErrUnknownOutcome},
		{name: "cut off, gone elsewhere", first: fake.CutOff, second: fake.Always(404, "")},
		{name: "a proxy's timeout, no server elsewhere", first: fake.Always(504, ""), second: fake.Unreachable, want: ErrUnknownOutcome},
		{name: "a redirect, done elsewhere", first: fake.Always(302, ""), second: fake.Always(200, "")},
		{name: "a stock server that is not up and may have done it all the same", first: fake.Always(307, ""), second: fake.Always(503, ""), want: ErrUnknownOutcome},
		{name: "this mode has no such thing", first: fake.Always(501, ""), second: fake.Always(200, ""), status: 501},
		{name: "any other failure of the server, done elsewhere", first: fake.Always(508, ""), second: fake.Always(200, "")},
		{name: "it is not trusted, no server elsewhere", first: untrusted, second: fake.Unreachable, status: -1},
		{name: "no response, done elsewhere", first: fake.Silent, second: fake.Always(200, "")},
		{name: "no response anywhere", first: fake.Silent, second: fake.Silent, want: ErrUnknownOutcome},
	} {
		fake.InBubble(t, tc.name, func(t *testing.T) {
			err := clusterOf(t, fake.Servers{"a": tc.first, "b": tc.second}, "a", "b").cancelLease(t.Context())
			expect.That(t, tc.want == nil || errors.Is(err, tc.want), "Cancel: %v, want %v", err, tc.want)
			var status *Refusal
			expect.That(t, tc.status <= 0 || errors.As(err, &status) && status.Status == tc.status && !errors.Is(err, ErrUnknownOutcome),
				"Cancel: %v, want a plain status %d", err, tc.status)
			expect.That(t, tc.status >= 0 || err != nil && !errors.Is(err, ErrUnknownOutcome),
				"Cancel: %v, want an error that says that nothing was done", err)
			expect.That(t, tc.want != nil || tc.status != 0 || err == nil, "Cancel: %v, want success", err)
		})
	}
}

func TestServerThatIsSilentCostsOneTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clusterOf(t, fake.Servers{"a": fake.Silent, "b": fake.Always(200, "")}, "a", "b")
		start := time.Now()
		need.OK(t, c.renew(t.Context()))
		expect.Equal(t, time.Since(start), usualTimeout, "took")
	})
}

func TestCallEscapesAnIDAsOneSegment(t *testing.T) {
	j := fake.NewJournal()
	c := clusterOf(t, fake.Servers{"a": j.Around(fake.Always(200, ""))}, "a")
	need.Got(c.Perform(t.Context(), EurekaInstance(http.MethodPut, registry.NewKey("orders", "a/b c?#:1"), "status"), ""))(t)
	expect.Equal(t, j.String(), "PUT /eureka/apps/ORDERS/a%2Fb%20c%3F%23:1/status", "got")
}

// Values of the client's configuration.
const (
	usualTimeout   = 5 * time.Second
	sourceInterval = 5 * time.Minute
)

func newCluster(c Config) *Cluster {
	c.Timeout, c.SourceInterval = cmp.Or(c.Timeout, usualTimeout), sourceInterval
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Refused = func(r Refusal) error { return fmt.Errorf("%s answered %d: %s", r.Server, r.Status, r.Message) }
	return New(c)
}

// errMissing is what a 404 means to renew and cancel.
var errMissing = errors.New("not there")

var key = registry.NewKey("orders", "orders-1")

func (c *Cluster) renew(ctx context.Context) error {
	_, err := c.Perform(ctx, EurekaInstance(http.MethodPut, key).Or(errMissing), "renew")
	return err
}

func (c *Cluster) cancelLease(ctx context.Context) error {
	q := EurekaInstance(http.MethodDelete, key).Or(errMissing)
	q.Removes = true
	_, err := c.Perform(ctx, q, "cancel")
	return err
}

func (c *Cluster) fetch(ctx context.Context, path ...string) (Response, error) {
	return c.Perform(ctx, Eureka(http.MethodGet, path...), "read")
}

func (c *Cluster) status(ctx context.Context) (map[string]any, error) {
	return Ask[map[string]any](ctx, c, Own(http.MethodGet, "status"), "")
}

// clusterOf returns a Cluster that asks hosts of s in this order.
func clusterOf(t *testing.T, s fake.Servers, hosts ...string) *Cluster {
	t.Helper()
	return newCluster(Config{Servers: fake.URLs(hosts...), InOrder: true, HTTPClient: &http.Client{Transport: s}})
}

// untrusted is a server whose certificate no known authority has signed.
func untrusted(*http.Request) (*http.Response, error) {
	return nil, &tls.CertificateVerificationError{Err: errors.New("unknown authority")}
}

// A server that closes a connection with unread data first waits for half a second.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// directory is a ServerSource in memory.
type directory struct {
	mu    sync.Mutex
	hosts []string
	err   error
	asked int
	take  time.Duration // how long a response takes
}

func (d *directory) list(ctx context.Context) ([]string, error) {
	if !wait.For(ctx, d.take) {
		return nil, ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	return urlsOf(d.hosts...), d.err
}

func (d *directory) set(err error, hosts ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err, d.hosts = err, hosts
}

func (d *directory) cluster(t *testing.T, network fake.Servers, given ...string) (*Cluster, *bytes.Buffer) {
	t.Helper()
	var logged bytes.Buffer
	return newCluster(Config{
		Servers: urlsOf(given...), InOrder: true, Source: d.list, HTTPClient: &http.Client{Transport: network},
		Log: slog.New(slog.NewTextHandler(&logged, nil)),
	}), &logged
}

func (d *directory) expect(t *testing.T, when string, want int) {
	t.Helper()
	expect.That(t, d.asked == want, "%s: the source was asked %d times, want %d", when, d.asked, want)
}

func beat(t *testing.T, c *Cluster) {
	t.Helper()
	expect.OK(t, c.renew(t.Context()))
}

func TestSourceIsAskedAnewAfterTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, j := &directory{hosts: []string{"b"}}, fake.NewJournal()
		c, _ := d.cluster(t, fake.Servers{"a": fake.Always(200, ""), "b": j.Around(fake.Always(200, ""))}, "a")
		time.Sleep(sourceInterval - 1)
		beat(t, c)
		d.expect(t, "before the interval", 0)
		time.Sleep(time.Nanosecond)
		beat(t, c)
		d.expect(t, "after the interval", 1)
		expect.That(t, len(j.Times()) == 1, "the call that looked the servers up did not go to the new one")
		time.Sleep(sourceInterval - 1)
		beat(t, c)
		d.expect(t, "before the next interval", 1)
		time.Sleep(time.Nanosecond)
		beat(t, c)
		d.expect(t, "after the next interval", 2)
	})
}

func TestSourceIsAskedByTheFirstCallWithoutServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &directory{hosts: []string{"a"}, take: time.Second}
		c, _ := d.cluster(t, fake.Servers{"a": fake.Always(200, "")})
		var g sync.WaitGroup
		for range 10 {
			g.Go(func() { beat(t, c) })
		}
		g.Wait()
		d.expect(t, "ten calls at once", 1)
		beat(t, c)
		d.expect(t, "and another", 1)
	})
}

func TestSourceThatIsAskedKeepsNoOtherCallWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &directory{hosts: []string{"a"}, take: time.Second}
		c, _ := d.cluster(t, fake.Servers{"a": fake.Always(200, "")}, "a")
		time.Sleep(sourceInterval)
		go beat(t, c)
		synctest.Wait()
		start := time.Now()
		beat(t, c)
		expect.Equal(t, time.Since(start), 0, "the second call, which does not wait, took")
		time.Sleep(time.Second)
		synctest.Wait()
		d.expect(t, "two calls", 1)
	})
}

func TestSourceIsAskedWhenNoServerRespondsAndTheNewOnesAreAskedOnce(t *testing.T) {
	for _, tc := range []struct {
		name  string
		found []string
		want  string // requests
		fails bool
	}{
		{name: "a new one answers", found: []string{"a", "c"}, want: "PUT a, PUT c"},
		{name: "a new one is down too, another answers", found: []string{"b", "c"}, want: "PUT a, PUT b, PUT c"},
		{name: "there is no new one", found: []string{"a"}, want: "PUT a", fails: true},
		{name: "the new one is down too", found: []string{"b"}, want: "PUT a, PUT b", fails: true},
	} {
		fake.InBubble(t, tc.name, func(t *testing.T) {
			d := &directory{hosts: tc.found}
			var asked []string
			note := func(next func(*http.Request) (*http.Response, error)) func(*http.Request) (*http.Response, error) {
				return func(r *http.Request) (*http.Response, error) {
					asked = append(asked, r.Method+" "+r.URL.Host)
					return next(r)
				}
			}
			c, _ := d.cluster(t, fake.Servers{"a": note(fake.Unreachable), "b": note(fake.Unreachable), "c": note(fake.Always(200, ""))}, "a")
			err := c.renew(t.Context())
			expect.That(t, (err != nil) == tc.fails, "Renew: %v, want an error: %v", err, tc.fails)
			expect.Equal(t, strings.Join(asked, ", "), tc.want, "asked")
			d.expect(t, "one call", 1)
		})
	}
}

func TestSourceThatFailsLeavesTheServersAndIsReportedOnce(t *testing.T) {
	for name, fail := range map[string]func(*directory){
		"an error":     func(d *directory) { d.set(errors.New("no such host")) },
		"no server":    func(d *directory) { d.set(nil) },
		"an impostor":  func(d *directory) { d.set(nil, "b", "user:secret@c?x") },
		"it takes all": func(d *directory) { d.take = time.Hour },
	} {
		fake.InBubble(t, name, func(t *testing.T) {
			d := &directory{}
			c, logged := d.cluster(t, fake.Servers{"a": fake.Always(200, "")}, "a")
			fail(d)
			for range 3 {
				time.Sleep(sourceInterval)
				start := time.Now()
				beat(t, c)
				took := time.Since(start)
				expect.That(t, took <= usualTimeout, "a call took %v because of its source, want %v at most", took, usualTimeout)
			}
			n := strings.Count(logged.String(), "could not be looked up")
			expect.That(t, n == 1 && !strings.Contains(logged.String(), "secret"), "logged %d times and:\n%swant one line without a password", n, logged)
			d.take = 0
			d.set(nil, "a")
			time.Sleep(sourceInterval)
			beat(t, c)
			expect.Equal(t, strings.Count(logged.String(), "looked up again"), 1, "logged:\n%show often that it works again:", logged)
		})
	}
}

func TestSourcesErrorIsTheCallsWithoutAnyServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("no such host")
		d := &directory{err: broken}
		c, _ := d.cluster(t, fake.Servers{"a": fake.Always(200, "")})
		if err := c.renew(t.Context()); !errors.Is(err, broken) || errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("Renew: %v, want the source's error, and that nothing happened", err)
		}
		d.set(nil)
		expect.ErrorIs(t, c.renew(t.Context()), errNoServer, "Renew:")
		d.set(nil, "a")
		beat(t, c)
		d.expect(t, "three calls", 3)
	})
}

func TestSourceIsAskedAgainWhenTheCallThatAskedGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, logged := (&directory{hosts: []string{"a"}, take: 2 * time.Second}).cluster(t, fake.Servers{"a": fake.Always(200, "")})
		hasty := fake.Within(t, time.Second)
		first := make(chan error, 1)
		go func() { first <- c.renew(hasty) }()
		synctest.Wait()
		beat(t, c)
		expect.ErrorIs(t, <-first, context.DeadlineExceeded, "the call that gave up got")
		expect.That(t, !strings.Contains(logged.String(), "could not"), "logged:\n%swant nothing said of the source", logged)
	})
}

func TestCloseEndsAWaitForTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &directory{take: time.Hour}
		c, _ := d.cluster(t, fake.Servers{})
		results := make(chan error, 2)
		for range 2 {
			go func() { results <- c.cancelLease(t.Context()) }()
		}
		synctest.Wait()
		c.Close()
		for range 2 {
			expect.ErrorIs(t, <-results, ErrClosed, "got")
		}
		d.take = 0
		expect.ErrorIs(t, c.renew(t.Context()), ErrClosed, "a call afterwards:")
		d.expect(t, "after Close", 0)
	})
}

func TestSourceThatPanicsKeepsNoOtherCallWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		c := newCluster(Config{Source: func(context.Context) ([]string, error) {
			if calls++; calls == 1 {
				time.Sleep(time.Second)
				panic("broken")
			}
			return urlsOf("a"), nil
		}, HTTPClient: &http.Client{Transport: fake.Servers{"a": fake.Always(200, "")}}})
		go func() {
			defer func() { _ = recover() }()
			_ = c.renew(t.Context())
		}()
		synctest.Wait()
		expect.ErrorIs(t, c.renew(t.Context()), errSourcePanicked, "the waiting call got")
		beat(t, c)
	})
}
