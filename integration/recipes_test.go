package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// The two recipes that every language has for Consul, on plain HTTP: a mutex by a session that acquires
// a key, and a semaphore by a key .lock that is written by compare-and-set.

// led asks again for as long as Consul's API says that there is no leader, and so did nothing.
func led(ask func() Answer) (answer Answer) {
	_ = Poll(ReadyLimit, func() error { // the answer says it
		if answer = ask(); answer.Status == http.StatusInternalServerError && bytes.HasPrefix(answer.Body, []byte("No cluster leader")) {
			return errRefused
		}
		return nil
	})
	return answer
}

// put sends a PUT of Consul's API and returns the body of its answer, which must be a 200.
func (n *Node) put(path, body string) (string, error) {
	answer := led(func() Answer { return n.Do(Request{Method: http.MethodPut, Path: path, Body: []byte(body)}) })
	if answer.Status != http.StatusOK {
		return "", fmt.Errorf("PUT %s: %v", path, answer)
	}
	return string(answer.Body), nil
}

// session creates a session; document is the body of the request.
func (n *Node) session(t *testing.T, document string) string {
	t.Helper()
	body, err := n.put("/v1/session/create", document)
	need.OK(t, err)
	var created struct{ ID string }
	need.OK(t, json.Unmarshal([]byte(body), &created))
	return created.ID
}

// says sends a PUT that answers true or false.
func (n *Node) says(t *testing.T, path, body string) bool {
	t.Helper()
	answer, err := n.put(path, body)
	need.OK(t, err)
	if answer != "true" && answer != "false" {
		t.Fatalf("PUT %s: %q, want true or false", path, answer)
	}
	return answer == "true"
}

// key is an entry of the key-value store as its JSON has it.
type key struct {
	Key         string
	Value       []byte
	Session     string
	ModifyIndex uint64
	LockIndex   uint64
}

// keys reads entries; path is what follows /v1/kv/. None: nil.
func (n *Node) keys(path string) ([]key, Answer, error) {
	answer := led(func() Answer { return n.Get("/v1/kv/" + path) })
	switch answer.Status {
	case http.StatusNotFound:
		return nil, answer, nil
	case http.StatusOK:
		var all []key
		return all, answer, json.Unmarshal(answer.Body, &all)
	}
	return nil, answer, fmt.Errorf("GET /v1/kv/%s: %v", path, answer)
}

func TestRecipeOfTheMutex(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{})
	a, b, d := c.Nodes[0], c.Nodes[1], c.Nodes[2]
	// As Java's clients create sessions: a lock-delay of the number 0 is none.
	first := a.session(t, `{"LockDelay":0,"Name":"first"}`)
	other := b.session(t, `{"LockDelay":0,"Name":"other"}`)
	need.That(t, a.says(t, "/v1/kv/lock/job?acquire="+first, "lock:1"), "a free key was not acquired")
	need.That(t, !b.says(t, "/v1/kv/lock/job?acquire="+other, "lock:2"), "two hold the lock")
	expect.That(t, !b.says(t, "/v1/kv/lock/job?release="+other, "unlock:2"), "who does not hold the lock released it")
	held, answer, err := d.keys("lock/job")
	need.OK(t, err)
	need.That(t, len(held) == 1 && held[0].Session == first && string(held[0].Value) == "lock:1" && held[0].LockIndex == 1,
		"the third node shows %+v, want it held by the first with its value", held)
	token := answer.Header.Get("X-Rollcall-Fence")
	expect.That(t, token != "" && token != "0", "X-Rollcall-Fence is %q, want the token of the acquisition", token)

	// Blocking: wait for a change of the key, then try again.
	acquired := make(chan error, 1)
	go func() {
		acquired <- func() error {
			for index := held[0].ModifyIndex; ; {
				_, answer, err := b.keys(fmt.Sprintf("lock/job?index=%d&wait=5s", index))
				if err != nil {
					return err
				}
				if _, err := fmt.Sscan(answer.Header.Get("X-Consul-Index"), &index); err != nil {
					return err
				}
				if done, err := b.put("/v1/kv/lock/job?acquire="+other, "lock:2"); err != nil || done == "true" {
					return err
				}
			}
		}()
	}()
	expect.That(t, a.says(t, "/v1/kv/lock/job?release="+first, "unlock:1"), "the holder could not release its lock")
	select {
	case err := <-acquired:
		need.OK(t, err)
	case <-time.After(ReadyLimit):
		t.Fatal("who waits for the lock does not get it")
	}
	for _, when := range []string{"", ", once more,"} {
		expect.That(t, d.says(t, "/v1/session/destroy/"+other, ""), "destroying a session%s must answer true", when)
	}
	if held, _, err = a.keys("lock/job"); err != nil || held[0].Session != "" || string(held[0].Value) != "lock:2" {
		t.Errorf("%+v, %v; want the value kept and no holder", held, err)
	}
	expect.That(t, a.says(t, "/v1/kv/lock/job?acquire="+first, "again"), "a lock whose session was destroyed without lock-delay is not free at once")
	for _, dead := range []string{other, "no-uuid"} {
		answer := led(func() Answer { return a.Do(Request{Method: http.MethodPut, Path: "/v1/kv/lock/x?acquire=" + dead}) })
		want := fmt.Sprintf("raft apply failed: invalid session %q", dead)
		expect.That(t, answer.Status == 500 && string(answer.Body) == want, "acquire by a session that is gone: %v, want 500 %q", answer, want)
	}
}

