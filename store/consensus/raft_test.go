package consensus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/world"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/membership"
	"github.com/seed-20419f34/rollcall/store/consensus/raftio"
	"github.com/seed-20419f34/rollcall/store/disk"
)

func TestMain(m *testing.M) {
	// When Raft shuts down, it drops what is on its way to the state machine, and those futures never end: their
	// callers wait forever (raft.go, runFSM). Callers of this package get their results all the same.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/raft.(*deferError).Error"))
}

// limit is how much virtual time a test waits for something that takes seconds.
const limit = 2 * time.Minute

// testCluster is a cluster of nodes in this process.
type testCluster struct {
	t     testing.TB
	dir   string
	nodes []*testNode
	tune  func(*store.Config)
}

type testNode struct {
	*Raft
	cfg  store.Config
	stop context.CancelFunc
	done chan error
}

// startCluster starts n nodes that found a cluster, and waits until all are ready.
func startCluster(t testing.TB, n int, tune func(*store.Config)) *testCluster {
	t.Helper()
	c := &testCluster{t: t, dir: t.TempDir(), tune: tune}
	var join []string
	for range n {
		join = append(join, freeAddr(t))
	}
	for i := range n {
		c.nodes = append(c.nodes, c.open(i, join, n))
	}
	t.Cleanup(c.stopAll)
	for i := range c.nodes {
		c.waitReady(i)
	}
	return c
}

// inCluster runs a test in virtual time with a cluster of n nodes.
func inCluster(t *testing.T, n int, tune func(*store.Config), do func(t *testing.T, c *testCluster)) {
	t.Helper()
	inBubble(t, func(t *testing.T) { do(t, startCluster(t, n, tune)) })
}

func (c *testCluster) open(i int, join []string, expect int) *testNode {
	c.t.Helper()
	return c.start(c.config(i, join, expect))
}

// config returns the configuration of node i, whose cluster.join has the given addresses.
func (c *testCluster) config(i int, join []string, expect int) store.Config {
	cfg := store.Config{
		Node: fmt.Sprintf("n%d", i+1), DataDir: filepath.Join(c.dir, fmt.Sprintf("n%d", i+1)),
		ClusterAddr: join[i], Join: join, BootstrapExpect: expect,
		EvictionInterval: 100 * time.Millisecond, World: &world.World{Network: around},
		Log: slog.New(slog.NewTextHandler(outputOf(c.t), nil)).With("on", fmt.Sprintf("n%d", i+1)),
	}
	if c.tune != nil {
		c.tune(&cfg)
	}
	return cfg
}

// output writes to a test's log, and discards what comes after the test: Raft's connections still log after their
// node has ended.
type output struct {
	mu sync.Mutex
	w  io.Writer
}

func outputOf(t testing.TB) io.Writer {
	o := &output{w: t.Output()}
	t.Cleanup(func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.w = io.Discard
	})
	return o
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.w.Write(b)
}

func (c *testCluster) start(cfg store.Config) *testNode {
	c.t.Helper()
	n := c.prepare(cfg)
	n.run()
	return n
}

// prepare opens a node that does nothing yet.
func (c *testCluster) prepare(cfg store.Config) *testNode {
	c.t.Helper()
	s, err := Open(cfg)
	need.OKf(c.t, err, "open %s", cfg.Node)
	return &testNode{Raft: s, cfg: cfg, done: make(chan error, 1)}
}

func (n *testNode) run() {
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	go func() { n.done <- n.Run(ctx) }()
}

func (n *testNode) halt() error {
	n.stop()
	err := <-n.done
	n.done <- err
	return err
}

func (c *testCluster) stopAll() {
	var all sync.WaitGroup
	for _, n := range c.nodes {
		all.Go(func() {
			if err := n.halt(); err != nil {
				c.t.Errorf("stop %s: %v", n.cfg.Node, err)
			}
		})
	}
	all.Wait()
}

func (c *testCluster) waitReady(i int) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("node %d is ready", i+1), func() bool { return c.nodes[i].Health().Ready })
}

