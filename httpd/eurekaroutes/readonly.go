package eurekaroutes

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/world"
)

// refreshEvery is how old the responses of the read-only cache get: they are built again at its multiples since the
// epoch (upstream: responseCacheUpdateIntervalMs). maxCached bounds their number; a read beyond that bypasses the
// cache.
const (
	refreshEvery = 30 * time.Second
	maxCached    = 4096
)

// readOnly is upstream's read-only response cache, for operators that want its behaviour: a response is built when it
// is first asked for, and then again at every multiple of refreshEvery, so it lags the registry by up to that much,
// and so does the news that an application is unknown. All responses of one refresh are built from one view, but only
// when they are asked for. While there are no requests, nothing runs.
type readOnly struct {
	world     *world.World
	began     time.Time
	service   registry.Service
	built     func(kind string, f eureka.Format)
	refreshed atomic.Pointer[moment] // the last refresh; nil before the first

	mu        sync.Mutex // guards the fields below
	responses map[responseKey]*cachedResponse
	ticking   bool // a refresh is due
}

// moment is what this node had at a time, and how old that was then.
type moment struct {
	view *registry.View
	at   time.Time
	age  time.Duration
}

// responseKey names a response: what was asked for, and its form.
type responseKey struct {
	entity entity
	name   string // of the application or the address
	rep    representation
}

// entity is a subject of upstream's cached responses.
type entity uint8

const (
	allApps entity = iota
	allAppsDelta
	oneApp
	oneVIP
	oneSecureVIP
)

// entities are their names in the metrics, and the variables of their routes.
var entities = [...]struct{ name, variable string }{
	allApps: {"full", ""}, allAppsDelta: {"delta", ""}, oneApp: {"application", "app"}, oneVIP: {"vip", "vip"}, oneSecureVIP: {"svip", "svip"},
}

// cachedResponse is the response to one key.
type cachedResponse struct {
	used      atomic.Int64 // when it was last asked for, ms since began
	keptBytes atomic.Int64 // bytes kept

	mu   sync.Mutex // guards the fields below
	made builtResponse
}

// builtResponse is a response and its source. It is never changed.
type builtResponse struct {
	version version
	at      time.Time     // the moment that it reflects; zero before the first build
	age     time.Duration // of the node's registry at that moment
	found   bool          // false for a 404
	body    []byte
	packed  bool // body is a gzip stream
}

// version distinguishes two responses to one key.
type version struct {
	epoch string
	index registry.Index
	step  int64 // of the delta
}

// cached puts the read-only cache, if there is one, in front of an endpoint. A request that says how fresh its
// response must be bypasses it.
func cached(e entity, fresh endpoint) endpoint {
	return func(c call) (any, error) {
		if c.readOnly == nil || c.Service.Health().Unheard {
			return fresh(c)
		}
		if _, asked := c.Consistency(); asked || c.Err != nil {
			return fresh(c)
		}
		key := responseKey{entity: e, rep: c.representation()}
		if variable := entities[e].variable; variable != "" {
			key.name = c.Segment(variable)
		}
		if e == oneApp {
			key.name = strings.ToUpper(key.name)
		}
		made, ok := c.readOnly.get(key)
		if !ok {
			return fresh(c)
		}
		return web.Sent, made.send(c.W, key.rep)
	}
}

// send sends the response, and says how old it is.
func (m builtResponse) send(w http.ResponseWriter, rep representation) error {
	web.LabelFreshness(w.Header(), web.FormatIndex(m.version.epoch, m.version.index), registry.Stale, m.age+time.Since(m.at))
	if !m.found {
		return web.NotFound
	}
	rep.gzip = m.packed
	respondReady(w, rep, int64(len(m.body)), m.body)
	return nil
}

