package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// kvRequest is what a server of keys was asked.
type kvRequest struct {
	line, body, contentType, once string
}

// oneKey answers every request alike and records the last one.
func oneKey(sent *kvRequest, status int, body string, header ...string) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		text, _ := io.ReadAll(r.Body)
		*sent = kvRequest{r.Method + " " + r.URL.RequestURI(), string(text), r.Header.Get("Content-Type"), r.Header.Get("Idempotency-Key")}
		return answered(status, body, header...)
	}
}

func TestAnEntryIsReadWithItsToken(t *testing.T) {
	var sent kvRequest
	const document = `[{"LockIndex":1,"Key":"a/b","Flags":16210313421097356768,"Value":"Ymx1ZQ==","Session":"s1","CreateIndex":57,"ModifyIndex":58}]`
	c := servers{"a": oneKey(&sent, 200, document, "X-Rollcall-Fence", "57")}.client(t, "a")
	want := Entry{Key: "a/b", Value: []byte("blue"), Flags: 16210313421097356768, Session: "s1", LockIndex: 1, CreateIndex: 57, ModifyIndex: 58, Fence: 57}
	got, err := c.KV().Get(t.Context(), "a/b")
	expect.That(t, err == nil && reflect.DeepEqual(got, want) && sent.line == "GET /v1/kv/a%2Fb", "%s: got %+v, %v, want %+v", sent.line, got, err, want)
	expect.ErrorIs(t, expect.Err((servers{"a": always(404, "", "X-Consul-Index", "7")}).client(t, "a").KV().Get(t.Context(), "a")), ErrNoKey,
		"of no key:")
}

func TestAReadOfKeysAsksForItsConsistency(t *testing.T) {
	for consistency, want := range map[string]string{"": "GET /v1/kv/a", "stale": "GET /v1/kv/a?stale=", "linearizable": "GET /v1/kv/a?consistent="} {
		var sent kvRequest
		c := servers{"a": oneKey(&sent, 404, "")}.client(t, "a")
		c.consistency = consistency
		if c.KV().Get(t.Context(), "a"); sent.line != want {
			t.Errorf("consistency %q sent %s, want %s", consistency, sent.line, want)
		}
	}
}

func TestAbsentKeysAreAnEmptyList(t *testing.T) {
	c := servers{"a": always(404, "", "X-Consul-Index", "7")}.client(t, "a")
	entries, err := c.KV().List(t.Context(), "a")
	expect.That(t, err == nil && len(entries) == 0, "List: %v, %v, want none", entries, err)
	if keys, err := c.KV().Keys(t.Context(), "a", ""); err != nil || len(keys) != 0 {
		t.Errorf("Keys: %v, %v, want none", keys, err)
	}
}

