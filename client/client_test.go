package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

var key = registry.NewKey("orders", "orders-1")

func TestCallThatNeedsRollcallSaysSoAtOnce(t *testing.T) {
	for name, do := range map[string]func(context.Context, *Client) error{
		"status":  func(ctx context.Context, c *Client) error { _, err := c.Status(ctx); return err },
		"verify":  func(ctx context.Context, c *Client) error { _, err := c.Verify(ctx); return err },
		"explain": func(ctx context.Context, c *Client) error { _, err := c.Explain(ctx, key); return err },
		"key":     func(ctx context.Context, c *Client) error { _, err := c.KV().Get(ctx, "a"); return err },
		"put":     func(ctx context.Context, c *Client) error { return c.KV().Put(ctx, "a", nil) },
		"session": func(ctx context.Context, c *Client) error { return c.DestroySession(ctx, "s1") },
		"member":  func(ctx context.Context, c *Client) error { return c.RemoveMember(ctx, "n1", registry.Act{}) },
		"lock": func(ctx context.Context, c *Client) error {
			_, err := c.AcquireLock(ctx, LockOptions{Name: "a"})
			return err
		},
		"watched key": func(ctx context.Context, c *Client) error {
			return c.KV().Watch(ctx, "a", func(*Pair) error { return nil })
		},
	} {
		fake.InBubble(t, name, func(t *testing.T) {
			c := clientOf(t, fake.Servers{"a": fake.Always(404, `{"status":404,"error":"Not Found","path":"/v1/rollcall/status"}`), "b": fake.Always(404, "<!doctype html>")}, "a", "b")
			start := time.Now()
			err := do(t.Context(), c)
			expect.That(t, errors.Is(err, ErrNeedsRollcall) && !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrNotRegistered) && !errors.Is(err, ErrNoKey),
				"got %v, want that it needs Rollcall, and nothing else", err)
			if took := time.Since(start); took != 0 || c.cluster.Quarantined() != 0 {
				t.Errorf("took %v, with %d servers in quarantine afterwards, want neither", took, c.cluster.Quarantined())
			}
		})
	}
}

func TestConfigReportsEveryMistake(t *testing.T) {
	_, err := New(Config{Servers: []string{"127.0.0.1:8761", "ftp://a"}, Timeout: -1})
	joined, ok := err.(interface{ Unwrap() []error })
	expect.That(t, ok && len(joined.Unwrap()) == 3, "got %v, want three mistakes", err)
	expect.That(t, expect.Err(New(Config{})) != nil, "no error without servers")
}

func TestAuthOfTheConfigurationOverridesTheURLs(t *testing.T) {
	for name, tc := range map[string]struct {
		auth Auth
		want string
	}{
		"of the URL": {nil, "Basic dTpw"},
		"basic":      {BasicAuth("v", "q"), "Basic djpx"},
		"bearer":     {BearerAuth(func(context.Context) (string, error) { return "t0ken", nil }), "Bearer t0ken"},
	} {
		var got string
		s := fake.Servers{"a": func(r *http.Request) (*http.Response, error) {
			got = r.Header.Get("Authorization")
			return fake.Respond(200, "")
		}}
		c := need.Got(New(Config{Servers: []string{"http://u:p@a"}, HTTPClient: &http.Client{Transport: s}, Auth: tc.auth}))(t)
		need.OK(t, c.Renew(t.Context(), key, 0))
		expect.Equal(t, got, tc.want, "%s: signed with", name)
	}
}

func TestSetServersTakesEffectWithTheNextCall(t *testing.T) {
	j := fake.NewJournal()
	c := clientOf(t, fake.Servers{"a": fake.Unreachable, "b": j.Around(fake.Always(200, ""))}, "a")
	need.OK(t, c.SetServers([]string{"http://b"}))
	err := c.Renew(t.Context(), key, 0)
	expect.That(t, err == nil && len(j.Times()) == 1, "Renew: %v after %d requests of the new server", err, len(j.Times()))
	err = c.SetServers([]string{"nonsense", "ftp://u:secret@x"})
	expect.That(t, err != nil && strings.Contains(err.Error(), "nonsense") && strings.Contains(err.Error(), "ftp") && !strings.Contains(err.Error(), "secret"),
		"got %v, want both mistakes and no password", err)
}

// clientOf returns a client that asks hosts of s in this order.
func clientOf(t *testing.T, s fake.Servers, hosts ...string) *Client {
	t.Helper()
	return need.Got(New(Config{Servers: fake.URLs(hosts...), InOrder: true, HTTPClient: &http.Client{Transport: s}}))(t)
}

