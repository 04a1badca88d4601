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

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/client/internal/wait"
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
		return fake.Respond(status, body, header...)
	}
}

func TestKVReadsAnEntryWithItsToken(t *testing.T) {
	var sent kvRequest
	const document = `[{"LockIndex":1,"Key":"a/b","Flags":16210313421097356768,"Value":"Ymx1ZQ==","Session":"s1","CreateIndex":57,"ModifyIndex":58}]`
	c := clientOf(t, fake.Servers{"a": oneKey(&sent, 200, document, "X-Rollcall-Fence", "57")}, "a")
	want := Pair{Key: "a/b", Value: []byte("blue"), Flags: 16210313421097356768, Session: "s1", LockIndex: 1, CreateIndex: 57, ModifyIndex: 58, Fence: 57}
	got, err := c.KV().Get(t.Context(), "a/b")
	expect.That(t, err == nil && reflect.DeepEqual(got, want) && sent.line == "GET /v1/kv/a%2Fb", "%s: got %+v, %v, want %+v", sent.line, got, err, want)
	expect.ErrorIs(t, expect.Err(clientOf(t, fake.Servers{"a": fake.Always(404, "", "X-Consul-Index", "7")}, "a").KV().Get(t.Context(), "a")), ErrNoKey,
		"of no key:")
}

func TestKVReadAsksForItsConsistency(t *testing.T) {
	for consistency, want := range map[string]string{"": "GET /v1/kv/a", "stale": "GET /v1/kv/a?stale=", "linearizable": "GET /v1/kv/a?consistent="} {
		var sent kvRequest
		c := clientOf(t, fake.Servers{"a": oneKey(&sent, 404, "")}, "a")
		c.consistency = consistency
		if c.KV().Get(t.Context(), "a"); sent.line != want {
			t.Errorf("consistency %q sent %s, want %s", consistency, sent.line, want)
		}
	}
}

func TestKVListsNoAbsentKeys(t *testing.T) {
	c := clientOf(t, fake.Servers{"a": fake.Always(404, "", "X-Consul-Index", "7")}, "a")
	entries, err := c.KV().List(t.Context(), "a")
	expect.That(t, err == nil && len(entries) == 0, "List: %v, %v, want none", entries, err)
	keys, err := c.KV().Keys(t.Context(), "a", "")
	expect.That(t, err == nil && len(keys) == 0, "Keys: %v, %v, want none", keys, err)
}

func TestKVWriteSaysItsConditions(t *testing.T) {
	index := uint64(0)
	write := func(w Write) func(context.Context, KV) (bool, error) {
		return func(ctx context.Context, k KV) (bool, error) {
			written, err := k.Write(ctx, w)
			return written.OK && (w.Acquire == "" || written.Fence == 57), err
		}
	}
	for _, tc := range []struct {
		name string
		do   func(context.Context, KV) (bool, error)
		want string
		body string
	}{
		{name: "put", do: func(ctx context.Context, k KV) (bool, error) { return true, k.Put(ctx, "a", []byte("x")) }, want: "PUT /v1/kv/a", body: "x"},
		{name: "put nothing", do: func(ctx context.Context, k KV) (bool, error) { return true, k.Put(ctx, "a", nil) }, want: "PUT /v1/kv/a"},
		{name: "check and set", do: func(ctx context.Context, k KV) (bool, error) { return k.CAS(ctx, "a", []byte("x"), 57) }, want: "PUT /v1/kv/a?cas=57", body: "x"},
		{name: "create", do: write(Write{Key: "a", CAS: &index, Flags: 7}), want: "PUT /v1/kv/a?cas=0&flags=7"},
		{name: "acquire", do: write(Write{Key: "a", Acquire: "s1"}), want: "PUT /v1/kv/a?acquire=s1"},
		{name: "release", do: write(Write{Key: "a", Release: "s1"}), want: "PUT /v1/kv/a?release=s1"},
		{name: "the key's own token", do: write(Write{Key: "a", Fence: &kv.Fence{Kind: kv.Key, Name: "a", Index: 57}}),
			want: "PUT /v1/kv/a?fence=57"},
		{name: "another key's token", do: write(Write{Key: "a", Fence: &kv.Fence{Kind: kv.Key, Name: "b", Index: 57}}),
			want: "PUT /v1/kv/a?fence=57&fence-key=b"},
		{name: "a semaphore's token", do: write(Write{Key: "a", Fence: &kv.Fence{Kind: kv.Semaphore, Name: "a", Index: 57}}),
			want: "PUT /v1/kv/a?fence=57&fence-semaphore=a"},
		{name: "delete", do: func(ctx context.Context, k KV) (bool, error) { return true, k.Delete(ctx, "a") }, want: "DELETE /v1/kv/a"},
		{name: "delete if unchanged", do: func(ctx context.Context, k KV) (bool, error) { return k.DeleteCAS(ctx, "a", 57) }, want: "DELETE /v1/kv/a?cas=57"},
		{name: "delete a tree", do: func(ctx context.Context, k KV) (bool, error) { return true, k.DeleteTree(ctx, "") }, want: "DELETE /v1/kv/?recurse="},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var sent kvRequest
			ok, err := tc.do(t.Context(), clientOf(t, fake.Servers{"a": oneKey(&sent, 200, "true", "X-Rollcall-Fence", "57")}, "a").KV())
			expect.That(t, err == nil && ok && sent.line == tc.want && sent.body == tc.body,
				"sent %+v, got %v, %v, want %s with %q", sent, ok, err, tc.want, tc.body)
			expect.That(t, sent.once != "" && (!strings.HasPrefix(tc.want, "PUT") || sent.contentType == "application/octet-stream"),
				"sent %+v, want an Idempotency-Key, and bytes as what they are", sent)
		})
	}
}