func TestWritesOfKeysSayTheirConditions(t *testing.T) {
	index := uint64(0)
	for _, tc := range []struct {
		name string
		do   func(context.Context, KV) (bool, error)
		want string
		body string
	}{
		{name: "put", do: func(ctx context.Context, k KV) (bool, error) { return true, k.Put(ctx, "a", []byte("x")) }, want: "PUT /v1/kv/a", body: "x"},
		{name: "put nothing", do: func(ctx context.Context, k KV) (bool, error) { return true, k.Put(ctx, "a", nil) }, want: "PUT /v1/kv/a"},
		{name: "check and set", do: func(ctx context.Context, k KV) (bool, error) { return k.CAS(ctx, "a", []byte("x"), 57) }, want: "PUT /v1/kv/a?cas=57", body: "x"},
		{name: "create", do: func(ctx context.Context, k KV) (bool, error) {
			w, err := k.Write(ctx, Write{Key: "a", CAS: &index, Flags: 7})
			return w.OK, err
		}, want: "PUT /v1/kv/a?cas=0&flags=7"},
		{name: "acquire", do: func(ctx context.Context, k KV) (bool, error) {
			w, err := k.Write(ctx, Write{Key: "a", Acquire: "s1"})
			return w.OK && w.Fence == 57, err
		}, want: "PUT /v1/kv/a?acquire=s1"},
		{name: "release", do: func(ctx context.Context, k KV) (bool, error) {
			w, err := k.Write(ctx, Write{Key: "a", Release: "s1"})
			return w.OK, err
		}, want: "PUT /v1/kv/a?release=s1"},
		{name: "the key's own token", do: func(ctx context.Context, k KV) (bool, error) {
			w, err := k.Write(ctx, Write{Key: "a", Fence: &kv.Fence{Kind: kv.Key, Name: "a", Index: 57}})
			return w.OK, err
		}, want: "PUT /v1/kv/a?fence=57"},
		{name: "another key's token", do: func(ctx context.Context, k KV) (bool, error) {
			w, err := k.Write(ctx, Write{Key: "a", Fence: &kv.Fence{Kind: kv.Key, Name: "b", Index: 57}})
			return w.OK, err
		}, want: "PUT /v1/kv/a?fence=57&fence-key=b"},
		{name: "a semaphore's token", do: func(ctx context.Context, k KV) (bool, error) {
			w, err := k.Write(ctx, Write{Key: "a", Fence: &kv.Fence{Kind: kv.Semaphore, Name: "a", Index: 57}})
			return w.OK, err
		}, want: "PUT /v1/kv/a?fence=57&fence-semaphore=a"},
		{name: "delete", do: func(ctx context.Context, k KV) (bool, error) { return true, k.Delete(ctx, "a") }, want: "DELETE /v1/kv/a"},
		{name: "delete if unchanged", do: func(ctx context.Context, k KV) (bool, error) { return k.DeleteCAS(ctx, "a", 57) }, want: "DELETE /v1/kv/a?cas=57"},
		{name: "delete a tree", do: func(ctx context.Context, k KV) (bool, error) { return true, k.DeleteTree(ctx, "") }, want: "DELETE /v1/kv/?recurse="},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var sent kvRequest
			ok, err := tc.do(t.Context(), servers{"a": oneKey(&sent, 200, "true", "X-Rollcall-Fence", "57")}.client(t, "a").KV())
			expect.That(t, err == nil && ok && sent.line == tc.want && sent.body == tc.body,
				"sent %+v, got %v, %v, want %s with %q", sent, ok, err, tc.want, tc.body)
			if sent.once == "" || strings.HasPrefix(tc.want, "PUT") && sent.contentType != "application/octet-stream" {
				t.Errorf("sent %+v, want an Idempotency-Key, and bytes as what they are", sent)
			}
		})
	}
}

func TestAWriteWhoseConditionDoesNotHoldIsAnAnswer(t *testing.T) {
	c := servers{"a": always(200, "false", "X-Rollcall-Fence", "60")}.client(t, "a")
	w, err := c.KV().Write(t.Context(), Write{Key: "a", Acquire: "s1"})
	expect.That(t, err == nil && !w.OK && w.Fence == 60, "got %+v, %v, want a refusal without an error, and the token of who holds", w, err)
	if gone, err := c.KV().DeleteCAS(t.Context(), "a", 1); err != nil || gone {
		t.Errorf("got %v, %v, want a refusal without an error", gone, err)
	}
}

// TestAWriteIsRepeatedUnderItsIdempotencyKey: the second server answers as the first one did.
func TestAWriteIsRepeatedUnderItsIdempotencyKey(t *testing.T) {
	var first, second kvRequest
	lost := func(r *http.Request) (*http.Response, error) {
		oneKey(&first, 200, "true")(r)
		return cutOff(r)
	}
	c := servers{"a": lost, "b": oneKey(&second, 200, "true")}.client(t, "a", "b")
	ok, err := c.KV().CAS(t.Context(), "a", []byte("x"), 57)
	expect.That(t, err == nil && ok, "got %v, %v, want success", ok, err)
	expect.That(t, first == second, "sent %+v, and then %+v, want the same", first, second)
	before := second.once
	if _, err := c.KV().CAS(t.Context(), "a", []byte("x"), 57); err != nil || second.once == before {
		t.Errorf("another write has the same Idempotency-Key %q, %v", second.once, err)
	}
}

func TestRefusalsOfConsulsRoutesAreNotTriedElsewhere(t *testing.T) {
	for _, tc := range []struct {
		name    string
		first   func(*http.Request) (*http.Response, error)
		says    string // "": the second server does it
		unknown bool
	}{
		{name: "an unknown session", first: always(500, `raft apply failed: invalid session "s"`), says: `invalid session "s"`},
		{name: "no leader", first: always(500, noLeader)},
		{name: "a node that shuts down", first: always(500, shuttingDown)},
		{name: "an unknown outcome", first: always(504, "", "X-Rollcall-Outcome", "unknown"), says: "outcome unknown", unknown: true},
		{name: "no consensus", first: always(501, "needs consensus"), says: "needs consensus"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := servers{"a": tc.first, "b": always(200, "true")}.client(t, "a", "b")
			err := c.KV().Put(t.Context(), "a", nil)
			switch {
			case tc.says == "" && err != nil:
				t.Errorf("got %v, want the second server's success", err)
			case tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)):
				t.Errorf("got %v, want %q", err, tc.says)
			case errors.Is(err, ErrUnknownOutcome) != tc.unknown:
				t.Errorf("got %v, want an unknown outcome: %v", err, tc.unknown)
			}
		})
	}
	if err := (servers{"a": always(500, noLeader)}).client(t, "a").KV().Put(t.Context(), "a", nil); errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("without a leader: %v, want an outcome that is known", err)
	}
}