// A server that closes a connection with unread data first waits for half a second.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

func wantSays(t *testing.T, err error, words string) {
	t.Helper()
	expect.That(t, (err == nil) == (words == "") && (err == nil || strings.Contains(err.Error(), words)), "got %v, want %q", err, words)
}

const canary = "rct_canary"

// credentials records what requests present, and refuses all but one.
type credentials struct {
	good string
	seen []string
}

func (c *credentials) respond(r *http.Request) (*http.Response, error) {
	c.seen = append(c.seen, r.Header.Get("Authorization"))
	if c.seen[len(c.seen)-1] != c.good {
		return fake.Respond(401, `{"error":"the token is not known here"}`)
	}
	return fake.Respond(200, "{}")
}

func TestTokenOfAFileIsExchangedWithoutARestart(t *testing.T) {
	var said bytes.Buffer
	file := filepath.Join(t.TempDir(), "token")
	need.OK(t, os.WriteFile(file, []byte(canary+"1\n"), 0o600))
	at := need.Got(os.Stat(file))(t).ModTime()
	server := &credentials{good: "Bearer " + canary + "1"}
	c := need.Got(New(Config{Servers: fake.URLs("a"), TokenFile: file, Log: slog.New(slog.NewTextHandler(&said, nil)), HTTPClient: &http.Client{Transport: fake.Servers{"a": server.respond}}}))(t)
	call := func() error { _, err := c.Status(t.Context()); return err }
	need.OK(t, call())

	server.good = "Bearer " + canary + "2"
	need.OK(t, os.WriteFile(file, []byte(canary+"2\n"), 0o600))
	need.OK(t, os.Chtimes(file, at, at)) // of the same size and time
	expect.OKf(t, call(), "after the exchange")
	expect.OKf(t, c.Renew(t.Context(), key, 7), "a heartbeat")

	for _, broken := range []string{"", "two words", strings.Repeat("x", longestToken+1), "l\u00f6we"} {
		need.OK(t, os.WriteFile(file, []byte(broken), 0o600))
		expect.OKf(t, call(), "with a file of %.10q the last token stays in use", broken)
	}
	need.OK(t, os.Remove(file))
	expect.OKf(t, call(), "without the file")
	expect.That(t, strings.Count(said.String(), "WARN") == 1 && strings.Contains(said.String(), file), "the log says %q, want one warning that names the file", &said)

	server.good = "Bearer " + canary + "3"
	err := call()
	expect.That(t, errors.Is(err, ErrUnauthenticated) && !errors.Is(err, ErrDenied) && strings.Contains(err.Error(), "not known here"), "a token that is not good any more: %v", err)
	need.OK(t, os.WriteFile(file, []byte(canary+"3"), 0o600))
	expect.OKf(t, call(), "when the file is there again")
	expect.That(t, !strings.Contains(said.String(), canary) && !strings.Contains(err.Error(), canary), "%q or %v shows the token", &said, err)
}

func TestConfigRejectsAnInvalidToken(t *testing.T) {
	expect.OK(t, checkToken(strings.Repeat("x", longestToken)))
	file := filepath.Join(t.TempDir(), "token")
	need.OK(t, os.WriteFile(file, []byte("\n"), 0o600))
	bearer := BearerAuth(nil)
	for name, tc := range map[string]struct {
		config Config
		says   string
	}{
		"an empty file":  {Config{TokenFile: file}, file + ": it is empty"},
		"no file":        {Config{TokenFile: file + ".missing"}, "no such file"},
		"two words":      {Config{Token: canary + " x"}, "one word"},
		"two lines":      {Config{Token: canary + "\nX-Other: 1"}, "one word"},
		"twice":          {Config{Token: canary, TokenFile: file}, "more than one of Auth, Token and TokenFile"},
		"beside Auth":    {Config{Token: canary, Auth: bearer}, "more than one of Auth, Token and TokenFile"},
		"another client": {Config{Servers: []string{"unix:/x"}, HTTPClient: http.DefaultClient}, "leave HTTPClient out"},
	} {
		if tc.config.Servers == nil {
			tc.config.Servers = fake.URLs("a")
		}
		_, err := New(tc.config)
		expect.That(t, err != nil && strings.Contains(err.Error(), tc.says) && !strings.Contains(err.Error(), canary), "%s: %v, want %q and no token", name, err, tc.says)
	}
}

