package client

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// listModel is what the servers of one cluster know: the instances, and what changed, in order.
type listModel struct {
	mu          sync.Mutex
	epoch       string
	index       int
	live        map[registry.Key]*registry.Instance
	changes     []listChange // oldest first
	forgottenTo int          // changes up to this index are no longer known
	news        chan struct{}
}

type listChange struct {
	index    int
	action   registry.Action
	instance *registry.Instance
}

func newListModel(epoch string, instances ...*registry.Instance) *listModel {
	l := &listModel{epoch: epoch, live: make(map[registry.Key]*registry.Instance), news: make(chan struct{})}
	l.set(instances...)
	return l
}

func orders(id string, status registry.Status) *registry.Instance {
	return &registry.Instance{InstanceID: id, HostName: id, App: "ORDERS", IPAddr: "10.0.0.1", Status: status, DataCenter: registry.DataCenter{Name: registry.MyOwn}}
}

func billing(id string) *registry.Instance {
	i := orders(id, registry.Up)
	i.App = "BILLING"
	return i
}

func (l *listModel) set(instances ...*registry.Instance) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, i := range instances {
		action := registry.ActionAdded
		if l.live[i.Key()] != nil {
			action = registry.ActionModified
		}
		l.live[i.Key()] = i
		l.change(action, i)
	}
}

func (l *listModel) remove(instances ...*registry.Instance) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, i := range instances {
		delete(l.live, i.Key())
		l.change(registry.ActionDeleted, i)
	}
}

func (l *listModel) change(action registry.Action, i *registry.Instance) {
	l.index++
	l.changes = slices.DeleteFunc(l.changes, func(c listChange) bool { return c.instance.Key() == i.Key() })
	l.changes = append(l.changes, listChange{l.index, action, i})
	close(l.news)
	l.news = make(chan struct{})
}

// restart makes the model that of a cluster that has lost everything.
func (l *listModel) restart(epoch string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epoch, l.index, l.forgottenTo, l.changes = epoch, 0, 0, nil
	clear(l.live)
}

// loseHistory makes every index up to now too old to resume from.
func (l *listModel) loseHistory() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes, l.index = nil, l.index+1
	l.forgottenTo = l.index
}

func (l *listModel) at() string { return fmt.Sprintf("%s-%d", l.epoch, l.index) }

// leases returns the instances as a document has them, sorted.
func (l *listModel) leases(app string) []*registry.Lease {
	var all []*registry.Lease
	for key, i := range l.live {
		if app == "" || key.App == app {
			all = append(all, &registry.Lease{Instance: i, Action: registry.ActionAdded})
		}
	}
	return byApp(all)
}

func byApp(all []*registry.Lease) []*registry.Lease {
	slices.SortStableFunc(all, func(a, b *registry.Lease) int { return strings.Compare(a.Instance.App, b.Instance.App) })
	return all
}

// hash returns the apps__hashcode of the list, computed independently of the code under test.
func (l *listModel) hash() string {
	counts := make(map[string]int)
	for _, i := range l.live {
		counts[i.Status.String()]++
	}
	var text string
	for _, s := range slices.Sorted(slices.Values(registry.StatusWords())) {
		if counts[s] > 0 {
			text += fmt.Sprintf("%s_%d_", s, counts[s])
		}
	}
	return text
}

