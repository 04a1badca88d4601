package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// Reply is a node's response.
type Reply struct {
	Status int // 0 if there was none
	Header http.Header
	Body   string // or why there is no response
	Took   time.Duration
}

// String shows the status and the body.
func (r Reply) String() string { return fmt.Sprintf("%d %s", r.Status, strings.TrimSpace(r.Body)) }

func (r Reply) decode(to any) bool {
	return r.Status == http.StatusOK && json.Unmarshal([]byte(r.Body), to) == nil
}

// Call sends a request to a node, as a client that waits for 10 s. Each header is `Name: value`.
func (w *World) Call(node, method, path, body string, headers ...string) Reply {
	w.Helper()
	return w.call(node, 10*time.Second, method, path, body, headers...)
}

// call is Call for a client with the given patience.
func (w *World) call(node string, patience time.Duration, method, path, body string, headers ...string) Reply {
	w.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req := need.Got(http.NewRequestWithContext(ctx, method, "http://"+w.Node(node).ip+":8761"+path, strings.NewReader(body)))(w)
	req.Header.Set("Accept", "application/json")
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := w.clients.Do(req)
	if err != nil {
		return Reply{Body: err.Error(), Took: time.Since(began)}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return Reply{Body: err.Error(), Took: time.Since(began)}
	}
	return Reply{Status: resp.StatusCode, Header: resp.Header, Body: string(text), Took: time.Since(began)}
}

// Instance is one that a scenario has registered.
type Instance struct {
	App, ID string
	Lease   time.Duration

	dc      int       // whose nodes its client uses; 0 means the first
	at      int       // the position of the one used last
	renewed time.Time // when its last renewal, or registration, was acknowledged

	mu      sync.Mutex
	missing []string // responses that it does not exist, though it was renewed on time
}

func (i *Instance) path() string { return "/eureka/apps/" + i.App + "/" + i.ID }

// newInstance returns an instance by "APP/id".
func (w *World) newInstance(name string, lease time.Duration) *Instance {
	w.Helper()
	app, id, ok := strings.Cut(name, "/")
	need.That(w, ok && lease >= time.Second, "instance %q with a lease of %v: it must be APP/id, with 1 s at least", name, lease)
	return &Instance{App: app, ID: id, Lease: lease}
}

func (i *Instance) document() string {
	seconds := int(i.Lease / time.Second)
	return fmt.Sprintf(`{"instance":{"instanceId":%q,"app":%q,"hostName":"h","ipAddr":"10.1.1.1","status":"UP","lastDirtyTimestamp":"%d",`+
		`"dataCenterInfo":{"@class":"com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo","name":"MyOwn"},`+
		`"leaseInfo":{"durationInSecs":%d,"renewalIntervalInSecs":%d}}}`, i.ID, i.App, time.Now().UnixMilli(), seconds, max(seconds/3, 1))
}

// patient is how long clients try a call at one node after the other.
const patient = 15 * time.Second

// tryPatience is how long an instance's client waits for one node. So a lease may have begun that long before the
// response.
const tryPatience = 2 * time.Second

// send sends a call of an instance's client, and moves to the next node after each failure, as stock clients do.
func (w *World) send(i *Instance, method, path, body string) Reply {
	w.Helper()
	var r Reply
	for until := time.Now().Add(patient); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		node := w.nodes[max(i.dc-1, 0)*w.cluster.Nodes+i.at].Name
		if r = w.call(node, tryPatience, method, path, body); r.Status != 0 && r.Status < 500 {
			return r
		}
		i.at = (i.at + 1) % w.cluster.Nodes
	}
	return r
}

// Register registers an instance by "APP/id" whose client does not renew it.
func (w *World) Register(name string, lease time.Duration) *Instance {
	w.Helper()
	i := w.newInstance(name, lease)
	w.register(i)
	return i
}

func (w *World) register(i *Instance) {
	w.Helper()
	r := w.send(i, "POST", "/eureka/apps/"+i.App, i.document())
	need.That(w, r.Status == http.StatusNoContent, "register %s/%s: %v", i.App, i.ID, r)
	i.renewed = time.Now()
}

// Keep registers an instance whose client renews it three times in its lease, and registers it again when it gets a
// 404, as stock clients do. Meanwhile readers read it at every node: NeverGone checks what they found.
func (w *World) Keep(name string, lease time.Duration) *Instance {
	w.Helper()
	i := w.newInstance(name, lease)
	w.keep(i, true)
	w.beside(250*time.Millisecond, func() {
		for _, n := range w.nodes[:w.cluster.Nodes] {
			if r := w.call(n.Name, time.Second, "GET", i.path(), ""); r.Status == http.StatusNotFound {
				i.recordMissing("%s says at %v: %v", n.Name, time.Since(began), r)
			}
		}
	})
	return i
}

// keep is Keep without readers. Without consensus a node that was cut off may deny an instance: then strict is false.
func (w *World) keep(i *Instance, strict bool) {
	w.Helper()
	w.register(i)
	w.beside(i.Lease/3, func() {
		if r := w.send(i, "PUT", i.path(), ""); r.Status == http.StatusNotFound {
			if strict {
				i.recordMissing("a renewal after %v says %v", time.Since(i.renewed), r)
			}
			w.send(i, "POST", "/eureka/apps/"+i.App, i.document())
		}
		i.renewed = time.Now()
	})
}

