package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// TestSessionsAndLockDelaysSurviveALeaderKill and the next test check the same things: nothing that ends at a time may
// end early, or be forgotten, because a leader died or all nodes were started anew.
func TestSessionsAndLockDelaysSurviveALeaderKill(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{})
	testTimesSurvive(t, c, func() {
		leader := c.Leader()
		leader.Kill()
		c.Leader(c.Others(leader)...)
		leader.Start(t)
		leader.WaitReady(t)
	})
}

func TestSessionsAndLockDelaysSurviveARestartOfAllNodes(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{})
	testTimesSurvive(t, c, func() {
		for _, n := range c.Nodes {
			n.Kill()
		}
		for _, n := range c.Nodes {
			n.Start(t)
		}
		c.WaitReady()
	})
}

// Times of the sessions under test.
const (
	silentTTL  = 6 * time.Second
	renewedTTL = 12 * time.Second // longer than two calls that are not answered in time
	longDelay  = 6 * time.Second
)

func testTimesSurvive(t *testing.T, c *Cluster, disturb func()) {
	t.Helper()
	n := c.Nodes[0]
	began := time.Now()
	renewed := shortSession(t, n, renewedTTL, 0)
	stop := keepAlive(t, c, renewed)
	lockDirectly(t, n, "kept", renewed)

	heir := shortSession(t, n, time.Hour, 0)
	silentSince := time.Now()
	silent := shortSession(t, n, silentTTL, 0)
	lockDirectly(t, n, "silent", silent)

	delayed := shortSession(t, n, time.Hour, longDelay)
	lockDirectly(t, n, "delayed", delayed)
	delayedSince := time.Now()
	destroy(t, n, delayed)

	disturb()

	var waits sync.WaitGroup
	for _, w := range []struct {
		key      string
		since    time.Time
		earliest time.Duration
	}{{"silent", silentSince, silentTTL}, {"delayed", delayedSince, longDelay}} {
		waits.Go(func() {
			took := awaitKey(t, c, w.key, heir).Sub(w.since)
			expect.That(t, took >= w.earliest, "key %q was given away after %v, want not before %v", w.key, took, w.earliest)
		})
	}
	waits.Wait()
	Pass(t, time.Until(began.Add(renewedTTL+2*time.Second))) // by then it had ended, had it not been renewed
	lost := stop()
	expect.That(t, lost == nil, "the session that was renewed every second: %v", lost)
	for _, n := range c.Nodes {
		held, _, err := n.keys("kept")
		expect.That(t, err == nil && len(held) == 1 && held[0].Session == renewed,
			"node %s shows %+v, %v; want the key held by the session that was renewed", n.Name, held, err)
	}
	destroy(t, n, renewed)
	destroy(t, n, heir)
}

// shortSession creates a session by Rollcall's own API, which has shorter TTLs than Consul's.
func shortSession(t *testing.T, n *Node, ttl, delay time.Duration) string {
	t.Helper()
	body := fmt.Sprintf(`{"ttl":%q,"lock_delay":%q}`, ttl, delay)
	response := untilNotRefused(func() Response {
		return n.Do(Request{Method: http.MethodPost, Path: "/v1/rollcall/sessions", Body: []byte(body), ContentType: "application/json"})
	})
	var created struct {
		ID string `json:"id"`
	}
	err := json.Unmarshal(response.Body, &created)
	need.That(t, err == nil && response.Status/100 == 2, "create a session: %v", response)
	return created.ID
}

func lockDirectly(t *testing.T, n *Node, key, session string) {
	t.Helper()
	need.That(t, n.putTrue(t, "/v1/kv/"+key+"?acquire="+session, session), "key %q was not acquired", key)
}

func destroy(t *testing.T, n *Node, session string) {
	t.Helper()
	n.putTrue(t, "/v1/session/destroy/"+session, "")
}

// awaitKey has a session acquire a key as soon as it can, and returns when it did.
func awaitKey(t *testing.T, c *Cluster, key, session string) time.Time {
	Eventually(t, ReadyLimit, "key "+key+" is free", func() error {
		said, err := c.Nodes[1].putOK("/v1/kv/"+key+"?acquire="+session, "")
		if err == nil && said != "true" {
			err = errors.New("not yet")
		}
		return err
	})
	return time.Now()
}

// renewAtAll renews a session at all nodes at the same time, so that a node that does not respond delays nothing. It is
// an error if the session was lost.
func renewAtAll(c *Cluster, session string) error {
	answers := make([]Response, len(c.Nodes))
	var calls sync.WaitGroup
	for i, n := range c.Nodes {
		calls.Go(func() { answers[i] = n.Do(Request{Method: http.MethodPut, Path: "/v1/session/renew/" + session}) })
	}
	calls.Wait()
	for i, n := range c.Nodes {
		if answers[i].Status == http.StatusNotFound {
			return fmt.Errorf("node %s: %v", n.Name, answers[i])
		}
	}
	return nil
}

// keepAlive renews a session every second at all nodes, until stop is called, which returns why the session was lost;
// nil: it was not.
func keepAlive(t *testing.T, c *Cluster, session string) (stop func() error) {
	t.Helper()
	end, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			if err := renewAtAll(c, session); err != nil {
				ended <- err
				return
			}
			select {
			case <-tick.C:
			case <-end:
				ended <- nil
				return
			}
		}
	}()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() {
			close(end)
			err = <-ended
		})
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}