func TestKVWriteWhoseConditionDoesNotHoldIsNoError(t *testing.T) {
	c := clientOf(t, fake.Servers{"a": fake.Always(200, "false", "X-Rollcall-Fence", "60")}, "a")
	w, err := c.KV().Write(t.Context(), Write{Key: "a", Acquire: "s1"})
	expect.That(t, err == nil && !w.OK && w.Fence == 60, "got %+v, %v, want a refusal without an error, and the holder's token", w, err)
	gone, err := c.KV().DeleteCAS(t.Context(), "a", 1)
	expect.That(t, err == nil && !gone, "got %v, %v, want a refusal without an error", gone, err)
}

// TestKVWriteIsRepeatedUnderItsIdempotencyKey: the second server answers as the first one did.
func TestKVWriteIsRepeatedUnderItsIdempotencyKey(t *testing.T) {
	var first, second kvRequest
	lost := func(r *http.Request) (*http.Response, error) {
		oneKey(&first, 200, "true")(r)
		return fake.CutOff(r)
	}
	c := clientOf(t, fake.Servers{"a": lost, "b": oneKey(&second, 200, "true")}, "a", "b")
	ok, err := c.KV().CAS(t.Context(), "a", []byte("x"), 57)
	expect.That(t, err == nil && ok, "got %v, %v, want success", ok, err)
	expect.That(t, first == second, "sent %+v, and then %+v, want the same", first, second)
	before := second.once
	_, err = c.KV().CAS(t.Context(), "a", []byte("x"), 57)
	expect.That(t, err == nil && second.once != before, "another write has the same Idempotency-Key %q, %v", second.once, err)
}