func (c *testCluster) leader() int {
	c.t.Helper()
	at := -1
	eventually(c.t, "a node leads", func() bool {
		for i, n := range c.nodes {
			if n.Health().Leads {
				at = i
				return true
			}
		}
		return false
	})
	return at
}

func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	end := time.Now().Add(limit)
	for !cond() {
		need.That(t, !time.Now().After(end), "waited %v until %s", limit, what)
		time.Sleep(20 * time.Millisecond)
	}
}

func instance(app, id string, duration int32) *registry.Instance {
	return &registry.Instance{
		InstanceID: id, App: app, HostName: id + ".example", IPAddr: "10.0.0.1", Status: registry.Up,
		DataCenter: registry.DataCenter{Name: registry.MyOwn}, RenewalInterval: 1, Duration: duration,
	}
}

func (n *testNode) apply(t *testing.T, op registry.Op) registry.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	res, err := n.Apply(ctx, registry.FromClient, op)
	need.OKf(t, err, "%s: apply %T", n.cfg.Node, op)
	return res[0]
}

func (n *testNode) read(t *testing.T, read registry.Consistency) *registry.View {
	t.Helper()
	v, err := n.View(context.Background(), read)
	need.OKf(t, err, "%s: %v read", n.cfg.Node, read)
	return v
}

// As after a start with a long log, Raft takes nothing for longer than an entry waits for its place.
func TestALeaderWhoseRaftTakesNothingForAWhileLeadsInTheEnd(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *testCluster) {
		need.OK(t, c.nodes[0].halt())
		cfg := c.nodes[0].cfg
		cfg.Test.SyncDelay = time.Second * 11 / 10
		c.nodes[0] = c.start(cfg)
		c.waitReady(0)
	})
}

// few is how many entries a cluster may write for itself during a hundred requests.
const few = 20

func TestRenewalsOfUnknownLeasesLeaveTheLogAlone(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *testCluster) {
		n := c.nodes[0]
		ctx := context.Background()
		before := n.raft.LastIndex()
		for i := range 100 {
			key := registry.NewKey("A", fmt.Sprintf("i%d", i))
			for _, origin := range []registry.Origin{registry.FromClient, registry.FromEureka} {
				results, err := n.Apply(ctx, origin, registry.Renew{Key: key, LastDirty: 1}, registry.Renew{Key: key, Overridden: registry.Down})
				need.That(t, err == nil && results[0].Outcome == registry.NotFound && results[1].Outcome == registry.NotFound,
					"renewals from %v: %+v, %v, want NotFound", origin, results, err)
			}
			results, err := n.Coordination().Apply(ctx, kv.RenewSession{ID: fmt.Sprintf("s%d", i)})
			need.That(t, err == nil && !results[0].OK, "renewal of a session: %+v, %v, want none", results, err)
		}
		grown := n.raft.LastIndex() - before
		expect.That(t, grown <= few, "the log grew by %d entries", grown)
	})
}

func TestRenewalsOfClientsMayWaitForAPartOfTheTimeOfTheirConnection(t *testing.T) {
	inCluster(t, 1, func(cfg *store.Config) { cfg.RenewalWait = 50 * time.Millisecond }, func(t *testing.T, c *testCluster) {
		n := c.nodes[0]
		n.apply(t, registry.Register{Instance: instance("A", "i", 90)})
		renew := func(ctx context.Context, origin registry.Origin) time.Duration {
			came := time.Now()
			results, err := n.Apply(ctx, origin, registry.Renew{Key: registry.NewKey("A", "i")})
			need.That(t, err == nil && results[0].Outcome == registry.Done, "renew: %+v, %v", results, err)
			return time.Since(came)
		}
		ctx := registry.OnLine(t.Context())
		need.Got(n.Apply(ctx, registry.FromClient, registry.Register{Instance: instance("A", "j", 90)}))(t)
		renew(ctx, registry.FromEureka)
		expect.That(t, registry.LineOf(ctx).MayWait(time.Now()), "a registration, or what another server sent, waited as a client's renewal")

		ctx = registry.OnLine(t.Context())
		came := time.Now()
		took := renew(ctx, registry.FromClient)
		expect.Equal(t, registry.LineOf(ctx).MayWait(came), false, "right after one that may have waited, another may wait:")
		expect.Equal(t, registry.LineOf(ctx).MayWait(time.Now().Add(10*took)), true, "after ten times as long, another may wait:")
	})
}