// Also with an HTTPClient that follows redirects: net/http would send it to another port.
func TestTokenStaysWithItsServer(t *testing.T) {
	var told []string
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { told = append(told, r.Header.Get("Authorization")) }))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for _, given := range []*http.Client{nil, {Transport: transport}} {
		c := need.Got(New(Config{Servers: []string{server.URL}, Token: canary, HTTPClient: given}))(t)
		_, err := c.Status(t.Context())
		expect.That(t, err != nil && strings.Contains(err.Error(), "307") && !strings.Contains(err.Error(), canary), "got %v, want that it is a redirect", err)
		need.OK(t, c.Close(t.Context()))
	}
	expect.That(t, len(told) == 0, "another server was told %q", told)
}

func TestServerIsCalledByItsSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), strings.Repeat("a long name/", 15), "admin.sock")
	need.OK(t, os.MkdirAll(filepath.Dir(path), 0o700))
	short := filepath.Join(t.TempDir(), "s")
	need.OK(t, os.Symlink(filepath.Dir(path), short))
	l := need.Got(net.Listen("unix", filepath.Join(short, "admin.sock")))(t)
	var host, uri string
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, uri = r.Host, r.RequestURI
		w.Write([]byte(`{"mode":"on"}`))
	}), ReadHeaderTimeout: time.Minute}
	go server.Serve(l)
	for _, address := range []string{"unix:" + path, "unix://" + path} {
		c := need.Got(New(Config{Servers: []string{address}}))(t)
		got, err := c.AuthStatus(t.Context())
		expect.That(t, err == nil && got.Mode == "on" && host == "localhost" && uri == "/v1/rollcall/auth", "%s: %+v, %v, asked %s for %s", address, got, err, host, uri)
		need.OK(t, c.Close(t.Context()))
	}
	need.OK(t, server.Close())
	c := need.Got(New(Config{Servers: []string{"unix:" + path}}))(t)
	_, err := c.AuthStatus(t.Context())
	expect.That(t, err != nil && strings.Contains(err.Error(), `"unix:`+path+`:/v1/rollcall/auth"`) && !errors.Is(err, ErrUnknownOutcome), "without a server: %v, want the path in it", err)
	need.OK(t, c.Close(t.Context()))
}

// steps are what happened, in order.
type steps struct {
	mu   sync.Mutex
	took []string
}

func (s *steps) add(step string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.took = append(s.took, step)
}

func (s *steps) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.took, ", ")
}

// actor is a part that records its end; stopping and leaving may be nil.
type actor struct {
	steps                 *steps
	name                  string
	stopping, withdrawing func(context.Context) error
}

func (a *actor) stop(ctx context.Context) error { return a.act(ctx, "stop "+a.name, a.stopping) }
func (a *actor) withdraw(ctx context.Context) error {
	return a.act(ctx, "leave "+a.name, a.withdrawing)
}

func (a *actor) act(ctx context.Context, step string, do func(context.Context) error) error {
	defer a.steps.add(step)
	if do == nil {
		return nil
	}
	return do(ctx)
}

// takes lasts d, whatever its context says.
func takes(d time.Duration) func(context.Context) error {
	return func(context.Context) error {
		time.Sleep(d)
		return nil
	}
}

// observed is a registry that records when metrics are removed, and whether the transport was closed before.
type observed struct {
	*prometheus.Registry
	steps *steps
	life  context.Context // of the transport
}

func (o *observed) Unregister(c prometheus.Collector) bool {
	if o.life.Err() != nil {
		o.steps.add("transport")
	}
	o.steps.add("metrics")
	return o.Registry.Unregister(c)
}

func staged(t *testing.T) (*Client, *steps) {
	t.Helper()
	s := new(steps)
	o := &observed{Registry: prometheus.NewRegistry(), steps: s}
	c := need.Got(New(Config{Servers: fake.URLs("a"), HTTPClient: &http.Client{Transport: fake.Servers{"a": fake.Silent}}, Registerer: o}))(t)
	o.life = c.cluster.Life()
	return c, s
}

func (a *actor) join(t *testing.T, c *Client) *actor {
	t.Helper()
	need.OK(t, c.adopt(a))
	return a
}

func TestCloseStopsLeavesAndThenClosesTransportAndMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := staged(t)
		var sent error
		quick := &actor{steps: s, name: "quick", withdrawing: func(ctx context.Context) error {
			sent = c.cluster.Life().Err() // it must still reach the cluster
			return nil
		}}
		quick.join(t, c)
		(&actor{steps: s, name: "slow", stopping: takes(time.Second), withdrawing: takes(time.Second)}).join(t, c)
		start := time.Now()
		need.OK(t, c.Close(t.Context()))
		expect.Equal(t, s.String(), "stop quick, stop slow, leave quick, leave slow, transport, metrics", "did")
		expect.Equal(t, time.Since(start), 2*time.Second, "all parts together took")
		expect.That(t, sent == nil && errors.Is(context.Cause(c.cluster.Life()), ErrClosed),
			"the transport was closed before a part left (%v), or was not (%v)", sent, context.Cause(c.cluster.Life()))
	})
}