func (i *Instance) recordMissing(format string, args ...any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.missing = append(i.missing, fmt.Sprintf(format, args...))
}

// beside calls do at an interval, until end is called or the scenario ends.
func (w *World) beside(every time.Duration, do func()) (end func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				do()
			case <-stop:
				return
			}
		}
	}()
	end = sync.OnceFunc(func() {
		close(stop)
		<-stopped
	})
	w.ends = append(w.ends, end)
	return end
}

// NeverGone checks that no node has ever denied a kept instance.
func (w *World) NeverGone(i *Instance) {
	w.Helper()
	if missing := i.gone(); len(missing) > 0 {
		w.Errorf("%s/%s was renewed on time, and was gone %d times, first: %s", i.App, i.ID, len(missing), missing[0])
	}
}

// gone returns the responses that say the instance does not exist.
func (i *Instance) gone() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.missing)
}

// GoneBy checks that an instance that is not renewed ends after its lease, at every node, and within a bound after
// its last renewal. It returns how long that took.
func (w *World) GoneBy(i *Instance, bound time.Duration) time.Duration {
	w.Helper()
	for {
		gone := 0
		for _, n := range w.nodes {
			if !n.alive() || w.Call(n.Name, "GET", i.path(), "").Status == http.StatusNotFound {
				gone++
			}
		}
		switch took := time.Since(i.renewed); {
		case gone == len(w.nodes) && took < i.Lease:
			w.Errorf("%s/%s was gone %v after its last renewal, before the end of its lease of %v", i.App, i.ID, took, i.Lease)
			return took
		case gone == len(w.nodes):
			return took
		case took > bound:
			w.Errorf("%s/%s is still there %v after its last renewal, at %d of %d nodes; the bound is %v", i.App, i.ID, took, len(w.nodes)-gone, len(w.nodes), bound)
			return took
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Outcome is what a client knows, after a call, about the operation that it asked for.
type Outcome int

// Outcomes of a call. Only Unknown leaves open whether the operation took effect.
const (
	Done Outcome = iota
	NotFound
	Refused
	Unknown
)

// String names the outcome.
func (o Outcome) String() string { return [...]string{"done", "not found", "refused", "unknown"}[o] }

// Outcome returns what a reply to a write means. A call without a reply may have arrived.
func (r Reply) Outcome() Outcome {
	switch {
	case r.Status/100 == 2:
		return Done
	case r.Status == http.StatusNotFound:
		return NotFound
	case r.Status == 0 && strings.HasSuffix(r.Body, syscall.ECONNREFUSED.Error()), r.Status/100 == 4,
		r.Status == http.StatusServiceUnavailable, r.Status == http.StatusInsufficientStorage,
		r.Status == http.StatusInternalServerError && strings.HasPrefix(r.Body, "No cluster leader"):
		return Refused
	}
	return Unknown
}

// Registration returns the document of a registration, as a Java client sends it.
func Registration(app, id string, lease time.Duration, metadata map[string]string) string {
	seconds := lease / time.Second
	text, err := json.Marshal(map[string]any{"instance": map[string]any{
		"instanceId": id, "app": app, "hostName": "h", "ipAddr": "10.1.1.1", "status": "UP", "vipAddress": app,
		"dataCenterInfo": map[string]any{"@class": "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo", "name": "MyOwn"},
		"leaseInfo":      map[string]any{"durationInSecs": seconds, "renewalIntervalInSecs": max(seconds/3, 1)},
		"metadata":       metadata,
	}})
	if err != nil {
		panic(err) // strings and numbers can be encoded
	}
	return string(text)
}

// Listed is an instance in a list.
type Listed struct {
	ID       string            `json:"instanceId"`
	Status   string            `json:"status"`
	Metadata map[string]string `json:"metadata"`
}

// ListOf decodes a list of applications: instances by id.
func ListOf(r Reply) (map[string]Listed, error) {
	var doc struct {
		Applications struct {
			Application []struct{ Instance []Listed }
		}
	}
	if err := json.Unmarshal([]byte(r.Body), &doc); err != nil {
		return nil, fmt.Errorf("%v: %w", r, err)
	}
	all := map[string]Listed{}
	for _, app := range doc.Applications.Application {
		for _, i := range app.Instance {
			all[i.ID] = i
		}
	}
	return all, nil
}

// NumberOf decodes the number n in the metadata of an instance.
func NumberOf(r Reply) (int, error) {
	var doc struct{ Instance Listed }
	if err := json.Unmarshal([]byte(r.Body), &doc); err != nil {
		return 0, fmt.Errorf("%v: %w", r, err)
	}
	return strconv.Atoi(doc.Instance.Metadata["n"])
}

// Pair is a key as Consul's API shows it.
type Pair struct {
	Key         string
	Value       []byte
	Session     string
	LockIndex   uint64
	ModifyIndex uint64
}