// A node that lags must not mistake what it does not know for what does not exist.
func TestRenewalIsFoundByANodeThatHasNotAppliedTheRegistration(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *testCluster) {
		ctx := context.Background()
		for i := range 30 {
			id := fmt.Sprintf("i%d", i)
			by, at := c.nodes[i%3], c.nodes[(i+1)%3]
			by.apply(t, registry.Register{Instance: instance("A", id, 90)})
			absent := registry.Renew{Key: registry.NewKey("A", "absent")}
			results, err := at.Apply(ctx, registry.FromClient, absent, registry.Renew{Key: registry.NewKey("A", id)})
			need.That(t, err == nil && results[0].Outcome == registry.NotFound && results[1].Outcome == registry.Done,
				"%s: %+v, %v, want NotFound and Done", id, results, err)
			created, err := by.Coordination().Apply(ctx, kv.CreateSession{ID: id})
			need.That(t, err == nil && created[0].OK, "session %s: %+v, %v", id, created, err)
			if renewed, err := at.Coordination().Apply(ctx, kv.RenewSession{ID: id}); err != nil || !renewed[0].OK {
				t.Fatalf("session %s: %+v, %v, want it renewed", id, renewed, err)
			}
		}
	})
}

// Another Rollcall server's renewal names a life, and is compared with the cancel where the log is applied.
func TestARenewalAfterACancelIsCommittedIfItNamesALife(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *testCluster) {
		n := c.nodes[0]
		key := registry.NewKey("A", "i0")
		n.apply(t, registry.Register{Instance: instance("A", "i0", 90)})
		n.apply(t, registry.Cancel{Key: key})
		expect.That(t, !n.machine.Ignores(registry.Renew{Key: key, Life: 9}), "a renewal of another Rollcall server would not be committed")
		expect.That(t, n.machine.Ignores(registry.Renew{Key: key}), "a renewal of a client or a Eureka server would be committed")
	})
}

func TestDamagedSnapshotIsNamed(t *testing.T) {
	inCluster(t, 1, func(cfg *store.Config) { cfg.TrailingLogs = 1 }, func(t *testing.T, c *testCluster) {
		n := c.nodes[0]
		for i := range 10 {
			n.apply(t, registry.Register{Instance: instance("A", fmt.Sprint(i), 90)})
		}
		if err := n.halt(); err != nil { // which saves a snapshot
			t.Fatal(err)
		}
		dirs, err := filepath.Glob(filepath.Join(n.cfg.DataDir, disk.RaftDir, "snapshots", "*"))
		need.That(t, err == nil && len(dirs) == 1, "snapshots %q, %v, want one", dirs, err)
		state, meta := filepath.Join(dirs[0], "state.bin"), filepath.Join(dirs[0], "meta.json")
		for _, tt := range []struct {
			name, file, names string
			change            func([]byte) []byte
		}{
			{"a flipped bit", state, dirs[0], func(b []byte) []byte { b[len(b)/2] ^= 4; return b }},
			{"cut short", state, dirs[0], func(b []byte) []byte { return b[:len(b)/2] }},
			{"no description", meta, meta, nil},
			{"a description that is cut short", meta, meta, func(b []byte) []byte { return b[:len(b)/2] }},
		} {
			whole, err := os.ReadFile(tt.file)
			need.OK(t, err)
			if tt.change == nil {
				err = os.Remove(tt.file)
			} else {
				err = os.WriteFile(tt.file, tt.change(append([]byte(nil), whole...)), 0o600)
			}
			need.OK(t, err)
			s, err := Open(n.cfg)
			if err == nil {
				s.close()
			}
			expect.That(t, errors.Is(err, disk.ErrDamaged) && strings.Contains(err.Error(), tt.names) && strings.Contains(err.Error(), "empty data directory"),
				"%s: got %v, want an error that names %s and says what to do", tt.name, err, tt.names)
			need.OK(t, os.WriteFile(tt.file, whole, 0o600))
		}
	})
}