// words returns what a client's list must be, in the form of words.
func (l *listModel) words(app string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var words []string
	for _, lease := range l.leases(app) {
		words = append(words, word(lease.Instance))
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

func word(i *registry.Instance) string { return i.Key().String() + "=" + i.Status.String() }

// words returns a list as "APP/id=STATUS", sorted.
func words(s *Snapshot) string {
	var all []string
	for i := range s.All() {
		all = append(all, word(i))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// listServer is one server of a cluster: Rollcall, which can be watched, or stock Eureka.
type listServer struct {
	*listModel
	rollcall  bool
	markEvery time.Duration // between two marks of a quiet stream; 0 means 15 s, negative means no marks

	state   sync.Mutex
	faults  map[string]func(*http.Request) (*http.Response, error) // by path; "" means all
	hangups chan struct{}                                          // closed to cut off streams
	// the hash that a delta claims; "" for the true one
	falseHash string
	// when the server was cut off from its cluster; zero if it is not
	isolatedAt time.Time
	// requests since newRequests was called, in the words of wordOf
	asked []string
	times []time.Time // times of asked
}

func newListServer(l *listModel, rollcall bool) *listServer {
	return &listServer{listModel: l, rollcall: rollcall, hangups: make(chan struct{}), faults: make(map[string]func(*http.Request) (*http.Response, error))}
}

// setFault makes response answer requests for a path instead of the server. Nil removes the fault.
func (s *listServer) setFault(path string, response func(*http.Request) (*http.Response, error)) {
	s.state.Lock()
	defer s.state.Unlock()
	s.faults[path] = response
}

func (s *listServer) kill() {
	s.setFault("", fake.Unreachable)
	s.hangUp()
}

func (s *listServer) revive() { s.setFault("", nil) }

func (s *listServer) isolate() {
	s.state.Lock()
	defer s.state.Unlock()
	s.isolatedAt = time.Now()
}

func (s *listServer) behind() time.Duration {
	s.state.Lock()
	defer s.state.Unlock()
	if s.isolatedAt.IsZero() {
		return 0
	}
	return time.Since(s.isolatedAt)
}

func (s *listServer) hangUp() {
	s.state.Lock()
	defer s.state.Unlock()
	close(s.hangups)
	s.hangups = make(chan struct{})
}

func (s *listServer) setFalseHash(hash string) {
	s.state.Lock()
	defer s.state.Unlock()
	s.falseHash = hash
}

// respond is the server: the fault of the path responds, if there is one.
func (s *listServer) respond(r *http.Request) (*http.Response, error) {
	path := strings.TrimPrefix(r.URL.Path, "/eureka")
	s.state.Lock()
	s.asked, s.times = append(s.asked, wordOf(path, r)), append(s.times, time.Now())
	fault, hangups, falseHash := s.faults[""], s.hangups, s.falseHash
	if fault == nil {
		fault = s.faults[path]
	}
	s.state.Unlock()
	if fault != nil {
		return fault(r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch app, one := strings.CutPrefix(path, "/apps/"); {
	case path == "/apps":
		return s.document(eureka.AppendApplications(nil, eureka.Format{}, eureka.FullVersion, s.hash(), slices.Values(s.leases(""))))
	case path == "/apps/delta":
		return s.document(s.delta(cmp.Or(falseHash, s.hash())))
	case one:
		return s.application(app)
	case path == "/v1/rollcall/watch" && s.rollcall:
		return s.stream(r, hangups)
	}
	return fake.Respond(404, "<html>", "Content-Type", "text/html")
}

// wordOf describes a request in a word: full, delta, watch@INDEX or the name of one application.
func wordOf(path string, r *http.Request) string {
	switch path {
	case "/apps":
		return "full"
	case "/apps/delta":
		return "delta"
	case "/v1/rollcall/watch":
		return "watch@" + r.URL.Query().Get("index")
	}
	return strings.TrimPrefix(path, "/apps/")
}

// newRequests returns what the server was asked for since the last call of newRequests, in the words of wordOf, in
// order.
func (s *listServer) newRequests() string {
	s.state.Lock()
	defer s.state.Unlock()
	words := strings.Join(s.asked, " ")
	s.asked, s.times = nil, nil
	return words
}

func (s *listServer) document(text []byte) (*http.Response, error) {
	if s.rollcall {
		return fake.Respond(200, string(text), "X-Rollcall-Index", s.at())
	}
	return fake.Respond(200, string(text))
}

func (s *listServer) delta(hash string) []byte {
	var all []*registry.Lease
	for _, c := range s.changes {
		all = append(all, &registry.Lease{Instance: c.instance, Action: c.action})
	}
	return eureka.AppendApplications(nil, eureka.Format{}, "7", hash, slices.Values(byApp(all)))
}

func (s *listServer) application(app string) (*http.Response, error) {
	leases := s.leases(strings.ToUpper(app))
	resp, err := s.document(eureka.AppendApplication(nil, eureka.Format{}, app, slices.Values(leases)))
	if len(leases) == 0 {
		resp.StatusCode = 404
	}
	return resp, err
}

// stream starts where the request says, with a reset if that is not known.
func (s *listServer) stream(r *http.Request, hangups <-chan struct{}) (*http.Response, error) {
	body := &listStream{server: s, ctx: r.Context(), hangups: hangups, app: r.URL.Query().Get("app")}
	epoch, at, ok := parseIndex(r.URL.Query().Get("index"))
	switch {
	case !ok:
		return fake.Respond(400, `{"error":"the tests watch from an index"}`)
	case epoch == s.epoch && int(at) > s.index:
		return fake.Respond(400, `{"error":"index has not happened yet"}`)
	}
	body.at = int(at)
	body.text = fmt.Sprintf("event: start\nid: %[1]s\ndata: {\"index\":\"%[1]s\"}\n\n", r.URL.Query().Get("index"))
	if epoch != s.epoch || body.at < s.forgottenTo {
		body.at = s.index
		body.text += fmt.Sprintf("event: reset\nid: %[1]s\ndata: {\"reason\":\"fetch everything\",\"index\":\"%[1]s\"}\n\n", s.at())
	}
	resp, err := fake.Respond(200, "", "Content-Type", "text/event-stream")
	resp.Body = io.NopCloser(body)
	return resp, err
}

// listStream is the body of a stream.
type listStream struct {
	server  *listServer
	ctx     context.Context
	hangups <-chan struct{}
	app     string
	at      int
	text    string // not read yet
}

func (b *listStream) Read(p []byte) (int, error) {
	for b.text == "" {
		news := b.next()
		if b.text != "" {
			break
		}
		if err := b.wait(news); err != nil {
			return 0, err
		}
	}
	n := copy(p, b.text)
	b.text = b.text[n:]
	return n, nil
}

func (b *listStream) next() <-chan struct{} {
	s := b.server
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.changes {
		if c.index > b.at && (b.app == "" || c.instance.App == b.app) {
			b.text += changeEvent(s.epoch, c)
		}
	}
	b.at = s.index
	return s.news
}

func (b *listStream) wait(news <-chan struct{}) error {
	markEvery := b.server.markEvery
	if markEvery == 0 {
		markEvery = 15 * time.Second
	}
	var mark <-chan time.Time
	if markEvery > 0 {
		mark = time.After(markEvery)
	}
	select {
	case <-news:
	case <-mark:
		b.text = fmt.Sprintf("id: %s-%d\n: age %.3f\n\n", b.server.epoch, b.at, b.server.behind().Seconds())
	case <-b.hangups:
		return io.ErrUnexpectedEOF
	case <-b.ctx.Done():
		return b.ctx.Err()
	}
	return nil
}

func changeEvent(epoch string, c listChange) string {
	i := c.instance
	text := fmt.Sprintf("event: change\nid: %[1]s-%[2]d\ndata: {\"index\":\"%[1]s-%[2]d\",\"action\":%[3]q,\"why\":\"changed\",\"app\":%[4]q,\"id\":%[5]q,\"status\":%[6]q",
		epoch, c.index, c.action.String(), i.App, i.ID(), i.Status.String())
	if c.action != registry.ActionDeleted { // a removal record has only the name
		text += `,"instance":` + string(eureka.AppendInstance(nil, eureka.Format{}, &registry.Lease{Instance: i, Action: c.action}, registry.Stamp{}))
	}
	return text + "}\n\n"
}

// discover starts a Discovery at servers named a, b and so on, which ends with the test, and waits until it has done
// everything that it does at once.
func discover(t *testing.T, config DiscoveryConfig, at ...*listServer) *Discovery {
	t.Helper()
	d := need.Got(clientOfLists(t, at...).StartDiscovery(config))(t)
	synctest.Wait()
	return d
}

// clientOfLists returns a client of servers named a, b and so on, which ends with the test.
func clientOfLists(t *testing.T, at ...*listServer) *Client {
	t.Helper()
	network := make(fake.Servers)
	var hosts []string
	for i, s := range at {
		host := string(rune('a' + i))
		network[host] = s.respond
		hosts = append(hosts, host)
	}
	c := clientOf(t, network, hosts...)
	t.Cleanup(func() {
		expect.OK(t, c.Close(context.Background()))
	})
	return c
}
