package sim

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// library is a program that works through the Go client, as the command line does. What the client reports of a call
// must be what the servers' responses mean together, and is judged like what other clients are told.
type library struct {
	l      *load
	client *client.Client
	list   *client.Discovery // of what ends
}

// startLibrary creates the client, and makes it keep an instance registered.
func (l *load) startLibrary() {
	w := l.w
	settings := client.Config{HTTPClient: &http.Client{Transport: recorder{w.clients.Transport}}}
	for _, node := range w.Datacenter(1) {
		settings.Servers = append(settings.Servers, "http://"+w.Address(node))
	}
	l.library = &library{l: l, client: need.Got(client.New(settings))(w)}
	w.ends = append(w.ends, func() {
		ctx, cancel := context.WithTimeout(context.Background(), callPatience)
		defer cancel()
		_ = l.library.client.Close(ctx) // its session and lease expire anyway
	})
	kept := &Instance{App: "LIVE", ID: "library", Lease: 3 * shortLease}
	r, err := l.library.client.StartRegistration(client.RegistrationConfig{Instance: registration(kept, 0), Stay: true})
	need.OK(w, err)
	need.OK(w, r.Registered(w.Context()))
	l.kept = append(l.kept, kept)
}

// work makes the client write what others write, too, and contend with itself for a lock.
func (b *library) work() {
	b.l.task(2*time.Second, b.step)
	for range 2 {
		one := &borrower{l: b.l}
		b.l.task(2*time.Second, one.turn)
	}
}

// registration returns the instance that the client registers. Its metadata has number unless that is 0.
func registration(i *Instance, number int) *registry.Instance {
	seconds := int32(i.Lease / time.Second)
	r := &registry.Instance{
		InstanceID: i.ID, App: i.App, HostName: "h", IPAddr: "10.1.1.1", Status: registry.Up, VIP: i.App,
		DataCenter: registry.DataCenter{Name: "MyOwn"}, Duration: seconds, RenewalInterval: max(seconds/3, 1),
	}
	if number != 0 {
		r.Metadata = []registry.Pair{{Key: "n", Value: strconv.Itoa(number)}}
	}
	return r
}

// try holds one request of a call, and the response.
type try struct {
	node string
	Reply
	sent   bool // it had a connection
	resent bool // net/http sent it again, over another connection: the response says nothing about the first
}

// outcome returns what the response means (docs/reference/outcomes.md). A request that got a connection may have
// arrived, even if net/http sent it again over one that was refused.
func (t try) outcome(consul bool) Outcome {
	said := t.Header.Get("X-Rollcall-Outcome")
	switch {
	case t.Status == 0 && t.sent:
		return Unknown
	case t.Status == 0, t.Status == http.StatusNotImplemented, said == "refused",
		consul && t.Status == http.StatusInternalServerError && said == "":
		return Refused
	}
	return t.Reply.Outcome()
}

// callTries records the tries of one call.
type callTries struct {
	mu  sync.Mutex
	all []try
}

type triesKey struct{}

// recorder records the responses to calls whose contexts hold callTries.
type recorder struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (r recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	of, _ := req.Context().Value(triesKey{}).(*callTries)
	if of == nil {
		return r.RoundTripper.RoundTrip(req)
	}
	var sent atomic.Int32
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Add(1) }}
	resp, err := r.RoundTripper.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	got := try{node: req.URL.Hostname()}
	if err == nil {
		var text []byte
		text, err = io.ReadAll(resp.Body)
		resp.Body.Close()
		resp.Body = io.NopCloser(bytes.NewReader(text))
		got.Reply = Reply{Status: resp.StatusCode, Header: resp.Header, Body: string(text)}
	}
	if err != nil {
		resp, got.Reply = nil, Reply{Body: err.Error()}
	}
	got.sent, got.resent = sent.Load() > 0, sent.Load() > 1 && req.Header.Get("Idempotency-Key") != ""
	of.mu.Lock()
	defer of.mu.Unlock()
	of.all = append(of.all, got)
	return resp, err
}

// call makes the client make a call, and compares its result with what the servers said. It also returns the tries.
func (b *library) call(kind string, consul bool, do func(context.Context) error) (Outcome, []try) {
	of, asked := new(callTries), time.Now()
	err := do(context.WithValue(context.Background(), triesKey{}, of))
	is, repeated := Refused, false
	for _, t := range of.all {
		is = t.outcome(consul)
		repeated = repeated || t.resent || is == Unknown
	}
	switch {
	case is == NotFound && repeated && kind == "cancel":
		is = Done // probably by an earlier try
	case is == Refused && repeated:
		is = Unknown
	}
	said := outcomeOf(err)
	b.l.count("library "+kind, said)
	if said != is {
		b.l.w.Errorf("I6 honest: the client calls the %s of %v %v (%v), which is %v by what the servers said: %+v", kind, asked.Sub(began), said, err, is, of.all)
	}
	if said == Unknown {
		time.Sleep(certainWithin)
	}
	return said, of.all
}