func TestKVRefusalIsNotTriedElsewhere(t *testing.T) {
	for _, tc := range []struct {
		name    string
		first   func(*http.Request) (*http.Response, error)
		says    string // "": the second server does it
		unknown bool
	}{
		{name: "an unknown session", first: fake.Always(500, `raft apply failed: invalid session "s"`), says: `invalid session "s"`},
		{name: "no leader", first: fake.Always(500, "No cluster leader")},
		{name: "a node that shuts down", first: fake.Always(500, "this node is shutting down; ask another one")},
		{name: "an unknown outcome", first: fake.Always(504, "", "X-Rollcall-Outcome", "unknown"), says: "outcome unknown", unknown: true},
		{name: "a page of a proxy", first: fake.Always(200, "<html>"), says: "outcome unknown", unknown: true},
		{name: "no consensus", first: fake.Always(501, "needs consensus"), says: "needs consensus"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := clientOf(t, fake.Servers{"a": tc.first, "b": fake.Always(200, "true")}, "a", "b").KV().Put(t.Context(), "a", nil)
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
	gone, err := clientOf(t, fake.Servers{"a": fake.Always(200, "")}, "a").KV().DeleteCAS(t.Context(), "a", 1)
	expect.That(t, !gone && errors.Is(err, ErrUnknownOutcome), "a response that says nothing: %v, %v, want an unknown outcome", gone, err)
	err = clientOf(t, fake.Servers{"a": fake.Always(500, "No cluster leader")}, "a").KV().Put(t.Context(), "a", nil)
	expect.That(t, !errors.Is(err, ErrUnknownOutcome), "without a leader: %v, want an outcome that is known", err)
}

// keyServer is a server of one key whose index grows by itself.
type keyServer struct {
	asked []string
	turns []func(*http.Request) (*http.Response, error)
}

func (s *keyServer) respond(r *http.Request) (*http.Response, error) {
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
		return fake.Always(404, "", "X-Consul-Index", index)
	}
	return fake.Always(200, `[{"Key":"a","Value":"`+value+`","ModifyIndex":`+index+`}]`, "X-Consul-Index", index)
}

// blocks is a server that waits for a change until its time, to which it adds a part, is up.
func blocks(then func(*http.Request) (*http.Response, error)) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		if !wait.For(r.Context(), blockFor+blockFor/16) {
			return nil, r.Context().Err()
		}
		return then(r)
	}
}

func TestKVWatchPassesEachStateOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &keyServer{turns: []func(*http.Request) (*http.Response, error){
			keyAt("5", "YQ=="), blocks(keyAt("5", "YQ==")), keyAt("8", ""), fake.Unreachable, fake.Always(500, "No cluster leader"), keyAt("9", "Yg=="),
			keyAt("3", "Yw=="), // the cluster has lost its data
		}}
		var states []string
		start := time.Now()
		err := clientOf(t, fake.Servers{"a": s.respond}, "a").KV().Watch(t.Context(), "a", func(e *Pair) error {
			if e == nil {
				states = append(states, "-")
				return nil
			}
			states = append(states, string(e.Value))
			if string(e.Value) == "c" {
				return errEnough
			}
			return nil
		})
		want := []string{"a", "-", "b", "c"}
		expect.That(t, errors.Is(err, errEnough) && slices.Equal(states, want), "got %q, %v, want %q", states, err, want)
		expect.Slice(t, s.asked, []string{"", "index=5&wait=1m0s", "index=5&wait=1m0s", "index=8&wait=1m0s", "index=8&wait=1m0s", "index=8&wait=1m0s", "index=9&wait=1m0s"},
			"asked")
		took := time.Since(start)
		expect.That(t, took >= blockFor+blockFor/16, "took %v, want that the server may take its time", took)
	})
}

func TestKVWatchTreeReadsAllOfIt(t *testing.T) {
	var sent kvRequest
	c := clientOf(t, fake.Servers{"a": oneKey(&sent, 200, `[{"Key":"a/1"},{"Key":"a/2"}]`, "X-Consul-Index", "7")}, "a")
	err := c.KV().WatchTree(t.Context(), "a/", func(entries []Pair) error {
		expect.That(t, len(entries) == 2, "got %+v, want two entries", entries)
		return errEnough
	})
	expect.That(t, errors.Is(err, errEnough) && sent.line == "GET /v1/kv/a%2F?recurse=", "sent %s, got %v", sent.line, err)
}

func TestKVWatchEnds(t *testing.T) {
	for _, tc := range []struct {
		name   string
		server func(*http.Request) (*http.Response, error)
		says   string // "": with its context
	}{
		{name: "with its context while it waits", server: fake.Silent},
		{name: "with its context while no server is there", server: fake.Unreachable},
		{name: "with its context while indexes are missing", server: fake.Always(200, "[]")},
		{name: "when it is refused", server: fake.Always(400, "Invalid index"), says: "Invalid index"},
		{name: "without consensus", server: fake.Always(501, "needs consensus"), says: "needs consensus"},
	} {
		fake.InBubble(t, tc.name, func(t *testing.T) {
			ctx := fake.Within(t, time.Hour)
			err := clientOf(t, fake.Servers{"a": tc.server}, "a").KV().Watch(ctx, "a", func(*Pair) error { return errEnough })
			wantSays(t, err, tc.says)
		})
	}
}