// keyServer is a server of one key whose index grows by itself.
type keyServer struct {
	asked []string
	turns []func(*http.Request) (*http.Response, error)
}

func (s *keyServer) answer(r *http.Request) (*http.Response, error) {
	s.asked = append(s.asked, r.URL.RawQuery)
	turn := s.turns[0]
	if len(s.turns) > 1 {
		s.turns = s.turns[1:]
	}
	return turn(r)
}

// keyAt answers with a key at an index; "": there is none.
func keyAt(index, value string) func(*http.Request) (*http.Response, error) {
	if value == "" {
		return always(404, "", "X-Consul-Index", index)
	}
	return always(200, `[{"Key":"a","Value":"`+value+`","ModifyIndex":`+index+`}]`, "X-Consul-Index", index)
}

// blocks is a server that waits for a change until its time, to which it adds a part, is up.
func blocks(then func(*http.Request) (*http.Response, error)) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		if !wait(r.Context(), blockFor+blockFor/16) {
			return nil, r.Context().Err()
		}
		return then(r)
	}
}

func TestAWatchOfAKeyTellsEachStateOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &keyServer{turns: []func(*http.Request) (*http.Response, error){
			keyAt("5", "YQ=="), blocks(keyAt("5", "YQ==")), keyAt("8", ""), unreachable, always(500, noLeader), keyAt("9", "Yg=="),
			keyAt("3", "Yw=="), // the cluster has lost its data
		}}
		var told []string
		start := time.Now()
		err := servers{"a": s.answer}.client(t, "a").KV().Watch(t.Context(), "a", func(e *Entry) error {
			if e == nil {
				told = append(told, "-")
				return nil
			}
			told = append(told, string(e.Value))
			if string(e.Value) == "c" {
				return errEnough
			}
			return nil
		})
		want := []string{"a", "-", "b", "c"}
		expect.That(t, errors.Is(err, errEnough) && slices.Equal(told, want), "told %q, %v, want %q", told, err, want)
		expect.Slice(t, s.asked, []string{"", "index=5&wait=1m0s", "index=5&wait=1m0s", "index=8&wait=1m0s", "index=8&wait=1m0s", "index=8&wait=1m0s", "index=9&wait=1m0s"},
			"asked")
		took := time.Since(start)
		expect.That(t, took >= blockFor+blockFor/16, "took %v, want that the server may take its time", took)
	})
}

func TestAWatchOfATreeReadsAllOfIt(t *testing.T) {
	var sent kvRequest
	c := servers{"a": oneKey(&sent, 200, `[{"Key":"a/1"},{"Key":"a/2"}]`, "X-Consul-Index", "7")}.client(t, "a")
	err := c.KV().WatchTree(t.Context(), "a/", func(entries []Entry) error {
		expect.That(t, len(entries) == 2, "told %+v, want two entries", entries)
		return errEnough
	})
	expect.That(t, errors.Is(err, errEnough) && sent.line == "GET /v1/kv/a%2F?recurse=", "sent %s, got %v", sent.line, err)
}

func TestAWatchOfAKeyEnds(t *testing.T) {
	for _, tc := range []struct {
		name   string
		server func(*http.Request) (*http.Response, error)
		says   string // "": with its context
	}{
		{name: "with its context while it waits", server: silent},
		{name: "with its context while nobody is there", server: unreachable},
		{name: "with its context while indexes are missing", server: always(200, "[]")},
		{name: "when it is refused", server: always(400, "Invalid index"), says: "Invalid index"},
		{name: "without consensus", server: always(501, "needs consensus"), says: "needs consensus"},
	} {
		inBubble(t, tc.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			err := servers{"a": tc.server}.client(t, "a").KV().Watch(ctx, "a", func(*Entry) error { return errEnough })
			if tc.says == "" && err != nil || tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)) {
				t.Errorf("got %v, want %q", err, tc.says)
			}
		})
	}
}

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