// get returns the response to a key as of the last refresh, or as of its first use if that was later. ok is false if
// the cache is full.
func (c *readOnly) get(key responseKey) (made builtResponse, ok bool) {
	now := time.Now()
	a := c.response(key, now)
	if a == nil {
		return builtResponse{}, false
	}
	a.used.Store(now.Sub(c.began).Milliseconds())
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.made.at.IsZero() {
		a.made = c.renew(a.made, key, c.now())
	} else if m := c.refreshed.Load(); m != nil && m.at.After(a.made.at) {
		a.made = c.renew(a.made, key, m)
	}
	a.keptBytes.Store(int64(len(a.made.body)))
	return a.made, true
}

// response finds or adds the response to a key, or returns nil if there are too many.
func (c *readOnly) response(key responseKey, now time.Time) *cachedResponse {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.responses[key]; a != nil || len(c.responses) >= maxCached {
		return a
	}
	a := new(cachedResponse)
	a.used.Store(now.Sub(c.began).Milliseconds())
	c.responses[key] = a
	if !c.ticking {
		c.schedule(now)
	}
	return a
}

// schedule makes the next multiple of refreshEvery a refresh. The caller holds mu.
func (c *readOnly) schedule(now time.Time) {
	c.ticking = true
	time.AfterFunc(refreshEvery-time.Duration(c.world.Wall(now).UnixNano())%refreshEvery, c.refresh)
}

// refresh takes a new view, and drops the responses that no request asks for any more.
func (c *readOnly) refresh() {
	m := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, a := range c.responses {
		if m.at.Sub(c.began).Milliseconds()-a.used.Load() >= keepUnused.Milliseconds() {
			delete(c.responses, key)
		}
	}
	if c.ticking = len(c.responses) > 0; !c.ticking {
		c.refreshed.Store(nil) // it would keep an old registry in memory
		return
	}
	c.refreshed.Store(m)
	c.schedule(m.at)
}

// now returns what this node has, up to date or not. Its age is read first, so that a response is never older than it
// says.
func (c *readOnly) now() *moment {
	m := &moment{at: time.Now(), age: c.service.Health().Age}
	m.view = web.StaleView(c.service)
	return m
}

// renew returns the response to key as of m. It only builds it again if it has changed since the old one.
func (c *readOnly) renew(old builtResponse, key responseKey, m *moment) builtResponse {
	made := builtResponse{at: m.at, age: m.age, version: version{epoch: m.view.Epoch(), index: m.view.Index()}}
	if key.entity == allAppsDelta {
		made.version.step = m.view.DeltaStep()
	}
	if !old.at.IsZero() && old.version == made.version {
		made.found, made.body, made.packed = old.found, old.body, old.packed
		return made
	}
	c.built(entities[key.entity].name, key.rep.format)
	made.body, made.found = encode(m.view, key)
	if key.rep.gzip && len(made.body) > web.MinCompressed {
		made.body, made.packed = web.Compress(made.body), true
	}
	return made
}

// encode makes the response to key, or returns false if the application does not exist.
func encode(v *registry.View, key responseKey) ([]byte, bool) {
	f := key.rep.format
	switch key.entity {
	case allApps:
		return eureka.AppendApplications(nil, f, eureka.FullVersion, v.Counts().HashCode(), v.Leases()), true
	case allAppsDelta:
		return eureka.AppendDelta(nil, f, v.Delta()), true
	case oneVIP:
		return eureka.AppendVIP(nil, f, v.ByVIP(key.name)), true
	case oneSecureVIP:
		return eureka.AppendVIP(nil, f, v.BySecureVIP(key.name)), true
	}
	app, ok := v.App(key.name)
	if !ok {
		return nil, false
	}
	return eureka.AppendApplication(nil, f, app.Name, app.Leases()), true
}

// bytes returns the size of everything kept.
func (c *readOnly) bytes() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var n int64
	for _, a := range c.responses {
		n += a.keptBytes.Load()
	}
	return float64(n)
}

// len returns how many responses are kept.
func (c *readOnly) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.responses)
}
