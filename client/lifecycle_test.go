package client

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

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

// actor is a part that notes what becomes of it; stopping and leaving may be nil.
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
			sent = c.cluster.Life().Err() // it has to reach the cluster
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
		if err := c.Close(fake.Within(t, time.Second)); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, broken) {
			t.Errorf("a Close that cannot wait returns %v, want that", err)
		}
		for range 2 {
			expect.ErrorIs(t, <-results, broken, "Close, what the part said:")
		}
		expect.ErrorIs(t, c.Close(t.Context()), broken, "Close again:")
		expect.Equal(t, s.String(), "stop a, leave a, transport, metrics", "everything is to be done once: did")
	})
}

func TestCloseKeepsPartsFromStarting(t *testing.T) {
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

func TestCloseLeavesAPartAloneThatEndedByItself(t *testing.T) {
	c, s := staged(t)
	c.drop((&actor{steps: s, name: "gone"}).join(t, c))
	need.OK(t, c.Close(t.Context()))
	expect.Equal(t, s.String(), "transport, metrics", "did")
}