func TestCloseEndsTheTransportInSpiteOfAPartThatHangs(t *testing.T) {
	for _, tc := range []struct {
		name  string
		hangs *actor
		want  string
		took  time.Duration
		says  string
	}{
		{name: "when it is stopped", hangs: &actor{name: "x", stopping: takes(time.Hour)},
			want: "stop good, leave good, transport, metrics", took: 10*time.Second + closeGrace, says: "1 of 2 parts did not end"},
		{name: "when it leaves", hangs: &actor{name: "x", withdrawing: takes(time.Hour)},
			want: "stop good, stop x, leave good, transport, metrics", took: 10*time.Second + closeGrace, says: "1 of 2 parts did not end"},
		{name: "until its time is up", hangs: &actor{name: "x", stopping: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}}, want: "stop good, stop x, leave good, leave x, transport, metrics", took: 10 * time.Second, says: "deadline"},
		{name: "and a bit longer", hangs: &actor{name: "x", stopping: takes(10*time.Second + closeGrace/2)},
			want: "stop good, stop x, leave good, leave x, transport, metrics", took: 10*time.Second + closeGrace/2},
	} {
		fake.InBubble(t, tc.name, func(t *testing.T) {
			c, s := staged(t)
			tc.hangs.steps = s
			tc.hangs.join(t, c)
			(&actor{steps: s, name: "good"}).join(t, c)
			ctx := fake.Within(t, 10*time.Second)
			start := time.Now()
			err := c.Close(ctx)
			expect.Equal(t, time.Since(start), tc.took, "took")
			got := strings.Split(s.String(), ", ")
			want := strings.Split(tc.want, ", ")
			slices.Sort(got[:len(got)-2]) // parts act together
			slices.Sort(want[:len(want)-2])
			expect.Slice(t, got, want, "did")
			wantSays(t, err, tc.says)
			time.Sleep(2 * time.Hour) // what hangs ends
		})
	}
}

func TestCloseReturnsWhatItReturnedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := staged(t)
		broken := errors.New("not canceled")
		(&actor{steps: s, name: "a", stopping: takes(time.Minute), withdrawing: func(context.Context) error { return broken }}).join(t, c)
		results := make(chan error, 2)
		for range 2 {
			go func() { results <- c.Close(t.Context()) }()
		}
		synctest.Wait()
		err := c.Close(fake.Within(t, time.Second))
		expect.That(t, errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, broken), "a Close that cannot wait returns %v, want that", err)
		for range 2 {
			expect.ErrorIs(t, <-results, broken, "Close, what the part said:")
		}
		expect.ErrorIs(t, c.Close(t.Context()), broken, "Close again:")
		expect.Equal(t, s.String(), "stop a, leave a, transport, metrics", "everything is to be done once: did")
	})
}

func TestClosePreventsPartsFromStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := staged(t)
		(&actor{steps: s, name: "a", stopping: takes(time.Minute)}).join(t, c)
		ended := make(chan error)
		go func() { ended <- c.Close(t.Context()) }()
		synctest.Wait()
		expect.ErrorIs(t, c.adopt(&actor{steps: s, name: "late"}), ErrClosed, "while Close runs:")
		<-ended
		expect.ErrorIs(t, c.adopt(&actor{steps: s, name: "later"}), ErrClosed, "after Close:")
	})
}

func TestCloseIgnoresAPartThatEndedOnItsOwn(t *testing.T) {
	c, s := staged(t)
	c.drop((&actor{steps: s, name: "gone"}).join(t, c))
	need.OK(t, c.Close(t.Context()))
	expect.Equal(t, s.String(), "transport, metrics", "did")
}

// outcomeRow is a row of the table of statuses in docs/reference/outcomes.md.
var outcomeRow = regexp.MustCompile(`(?m)^\| (\d{3}|no connection|connection lost)(?: ` + "`([^`]*)`" + `)? \|[^|]*\|[^|]*\| (\w+) \| (\w+) \| (\w+) \|$`)

// respondsWith returns a server that responds as a row says.
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

// It sends a write of each API to servers that respond alike.
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