// An operator who reads "damaged" throws good data away.
func TestASnapshotThatMayNotBeReadIsNotCalledDamaged(t *testing.T) {
	err := raftio.ExplainLoad(t.TempDir(), fmt.Errorf("2-10-1: %w", syscall.EACCES), errors.New("failed to load any existing snapshots"))
	expect.That(t, !errors.Is(err, disk.ErrDamaged) && strings.Contains(err.Error(), "2-10-1") && !strings.Contains(err.Error(), "empty data directory"),
		"got %v, want an error that names the snapshot and takes it for whole", err)
}

// awaited is the result of a call of Changes.
type awaited struct {
	changes registry.Changes
	err     error
}

// await calls Changes on a node, starting at the node's current index.
func (n *testNode) await(t *testing.T, app string) <-chan awaited {
	t.Helper()
	after := n.read(t, registry.Linearizable).Index()
	done := make(chan awaited, 1)
	go func() {
		changes, err := n.Changes(context.Background(), after, registry.Selector{App: app})
		done <- awaited{changes, err}
	}()
	return done
}

func receive(t *testing.T, done <-chan awaited) awaited {
	t.Helper()
	select {
	case got := <-done:
		return got
	case <-time.After(limit):
		t.Fatal("no reader was woken")
		return awaited{}
	}
}

func TestChangesEndWithErrClosedWhenTheNodeStops(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *testCluster) {
		done := c.nodes[0].await(t, "")
		need.OK(t, c.nodes[0].halt())
		got := receive(t, done)
		expect.That(t, errors.Is(got.err, registry.ErrClosed), "got %+v, want ErrClosed", got)
	})
}

func TestAgeOfANodeThatDoesNotKnowTheLogsEndComesFromItsNewestEntry(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *testCluster) {
		c.nodes[0].apply(t, registry.Register{Instance: instance("A", "i", 600)})
		c.stopAll()
		alone := c.start(c.nodes[0].cfg)
		c.nodes[0] = alone
		asked := time.Now()
		age, newest := alone.Health().Age, time.UnixMilli(alone.read(t, registry.Stale).Stamp().Wall)
		expect.That(t, age >= asked.Sub(newest), "age %v, but its newest entry is of %v ago", age, asked.Sub(newest))
	})
}

func TestAgeOfANodeThatHasAppliedNothingIsGreat(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &testCluster{t: t, dir: t.TempDir()}
		t.Cleanup(c.stopAll)
		c.nodes = append(c.nodes, c.open(0, []string{freeAddr(t), freeAddr(t), freeAddr(t)}, 3))
		age := c.nodes[0].Health().Age
		expect.That(t, age > 24*time.Hour, "the age of a state without an entry is %v, want that it is not known", age)
	})
}

// Otherwise what fails at once would be asked for as fast as the processor allows, also at the leader.
func TestRetryPausesBetweenItsAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		const most = 2 * int(time.Second/store.RetryPause)
		tries := 0
		done := retry(ctx, &membership.LeaderState{}, func(context.Context) error {
			if tries++; tries > most {
				stop() // time stands still in a bubble that is busy
			}
			return errors.New("refused")
		})
		expect.That(t, !done && tries >= 2 && tries <= most, "it tried %d times in a second (done: %v), want at most %d", tries, done, most)
	})
}

// inBubble runs a test in virtual time, with a network of its own. Time starts in 2027: the formats have no hour
// before 2026 (ADR 26).
func inBubble(t *testing.T, do func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		around = &network{listeners: map[string]*listener{}}
		time.Sleep(time.Until(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)))
		t.Cleanup(func() { time.Sleep(time.Second) }) // for connections being opened, which nobody waits for
		do(t)
	})
}

// around is the network of the running test: no two run at a time.
var around *network

// network connects nodes in memory. A connection buffers any number of bytes, so only its readers wait.
type network struct {
	mu        sync.Mutex
	listeners map[string]*listener
	used      int // addresses and ports handed out
}