// permit is one contender's part in the recipe of the semaphore.
type permit struct {
	node    *Node
	session string
	began   time.Time // before the session was created
}

// coordination is the value of .lock: the article's form, with a list of holders.
type coordination struct {
	Limit   int      `json:"limit"`
	Holders []string `json:"holders"`
}

const (
	semaphore = "semaphore/demo/"
	permitTTL = 10 * time.Second
)

// contend creates the session and the contender's key.
func contend(t *testing.T, n *Node) permit {
	t.Helper()
	began := time.Now()
	p := permit{n, n.session(t, fmt.Sprintf(`{"TTL":%q,"LockDelay":0,"Behavior":"delete"}`, permitTTL)), began}
	need.That(t, n.says(t, "/v1/kv/"+semaphore+p.session+"?acquire="+p.session, "contender"), "the contender's own key was not acquired")
	return p
}

// try takes a permit if one is free, after it has dropped the dead from the holders. It also returns
// the index to wait behind.
func (p permit) try(limit int) (taken bool, index string, err error) {
	entries, answer, err := p.node.keys(semaphore + "?recurse")
	if err != nil {
		return false, "", err
	}
	lock := coordination{Limit: limit}
	cas := uint64(0)
	alive := map[string]bool{}
	for _, e := range entries {
		if e.Key == semaphore+".lock" {
			cas, err = e.ModifyIndex, json.Unmarshal(e.Value, &lock)
		} else if e.Session != "" {
			alive[e.Session] = true
		}
	}
	if err != nil {
		return false, "", err
	}
	lock.Holders = slices.DeleteFunc(lock.Holders, func(s string) bool { return !alive[s] })
	index = answer.Header.Get("X-Consul-Index")
	if len(lock.Holders) >= lock.Limit {
		return false, index, nil
	}
	lock.Holders = append(lock.Holders, p.session)
	body, err := json.Marshal(lock)
	if err != nil {
		return false, "", err
	}
	said, err := p.node.put(fmt.Sprintf("/v1/kv/%s.lock?cas=%d", semaphore, cas), string(body))
	return said == "true", index, err
}

// wait tries until it has a permit, waiting for changes in between.
func (p permit) wait(limit int) error {
	for deadline := time.Now().Add(ReadyLimit); time.Now().Before(deadline); {
		taken, index, err := p.try(limit)
		if err != nil || taken {
			return err
		}
		if _, _, err := p.node.keys(semaphore + "?recurse&wait=2s&index=" + url.QueryEscape(index)); err != nil {
			return err
		}
	}
	return errors.New("no permit")
}