// outcomeOf returns what an error of the client means.
func outcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return Done
	case errors.Is(err, client.ErrUnknownOutcome):
		return Unknown
	case errors.Is(err, client.ErrNotRegistered):
		return NotFound
	}
	return Refused
}

// register registers an instance. It also returns the tries.
func (b *library) register(i *Instance, number int) (Outcome, []try) {
	return b.call("register", false, func(ctx context.Context) error { return b.client.Register(ctx, registration(i, number)) })
}

// answered returns the node that responded last.
func (b *library) answered(tries []try) string {
	for _, n := range b.l.w.nodes {
		if len(tries) > 0 && n.ip == tries[len(tries)-1].node {
			return n.Name
		}
	}
	return ""
}

// cancel cancels an instance. If a second try finds none, the first may have canceled it, or there was none.
func (b *library) cancel(i *Instance) (Outcome, []try) {
	o, of := b.call("cancel", false, func(ctx context.Context) error {
		return b.client.Cancel(ctx, registry.Key{App: i.App, ID: i.ID})
	})
	if o == Done && of[len(of)-1].Status == http.StatusNotFound {
		o = Unknown
	}
	return o, of
}

// renew renews an instance that is kept registered, so it must exist.
func (b *library) renew(i *Instance) {
	o, of := b.call("renew", false, func(ctx context.Context) error {
		return b.client.Renew(ctx, registry.Key{App: i.App, ID: i.ID}, 0)
	})
	if o == NotFound {
		i.recordMissing("a renewal by the client at %v: %+v", time.Since(began), of)
	}
}

// write writes a key. A condition that does not hold is NotFound.
func (b *library) write(w client.Write) Outcome {
	var written client.Written
	o, _ := b.call("put", true, func(ctx context.Context) (err error) {
		written, err = b.client.KV().Write(ctx, w)
		return err
	})
	if o == Done && !written.OK {
		return NotFound
	}
	return o
}

// step writes a key or an instance that others write, too, and reads the result.
func (b *library) step() {
	const self = 2 // no other client has this number
	h, kind := b.l.d.histories, []string{"key", "instance"}[b.l.draw(2)]
	on, value := h.current(kind)
	i := &Instance{App: "LINEAR", ID: on.name, Lease: longLease}
	op, tries := operation{do: "put", value: value}, []try(nil)
	do := func() Outcome { return b.write(client.Write{Key: "h/" + on.name, Value: []byte(strconv.Itoa(value))}) }
	switch {
	case on.instance && b.l.draw(3) == 0:
		op.do, do = "cancel", func() (o Outcome) {
			o, tries = b.cancel(i)
			return o
		}
	case on.instance:
		do = func() (o Outcome) {
			o, tries = b.register(i, value)
			return o
		}
	case b.l.draw(2) == 0:
		var index uint64
		seen := h.add(self, on, operation{do: "read"}, func() (r result) {
			r, index = b.l.readKey(on)
			return r
		})
		if seen.outcome != Done && seen.outcome != NotFound {
			return
		}
		op.do, op.expect = "cas", seen.value
		do = func() Outcome {
			return b.write(client.Write{Key: "h/" + on.name, Value: []byte(strconv.Itoa(value)), CAS: &index})
		}
	}
	done := func() result { return result{outcome: do()} }
	if h.add(self, on, op, done).outcome == Done && slices.ContainsFunc(tries, func(t try) bool { return t.outcome(false) == Unknown }) {
		h.repeat(on, value) // the tries of one call may all have taken effect
	}
	h.add(self, on, operation{do: "read"}, func() result { return b.l.read(on) })
}

// borrower holds a lock through the client for a while.
type borrower struct {
	l    *load
	held *client.Held
	hold *hold
	left int // turns for which it still holds the lock
}

// turn acquires the lock, keeps it for a few turns, and releases it.
func (b *borrower) turn() {
	ctx, cancel := context.WithTimeout(context.Background(), callPatience)
	defer cancel()
	if b.held != nil {
		if b.left--; b.left > 0 && b.held.Valid() {
			return
		}
		b.l.until(b.hold, time.Now())
		b.l.count("library release", outcomeOf(b.held.Release(ctx)))
		b.held = nil
		return
	}
	h := &hold{asked: time.Now(), lock: "library"}
	held, err := b.l.library.client.AcquireLock(ctx, client.LockOptions{Name: h.lock, TTL: sessionTTL, LockDelay: time.Second, Try: true})
	b.l.count("library acquire", outcomeOf(err))
	if err != nil {
		return
	}
	h.session, h.token, h.from = held.Session(), uint64(held.Fence().Index), time.Now()
	h.to = h.from.Add(longLease) // until the client says that it is lost
	context.AfterFunc(held.Context(), func() { b.l.until(h, time.Now()) })
	b.held, b.hold, b.left = held, h, 4
	b.l.hold(h)
}