// freeAddr returns an address where no node listens.
func freeAddr(t testing.TB) string {
	t.Helper()
	around.mu.Lock()
	defer around.mu.Unlock()
	around.used++
	return fmt.Sprintf("127.0.0.1:%d", 20_000+around.used)
}

// Listen implements world.Network.
func (n *network) Listen(_, address string) (net.Listener, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[address] != nil {
		return nil, syscall.EADDRINUSE
	}
	l := &listener{on: n, at: net.TCPAddrFromAddrPort(at), arrived: make(chan *conn, 1000), closed: make(chan struct{})}
	n.listeners[address] = l
	return l, nil
}

// DialContext implements world.Network.
func (n *network) DialContext(_ context.Context, _, address string) (net.Conn, error) {
	time.Sleep(time.Millisecond)
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.listeners[address]
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	n.used++
	own := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 20_000 + n.used}
	there, back := newPipe(), newPipe()
	l.arrived <- &conn{in: there, out: back, own: l.at, remote: own}
	return &conn{in: back, out: there, own: own, remote: l.at}, nil
}

// listen listens at an address that no node has.
func listen(t *testing.T) net.Listener {
	l := need.Got(around.Listen("tcp", freeAddr(t)))(t)
	t.Cleanup(func() { l.Close() })
	return l
}

type listener struct {
	on      *network
	at      *net.TCPAddr
	arrived chan *conn
	once    sync.Once
	closed  chan struct{}
}

func (l *listener) Addr() net.Addr { return l.at }

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.arrived:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. Connections that nobody has accepted end.
func (l *listener) Close() error {
	l.once.Do(func() {
		l.on.mu.Lock()
		defer l.on.mu.Unlock()
		delete(l.on.listeners, l.at.String())
		close(l.closed)
		for len(l.arrived) > 0 {
			(<-l.arrived).Close()
		}
	})
	return nil
}

// conn is one end of a connection.
type conn struct {
	in, out     *pipe
	own, remote net.Addr
}

func (c *conn) Read(b []byte) (int, error)       { return c.in.read(b) }
func (c *conn) Write(b []byte) (int, error)      { return c.out.write(b) }
func (c *conn) LocalAddr() net.Addr              { return c.own }
func (c *conn) RemoteAddr() net.Addr             { return c.remote }
func (c *conn) SetWriteDeadline(time.Time) error { return nil }
func (c *conn) SetDeadline(t time.Time) error    { return c.SetReadDeadline(t) }

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.change(func() { c.in.until = t })
	if !t.IsZero() {
		time.AfterFunc(time.Until(t), func() { c.in.change(func() {}) })
	}
	return nil
}

// Close implements net.Conn. The other end reads what was written before, and then the end.
func (c *conn) Close() error {
	c.out.change(func() { c.out.ended = true })
	c.in.change(func() { c.in.deaf = true })
	return nil
}

// pipe is one direction of a connection.
type pipe struct {
	changed     *sync.Cond
	bytes       []byte
	ended, deaf bool // closed by the writer, and by the reader
	until       time.Time
}

func newPipe() *pipe { return &pipe{changed: sync.NewCond(new(sync.Mutex))} }

func (p *pipe) change(do func()) {
	p.changed.L.Lock()
	defer p.changed.L.Unlock()
	do()
	p.changed.Broadcast()
}

func (p *pipe) read(b []byte) (n int, err error) {
	p.changed.L.Lock()
	defer p.changed.L.Unlock()
	for {
		switch {
		case p.deaf:
			return 0, net.ErrClosed
		case len(p.bytes) > 0:
			n = copy(b, p.bytes)
			p.bytes = p.bytes[n:]
			return n, nil
		case p.ended:
			return 0, io.EOF
		case !p.until.IsZero() && !time.Now().Before(p.until):
			return 0, os.ErrDeadlineExceeded
		}
		p.changed.Wait()
	}
}

func (p *pipe) write(b []byte) (n int, err error) {
	p.change(func() {
		if p.ended || p.deaf {
			err = net.ErrClosed
			return
		}
		p.bytes, n = append(p.bytes, b...), len(b)
	})
	return n, err
}