// release takes the session out of the holders and ends it.
func (p permit) release(t *testing.T) {
	t.Helper()
	Eventually(t, ReadyLimit, "the permit is given back", func() error {
		entries, _, err := p.node.keys(semaphore + ".lock")
		if err != nil || len(entries) != 1 {
			return fmt.Errorf("%+v, %v", entries, err)
		}
		var lock coordination
		if err := json.Unmarshal(entries[0].Value, &lock); err != nil {
			return err
		}
		lock.Holders = slices.DeleteFunc(lock.Holders, func(s string) bool { return s == p.session })
		body, _ := json.Marshal(lock)
		said, err := p.node.put(fmt.Sprintf("/v1/kv/%s.lock?cas=%d", semaphore, entries[0].ModifyIndex), string(body))
		if err == nil && said != "true" {
			err = errors.New("somebody else was quicker")
		}
		return err
	})
	answer := led(func() Answer {
		return p.node.Do(Request{Method: http.MethodDelete, Path: "/v1/kv/" + semaphore + p.session})
	})
	expect.That(t, string(answer.Body) == "true", "delete the contender's key: %v", answer)
	p.node.says(t, "/v1/session/destroy/"+p.session, "")
}

// TestRecipeOfTheSemaphore: limit 3, five contenders at three nodes; one holder dies.
func TestRecipeOfTheSemaphore(t *testing.T) {
	t.Parallel()
	const limit = 3
	c := StartCluster(t, Config{})
	var all []permit
	for i := range 5 {
		all = append(all, contend(t, c.Nodes[i%3]))
	}
	for i, p := range all {
		taken, _, err := p.try(limit)
		need.OK(t, err)
		need.Equal(t, taken, (i < limit), "contender %d of %d: taken is", i+1, len(all))
	}
	fourth := make(chan error, 1)
	go func() { fourth <- all[3].wait(limit) }()
	all[0].release(t)
	need.OK(t, <-fourth)

	fifth := make(chan error, 1)
	go func() { fifth <- all[4].wait(limit) }()
	// The second dies: nobody renews its session. The others are renewed meanwhile.
	for waiting := true; waiting; {
		for _, p := range []permit{all[2], all[3], all[4]} {
			need.Got(p.node.put("/v1/session/renew/"+p.session, ""))(t)
		}
		select {
		case err := <-fifth:
			need.OK(t, err)
			waiting = false
		case <-time.After(time.Second):
		}
	}
	took := time.Since(all[1].began)
	expect.That(t, took >= 2*permitTTL,
		"the dead holder's permit was given away %v after its last sign, before its TTL of %v was over twice", took, permitTTL)
	entries, _, err := c.Nodes[0].keys(semaphore + ".lock")
	need.OK(t, err)
	var lock coordination
	need.OK(t, json.Unmarshal(entries[0].Value, &lock))
	want := []string{all[2].session, all[3].session, all[4].session}
	if slices.Sort(want); !slices.Equal(slices.Sorted(slices.Values(lock.Holders)), want) {
		t.Errorf("holders are %v, want %v", lock.Holders, want)
	}
}

// TestCoordinationNeedsConsensus: in mode ap every route says why there is none.
func TestCoordinationNeedsConsensus(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{AP: true, Nodes: 1})
	for _, r := range []Request{
		{Method: http.MethodPut, Path: "/v1/session/create"},
		{Method: http.MethodGet, Path: "/v1/session/list"},
		{Method: http.MethodPut, Path: "/v1/kv/a"},
		{Method: http.MethodGet, Path: "/v1/kv/a?stale"},
		{Method: http.MethodPut, Path: "/v1/txn", Body: []byte("[]")},
		{Method: http.MethodGet, Path: "/v1/catalog/services"},
		{Method: http.MethodGet, Path: "/v1/health/service/web"},
		{Method: http.MethodPut, Path: "/v1/agent/service/register", Body: []byte(`{"Name":"web"}`)},
		{Method: http.MethodGet, Path: "/v1/status/leader"},
		{Method: http.MethodPost, Path: "/v1/rollcall/sessions"},
		{Method: http.MethodPut, Path: "/v1/rollcall/locks/a?session=x"},
		{Method: http.MethodPut, Path: "/v1/rollcall/semaphores/a?session=x&limit=2"},
		{Method: http.MethodGet, Path: "/v1/rollcall/fence/a?index=1"},
	} {
		answer := c.Nodes[0].Do(r)
		expect.That(t, answer.Status == http.StatusNotImplemented && len(answer.Body) >= 40, "%s %s: %v, want 501 with a sentence", r.Method, r.Path, answer)
	}
}
