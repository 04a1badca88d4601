package observe

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-20419f34/rollcall/client"
)

// patience is for how long a node may keep a question: until its answer begins, and again until that ends. A node that
// is paused is not asked for much longer than it is paused.
const patience = time.Second

// newHTTP is a client that keeps its connections, and takes answers as they are: to compress them costs the servers,
// and this process, more than to send them over loopback.
func newHTTP() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableCompression:  true,
		MaxIdleConnsPerHost: 32,
		ReadBufferSize:      64 << 10,
	}}
}

// asker asks one node for documents. One goroutine uses it.
type asker struct {
	http *http.Client
	addr string
	body bytes.Buffer
}

// answer is what a node said.
type answer struct {
	status int
	body   []byte    // valid until the next question
	begun  time.Time // its first bytes
}

// get asks for a document.
func (a *asker) get(ctx context.Context, path string) (answer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	limit := time.AfterFunc(patience, cancel)
	defer limit.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.addr+path, nil)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := a.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	limit.Reset(patience)
	begun := time.Now()
	a.body.Reset()
	if _, err := a.body.ReadFrom(resp.Body); err != nil {
		return answer{}, fmt.Errorf("read %s of %s: %w", path, a.addr, err)
	}
	return answer{status: resp.StatusCode, body: a.body.Bytes(), begun: begun}, nil
}

// find is get for a document that is of use only if it is there.
func (a *asker) find(ctx context.Context, path string) (answer, error) {
	answer, err := a.get(ctx, path)
	if err == nil && answer.status != http.StatusOK {
		err = fmt.Errorf("%s of %s: status %d", path, a.addr, answer.status)
	}
	return answer, err
}

// asker returns one for a node.
func (o *Observer) asker(node int) *asker {
	return &asker{http: o.http, addr: o.config.Nodes[node]}
}

// newClient is a client of some servers.
func newClient(h *http.Client, timeout time.Duration, servers ...string) *client.Client {
	c, err := client.New(client.Config{Servers: servers, HTTPClient: h, Timeout: timeout})
	if err != nil {
		panic(err) // whoever started the servers gave a wrong address
	}
	return c
}

// repeat calls do again and again until ctx ends, every so often, but never sooner than the pause that it asks for.
// Calls that could not begin in time are left out.
func repeat(ctx context.Context, every time.Duration, do func() (pause time.Duration)) {
	for due := time.Now(); ; {
		pause := do()
		due = due.Add(every)
		if earliest := time.Now().Add(pause); due.Before(earliest) {
			due = earliest
		}
		if !wait(ctx, time.Until(due)) {
			return
		}
	}
}

// wait reports whether the time passed before ctx ended.
func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
