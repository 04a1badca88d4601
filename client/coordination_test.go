package client

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestCoordinationIsReadAsItIsShown(t *testing.T) {
	for _, tc := range []struct {
		name   string
		line   string
		answer string
		do     func(context.Context, *Client) (any, error)
		want   any
	}{
		{name: "sessions", line: "GET /v1/rollcall/sessions",
			answer: `[{"id":"s1","name":"n","node":"m","ttl":"15s","lock_delay":"1s","behavior":"delete","created":1,"age_ms":2,"ends_in_ms":3,"holds":[{"kind":"lock","name":"demo","fence":4}]}]`,
			do:     func(ctx context.Context, c *Client) (any, error) { return c.Sessions(ctx) },
			want: []Session{{ID: "s1", Name: "n", Node: "m", TTL: "15s", LockDelay: "1s", Behavior: "delete", Created: 1, AgeMS: 2, EndsInMS: 3,
				Holds: []Acquisition{{Kind: "lock", Name: "demo", Fence: 4}}}}},
		{name: "a session", line: "GET /v1/rollcall/sessions/s1", answer: `{"id":"s1"}`,
			do:   func(ctx context.Context, c *Client) (any, error) { return c.Session(ctx, "s1") },
			want: Session{ID: "s1"}},
		{name: "locks", line: "GET /v1/rollcall/locks",
			answer: `[{"name":"demo","limit":1,"holders":[{"session":"s1","fence":4,"since":5,"value":"bWU="}],"queue":[{"session":"s2","waited_ms":6,"gives_up_ms":7,"value":null}],"delays_ms":[8]}]`,
			do:     func(ctx context.Context, c *Client) (any, error) { return c.Locks(ctx) },
			want: []Permits{{Name: "demo", Limit: 1, Holders: []Holder{{Session: "s1", Fence: 4, Since: 5, Value: []byte("me")}},
				Queue: []Waiter{{Session: "s2", WaitedMS: 6, LeftMS: 7}}, DelaysMS: []int64{8}}}},
		{name: "a lock", line: "GET /v1/rollcall/locks/a%2Fb", answer: `{"name":"a/b","limit":1}`,
			do:   func(ctx context.Context, c *Client) (any, error) { return c.Lock(ctx, "a/b") },
			want: Permits{Name: "a/b", Limit: 1}},
		{name: "semaphores", line: "GET /v1/rollcall/semaphores", answer: `[]`,
			do:   func(ctx context.Context, c *Client) (any, error) { return c.Semaphores(ctx) },
			want: []Permits{}},
		{name: "a semaphore", line: "GET /v1/rollcall/semaphores/demo", answer: `{"name":"demo","limit":3}`,
			do:   func(ctx context.Context, c *Client) (any, error) { return c.Semaphore(ctx, "demo") },
			want: Permits{Name: "demo", Limit: 3}},
		{name: "whether an acquisition lasts", line: "GET /v1/rollcall/fence/a%2Fb?index=57&kind=semaphore&session=s1", answer: `{"holds":true,"fence":57}`,
			do: func(ctx context.Context, c *Client) (any, error) {
				return c.CheckFence(ctx, kv.Fence{Kind: kv.Semaphore, Name: "a/b", Index: 57}, "s1")
			},
			want: FenceState{Holds: true, Fence: 57}},
		{name: "a renewed session", line: "PUT /v1/rollcall/sessions/s1/renew", answer: `{"id":"s1"}`,
			do:   func(ctx context.Context, c *Client) (any, error) { return c.RenewSession(ctx, "s1") },
			want: Session{ID: "s1"}},
		{name: "a created session", line: "POST /v1/rollcall/sessions", answer: `{"id":"s1"}`,
			do: func(ctx context.Context, c *Client) (any, error) {
				return c.CreateSession(ctx, SessionOptions{TTL: time.Minute})
			},
			want: Session{ID: "s1"}},
		{name: "what is pruned", line: "POST /v1/rollcall/prune?dry-run=&not-passing=&service=orders", answer: `[{"app":"ORDERS","id":"o1","node":"m","status":"DOWN","reason":"r"}]`,
			do: func(ctx context.Context, c *Client) (any, error) {
				return c.Prune(ctx, PruneOptions{Service: "orders", DryRun: true})
			},
			want: []Pruned{{App: "ORDERS", ID: "o1", Node: "m", Status: "DOWN", Reason: "r"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var sent string
			c := servers{"a": func(r *http.Request) (*http.Response, error) {
				sent = r.Method + " " + r.URL.RequestURI()
				return answered(200, tc.answer)
			}}.client(t, "a")
			got, err := tc.do(t.Context(), c)
			expect.That(t, err == nil && sent == tc.line && reflect.DeepEqual(got, tc.want),
				"sent %s, got %+v, %v, want %s and %+v", sent, got, err, tc.line, tc.want)
			refused := servers{"a": always(501, `{"error":"needs consensus"}`)}.client(t, "a")
			var status *StatusError
			if _, err := tc.do(t.Context(), refused); !errors.As(err, &status) || status.Message != "needs consensus" {
				t.Errorf("without consensus: %v, want the server's words", err)
			}
		})
	}
}

func TestWhatIsNotThereIsSaidInItsOwnWay(t *testing.T) {
	c := servers{"a": always(404, `{"error":"nobody holds or waits for it"}`)}.client(t, "a")
	if p, err := c.Lock(t.Context(), "demo"); err != nil || p.Name != "demo" || len(p.Holders) != 0 {
		t.Errorf("of a lock that nobody holds: %+v, %v, want its name alone", p, err)
	}
	for name, err := range map[string]error{
		"Session":        second(c.Session(t.Context(), "s1")),
		"RenewSession":   second(c.RenewSession(t.Context(), "s1")),
		"DestroySession": c.DestroySession(t.Context(), "s1"),
	} {
		expect.ErrorIs(t, err, ErrNoSession, "%s:", name)
	}
	gone := servers{"a": cutOff, "b": always(404, `{"error":"no such session"}`)}.client(t, "a", "b")
	if err := gone.DestroySession(t.Context(), "s1"); err != nil {
		t.Errorf("a session that an earlier try may have ended: %v, want success", err)
	}
}

func second[T any](_ T, err error) error { return err }
