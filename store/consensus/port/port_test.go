package port

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/rpc"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/goleak"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
)

// limit is how long a test waits for something that normally takes well under a second.
const limit = time.Minute

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !cond(); time.Sleep(5 * time.Millisecond) {
		need.That(t, time.Now().Before(end), "not within %v: %s", limit, what)
	}
}

// testPort opens a port that introduces its node with h, and echoes calls between nodes.
func testPort(t *testing.T, h Hello, files store.TLSFiles) *Port {
	t.Helper()
	n := need.Got(Listen(nil, "127.0.0.1:0", "", files, slog.New(slog.DiscardHandler)))(t)
	n.Self = func() Hello { return h }
	n.ServeNode = func(c net.Conn, _ Hello) { io.Copy(c, c) }
	n.Go(n.Serve)
	t.Cleanup(func() {
		n.Close()
		n.Wait()
	})
	return n
}

func TestHandshake(t *testing.T) {
	tests := []struct {
		name         string
		kind         byte
		own, peer    Hello
		wantErr      string
		wantForeigns bool
	}{
		{name: "same cluster", kind: streamNode, own: Hello{Cluster: "c", ServerID: "n1.aa"}, peer: Hello{Cluster: "c", ServerID: "n2.bb"}},
		{name: "node channel before there is a cluster", kind: streamNode, own: Hello{Cluster: "", ServerID: "n1.aa"}, peer: Hello{Cluster: "", ServerID: "n2.bb"}},
		{name: "node channel of a newcomer", kind: streamNode, own: Hello{Cluster: "", ServerID: "n1.aa"}, peer: Hello{Cluster: "c", ServerID: "n2.bb"}},
		{name: "another cluster", kind: streamNode, own: Hello{Cluster: "c", ServerID: "n1.aa"}, peer: Hello{Cluster: "d", ServerID: "n2.bb"}, wantErr: `cluster "d"`, wantForeigns: true},
		{name: "the cluster was recovered without the other", kind: streamRaft, own: Hello{Cluster: "c", ServerID: "n1.aa", Recovered: 2}, peer: Hello{Cluster: "c", ServerID: "n2.bb", Recovered: 1}, wantErr: "without what node n2 has here"},
		{name: "the cluster was recovered without this one", kind: streamNode, own: Hello{Cluster: "c", ServerID: "n1.aa"}, peer: Hello{Cluster: "c", ServerID: "n2.bb", Recovered: 1}, wantErr: "without what node n1 has here"},
		{name: "the other skips an entry of the log", kind: streamNode, own: Hello{Cluster: "c", ServerID: "n1.aa"}, peer: Hello{Cluster: "c", ServerID: "n2.bb", Skipped: []uint64{7}}, wantErr: "node n2 skips the log entries [7], this node []"},
		{name: "the other does not skip an entry of the log", kind: streamRaft, own: Hello{Cluster: "c", ServerID: "n1.aa", Skipped: []uint64{7}}, peer: Hello{Cluster: "c", ServerID: "n2.bb"}, wantErr: "node n2 skips the log entries [], this node [7]"},
		{name: "both skip the same", kind: streamNode, own: Hello{Cluster: "c", ServerID: "n1.aa", Skipped: []uint64{7}}, peer: Hello{Cluster: "c", ServerID: "n2.bb", Skipped: []uint64{7}}},
		{name: "raft before there is a cluster", kind: streamRaft, own: Hello{Cluster: "", ServerID: "n1.aa"}, peer: Hello{Cluster: "c", ServerID: "n2.bb"}, wantErr: "no cluster yet"},
		{name: "raft of another cluster", kind: streamRaft, own: Hello{Cluster: "c", ServerID: "n1.aa"}, peer: Hello{Cluster: "d", ServerID: "n2.bb"}, wantErr: `cluster "d"`, wantForeigns: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server := testPort(t, tt.peer, store.TLSFiles{})
			client := testPort(t, tt.own, store.TLSFiles{})
			conn, peer, err := client.dial(tt.kind, server.Addr().String(), limit)
			if tt.wantErr == "" {
				need.OK(t, err)
				conn.Close()
				expect.Deep(t, peer, tt.peer, "peer is")
				return
			}
			expect.ErrorSays(t, err, tt.wantErr, "got")
			var foreign *ForeignError
			expect.That(t, errors.As(err, &foreign) == tt.wantForeigns, "%v: is a foreign cluster: %v, want %v", err, !tt.wantForeigns, tt.wantForeigns)
		})
	}
}

func TestPortHangsUpOnStrangers(t *testing.T) {
	server := testPort(t, Hello{Cluster: "c", ServerID: "n1.aa"}, store.TLSFiles{})
	for _, first := range []string{"GET / HTTP/1.1\r\n\r\n", "\x00\x00\x00\x00", "N\x63"} {
		conn := need.Got(net.Dial("tcp", server.Addr().String()))(t)
		defer conn.Close()
		need.Got(io.WriteString(conn, first))(t)
		need.OK(t, conn.SetReadDeadline(time.Now().Add(limit)))
		expect.That(t, !errors.Is(expect.Err(io.ReadAll(conn)), os.ErrDeadlineExceeded), "%q: the connection stays open", first)
	}
}

// The port may accept a connection at the moment it closes, and the other end might then hold it forever.
func TestPortHangsUpOnAConnectionThatIsAcceptedAsItCloses(t *testing.T) {
	server := testPort(t, Hello{Cluster: "c", ServerID: "n1.aa"}, store.TLSFiles{})
	client := testPort(t, Hello{Cluster: "c", ServerID: "n2.bb"}, store.TLSFiles{})
	server.Close()
	server.Wait()
	near, far := net.Pipe()
	defer near.Close()
	go client.greet(near, streamNode, limit)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server.accept(far)
	}()
	select {
	case <-ended:
	case <-time.After(limit):
		t.Error("the connection is served though the port is closed")
	}
}

func TestPortThatIsFencedNeitherDialsNorWrites(t *testing.T) {
	server := testPort(t, Hello{Cluster: "c", ServerID: "n2.bb"}, store.TLSFiles{})
	client := testPort(t, Hello{Cluster: "c", ServerID: "n1.aa"}, store.TLSFiles{})
	conn, _, err := client.dial(streamNode, server.Addr().String(), limit)
	need.OK(t, err)
	client.Fence()
	if _, err := conn.Write([]byte("x")); err == nil {
		t.Error("a fenced node still writes")
	}
	if _, _, err := client.dial(streamRaft, server.Addr().String(), limit); !errors.Is(err, errFenced) {
		t.Errorf("dial of a fenced node: %v, want errFenced", err)
	}
}

func FuzzReadHello(f *testing.F) {
	f.Add("\x01\x01c\x05n1.aa")
	f.Add("\x01\xff")
	f.Fuzz(func(t *testing.T, s string) {
		h, err := readHello(strings.NewReader(s))
		if err != nil {
			return
		}
		var b strings.Builder
		need.OK(t, writeHello(&b, h))
		expect.That(t, strings.HasPrefix(s, b.String()), "%q read as %+v, written as %q", s, h, b.String())
	})
}

// authority signs certificates for nodes.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key := need.Got(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der := need.Got(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))(t)
	cert := need.Got(x509.ParseCertificate(der))(t)
	return authority{cert: cert, key: key, file: writePEM(t, "CERTIFICATE", der)}
}

func (a authority) issue(t *testing.T, node string) store.TLSFiles {
	t.Helper()
	key := need.Got(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: node}, DNSNames: []string{node},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}, a.cert, &key.PublicKey, a.key)
	need.OK(t, err)
	raw := need.Got(x509.MarshalECPrivateKey(key))(t)
	return store.TLSFiles{Cert: writePEM(t, "CERTIFICATE", der), Key: writePEM(t, "EC PRIVATE KEY", raw), CA: a.file}
}

func writePEM(t *testing.T, kind string, der []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.pem")
	need.OK(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return path
}

func TestMutualTLS(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	server := testPort(t, Hello{Cluster: "c", ServerID: "n2.bb"}, ours.issue(t, "n2"))
	tests := []struct {
		name  string
		own   Hello
		files store.TLSFiles
		ok    bool
	}{
		{"a node with its own certificate", Hello{Cluster: "c", ServerID: "n1.aa"}, ours.issue(t, "n1"), true},
		{"a node with another node's certificate", Hello{Cluster: "c", ServerID: "n1.aa"}, ours.issue(t, "n3"), false},
		{"a certificate of another authority", Hello{Cluster: "c", ServerID: "n1.aa"}, theirs.issue(t, "n1"), false},
		{"no TLS", Hello{Cluster: "c", ServerID: "n1.aa"}, store.TLSFiles{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client := testPort(t, tt.own, tt.files)
			conn, _, err := client.dial(streamNode, server.Addr().String(), limit)
			if err == nil {
				// The server may find out only after the client has accepted; then it hangs up.
				err = echo(conn)
				conn.Close()
			}
			expect.That(t, (err == nil) == tt.ok, "got error %v, want success: %v", err, tt.ok)
		})
	}
}

func echo(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("x")); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, 1))
	return err
}

func TestCallsServeAClientOfTheLibrary(t *testing.T) {
	slow := make(chan struct{})
	table := Calls{
		"Node.Double": Method(func(n int) int { return 2 * n }),
		"Node.Slow":   Method(func(struct{}) int { <-slow; return 0 }),
	}
	near, far := net.Pipe()
	ended := make(chan struct{})
	go func() { defer close(ended); table.Serve(far, Hello{}) }()
	c := rpc.NewClient(near)
	waiting := c.Go("Node.Slow", struct{}{}, new(int), make(chan *rpc.Call, 1))
	for _, tt := range []struct {
		name, method string
		args         any
		want         string // part of the error; empty means none
	}{
		{"a call", "Node.Double", 21, ""},
		{"a call that no node knows", "Node.Shout", 21, "knows no call Node.Shout"},
		{"arguments of another type", "Node.Double", "21", "received remote type string"},
		{"a call after all these", "Node.Double", 21, ""},
	} {
		var reply int
		err := c.Call(tt.method, tt.args, &reply)
		expect.That(t, tt.want != "" || err == nil && reply == 42, "%s: got %d, %v, want 42", tt.name, reply, err)
		expect.That(t, tt.want == "" || err != nil && strings.Contains(err.Error(), tt.want),
			"%s: got %v, want an error with %q", tt.name, err, tt.want)
	}
	close(slow)
	<-waiting.Done
	expect.That(t, waiting.Error == nil, "the call that took long: %v", waiting.Error)
	c.Close()
	<-ended
}

func TestHelloIsOutdatedWithoutTheNewestStart(t *testing.T) {
	for _, tt := range []struct {
		name         string
		boot, before uint64
		known        uint64
		want         string // part of the error; empty if it is not outdated
	}{
		{"nothing is known", 5, 4, 0, ""},
		{"the same start", 5, 4, 5, ""},
		{"the next start", 5, 4, 4, ""},
		{"the next but one, of which nothing is known", 5, 4, 3, ""},
		{"a newer start is known", 5, 4, 6, "started again since"},
		{"a start is known between its own and the one before", 9, 4, 6, "older copy"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := Hello{ServerID: "n1.aa", Boot: tt.boot, Before: tt.before}.Outdated(tt.known)
			expect.That(t, (err == nil) == (tt.want == "") && (err == nil || strings.Contains(err.Error(), tt.want)),
				"got %v, want an error with %q", err, tt.want)
		})
	}
}

// A later version may say more, and is still understood.
func TestHelloOfALaterVersionIsRead(t *testing.T) {
	want := Hello{Cluster: "c", ServerID: "n1.aa", Boot: 3, Before: 2, Known: 1, Recovered: 4, Skipped: []uint64{7, 9}}
	var b bytes.Buffer
	need.OK(t, writeHello(&b, want))
	longer := append(b.Bytes(), "more"...)
	longer[2] += 4 // its length
	r := bytes.NewReader(append(longer, "next"...))
	got, err := readHello(r)
	expect.That(t, err == nil && reflect.DeepEqual(got, want) && r.Len() == 4, "got %+v, %v, and %d bytes are left, want %+v and those of what follows", got, err, r.Len(), want)
}

// A program of 0.1.0 says nothing of skipped entries, and nodes that skip none say the same as it did.
func TestHelloWithoutSkippedEntriesMatchesTheFirstVersion(t *testing.T) {
	want := Hello{Cluster: "c", ServerID: "n1.aa", Boot: 3}
	var b bytes.Buffer
	need.OK(t, writeHello(&b, want))
	expect.Equal(t, b.Len(), 3+1+len("c")+1+len("n1.aa")+4*8, "bytes")
	got, err := readHello(&b)
	expect.That(t, err == nil && reflect.DeepEqual(got, want), "got %+v, %v, want %+v", got, err, want)
}

func TestHelloThatBreaksOffInItsSkippedEntriesIsRefused(t *testing.T) {
	var b bytes.Buffer
	need.OK(t, writeHello(&b, Hello{Cluster: "c", ServerID: "n1.aa", Skipped: []uint64{7, 9}}))
	for cut := 1; cut < 2+2*8; cut++ {
		short := bytes.Clone(b.Bytes()[:b.Len()-cut])
		short[2] -= byte(cut)
		got, err := readHello(bytes.NewReader(short))
		expect.That(t, err != nil, "%d bytes short: %+v, want an error", cut, got)
	}
}

// sleepy is served by net/rpc.
type sleepy struct{}

// Wait replies after the given time.
func (sleepy) Wait(d time.Duration, reply *bool) error {
	time.Sleep(d)
	*reply = true
	return nil
}

// Each call takes longer than connections have to end, and both nodes switch to another authority while calls run.
func TestCallsGoOnWhileConnectionsEndBecauseCertificatesHaveChanged(t *testing.T) {
	old, next := newAuthority(t), newAuthority(t)
	files := old.issue(t, "n1")
	theirs := old.issue(t, "n2")
	client, server := testPort(t, Hello{Cluster: "c", ServerID: "n1.aa"}, files), testPort(t, Hello{Cluster: "c", ServerID: "n2.bb"}, theirs)
	client.Life = 200 * time.Millisecond // the other node keeps an hour, which leaves calls their time
	calls := rpc.NewServer()
	need.OK(t, calls.RegisterName("Node", sleepy{}))
	accepted := make(chan net.Conn, 100)
	server.ServeNode = func(c net.Conn, _ Hello) {
		accepted <- c
		calls.ServeConn(c)
	}
	nodes := NewNodes(client, nil)
	t.Cleanup(nodes.Close)
	call := func(d time.Duration) error {
		_, err := Invoke[bool](context.Background(), nodes, server.Addr().String(), "Node.Wait", d)
		return err
	}
	need.OK(t, call(0))
	pooled := need.Got(client.Dial(raft.ServerAddress(server.Addr().String()), limit))(t)
	first := <-accepted
	ended := make(chan error, 1)
	go func() { ended <- call(time.Second) }()

	replaceFiles(t, files.CA, old.file, next.file)
	replaceFiles(t, theirs.CA, old.file, next.file)
	need.That(t, len(client.ReloadCertificates()) == 1 && len(server.ReloadCertificates()) == 1, "the authorities did not change")
	eventually(t, "a call on another connection", func() bool {
		need.OK(t, call(0))
		return len(accepted) > 0 && <-accepted != first
	})
	expect.OKf(t, <-ended, "the call that was under way")
	eventually(t, "the end of Raft's connection", func() bool { return pooled.SetDeadline(time.Time{}) != nil })
}

// replaceFiles writes the contents of other files into a file.
func replaceFiles(t *testing.T, file string, with ...string) {
	t.Helper()
	var all []byte
	for _, other := range with {
		all = append(all, need.Got(os.ReadFile(other))(t)...)
	}
	need.OK(t, os.WriteFile(file, all, 0o600))
}

// TestMain fails if a test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// idle opens connections that say nothing, and reopens each as soon as it is closed, until the returned function is
// called.
func idle(t *testing.T, address string, connections int) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	var all sync.WaitGroup
	for range connections {
		all.Go(func() {
			for {
				conn, err := net.Dial("tcp", address)
				if err != nil {
					t.Error(err)
					return
				}
				closed := make(chan struct{})
				go func() {
					conn.Read(make([]byte, 1)) // until either side closes it
					close(closed)
				}()
				select {
				case <-closed:
					conn.Close()
				case <-done:
					conn.Close()
					<-closed
					return
				}
			}
		})
	}
	return func() {
		close(done)
		all.Wait()
	}
}

func TestAdmissionOfNodesIsNotKeptOutByConnectionsThatSayNothing(t *testing.T) {
	ours := newAuthority(t)
	for _, tls := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls=%v", tls), func(t *testing.T) {
			files := func(node string) store.TLSFiles {
				if !tls {
					return store.TLSFiles{}
				}
				return ours.issue(t, node)
			}
			server := testPort(t, Hello{Cluster: "c", ServerID: "n1.aa"}, files("n1"))
			client := testPort(t, Hello{Cluster: "c", ServerID: "n2.bb"}, files("n2"))
			stop := idle(t, server.Addr().String(), 600)
			defer stop()
			eventually(t, "the idle connections are there", func() bool {
				server.admission.mu.Lock()
				defer server.admission.mu.Unlock()
				return server.admission.parked > 500
			})
			for i := range 20 {
				conn, _, err := client.dial(streamNode, server.Addr().String(), limit)
				need.OKf(t, err, "connection %d", i)
				need.OKf(t, echo(conn), "connection %d", i)
				conn.Close()
			}
		})
	}
}

// fakeConn is a connection from a given address.
type fakeConn struct {
	net.Conn
	from   string
	closed bool
}

func (c *fakeConn) RemoteAddr() net.Addr        { return addr(c.from) }
func (c *fakeConn) SetDeadline(time.Time) error { return nil }
func (c *fakeConn) Close() error                { c.closed = true; return nil }

func TestAdmissionBoundsUnfinishedHandshakesPerAddressAndInAll(t *testing.T) {
	a := newAdmission()
	now := time.Now()
	knock := func(address string, n int) (callers []*caller) {
		for i := range n {
			c := newCaller(&fakeConn{from: fmt.Sprintf("%s:%d", address, i)})
			if a.startHandshake(c, now) {
				callers = append(callers, c)
			}
		}
		return callers
	}
	ousted := func(callers []*caller) (n int) {
		for _, c := range callers {
			if c.ousted.Load() {
				n++
			}
		}
		return n
	}
	atOnce := knock("10.0.0.1", 2000)
	if got, want := len(atOnce), handshakesPerAddress+handshakesAtOnce; got != want || ousted(atOnce) > 0 {
		t.Errorf("%d of 2000 connections that come at once are heard and %d of those ousted, want %d and none", got, ousted(atOnce), want)
	}
	for _, c := range atOnce[:5] {
		c.spoke.Store(true)
	}
	now = now.Add(silentFor + 1)
	next := knock("10.0.0.1", 1)
	if got := a.unfinished("10.0.0.1"); len(next) != 1 || got != handshakesPerAddress || ousted(atOnce[:5]) > 0 {
		t.Errorf("a blink later there are %d unfinished handshakes, %d new and %d that had spoken were ousted, want %d, 1 and none", got, len(next), ousted(atOnce[:5]), handshakesPerAddress)
	}
	now = now.Add(unfinishedFor)
	if knock("10.0.0.1", 5); ousted(atOnce[:5]) != 5 {
		t.Errorf("%d of 5 handshakes that were begun and not finished made room, want all", ousted(atOnce[:5]))
	}

	node := knock("10.0.9.9", 1)[0]
	need.That(t, a.finishHandshake(node, "n2.bb", true), "a node of the cluster found no room")
	for i := range 50 {
		now = now.Add(time.Second)
		knock(fmt.Sprintf("10.0.1.%d", i), handshakesPerAddress)
	}
	got, want := a.waiting, handshakesInAll
	expect.That(t, got == want, "%d handshakes of unknown addresses are not finished, want %d at most", got, want)
	known := knock("10.0.9.9", handshakesPerAddress)
	now = now.Add(time.Second)
	knock("10.0.2.1", 1)
	if a.waiting != handshakesInAll || ousted(known) > 0 {
		t.Errorf("%d handshakes are counted, %d of a known address were ousted: want those of strangers alone", a.waiting, ousted(known))
	}
	for _, of := range a.open {
		for of.Len() > 0 {
			a.removeHandshake(of.Front().Value.(*caller))
		}
	}
	a.remove(node)
	expect.That(t, a.waiting == 0 && len(a.open) == 0 && a.nodesAll == 0 && len(a.nodes) == 0,
		"after all have ended %d, %d, %d and %d are counted", a.waiting, len(a.open), a.nodesAll, len(a.nodes))
}

func TestAdmissionClosesTheOldestConnectionOfANodeThatOpensEverMore(t *testing.T) {
	a := newAdmission()
	var conns []*fakeConn
	for i := range connectionsPerNode + 3 {
		conn := &fakeConn{from: fmt.Sprintf("10.0.0.1:%d", i)}
		c := newCaller(conn)
		need.That(t, a.startHandshake(c, time.Now()) && a.finishHandshake(c, "n2.bb", true), "connection %d found no room", i)
		conns = append(conns, conn)
	}
	for i, conn := range conns {
		expect.Equal(t, conn.closed, i < 3, "connection %d was closed:", i)
	}
}

// A node that hangs reads nothing, and what is sent to it fills the connection's buffers.
func TestInvokeEndsWhereTheNodeHangs(t *testing.T) {
	server := testPort(t, Hello{Cluster: "c", ServerID: "n2.bb"}, store.TLSFiles{})
	hold := make(chan struct{})
	server.ServeNode = func(net.Conn, Hello) { <-hold }
	t.Cleanup(func() { close(hold) })
	client := testPort(t, Hello{Cluster: "c", ServerID: "n1.aa"}, store.TLSFiles{})
	p := NewNodes(client, nil)
	t.Cleanup(p.Close)

	const calls = 100
	large := make([]byte, 1<<20)
	ended := make(chan error, calls)
	for range calls {
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, err := Invoke[WorkReply](ctx, p, server.Addr().String(), "Node.Commit", large)
			ended <- err
		}()
	}
	for i := range calls {
		select {
		case err := <-ended:
			expect.That(t, err != nil, "a call without a reply has succeeded")
		case <-time.After(limit):
			t.Fatalf("only %d of %d calls have ended after %v", i, calls, limit)
		}
	}
}

type (
	WorkReply  struct{ Results []byte }
	PlaceReply struct{ Index uint64 }
)

// busyNode answers neither reads nor writes until told to.
type busyNode struct{ writing, answerWrites, answerReads chan struct{} }

func (n *busyNode) Commit(_ []byte, _ *WorkReply) error {
	close(n.writing)
	<-n.answerWrites
	return nil
}

func (n *busyNode) ReadIndex(_ bool, _ *PlaceReply) error {
	<-n.answerReads
	return nil
}

func TestInvokeThatTimesOutDoesNotCutOffWrites(t *testing.T) {
	node := &busyNode{writing: make(chan struct{}), answerWrites: make(chan struct{}), answerReads: make(chan struct{})}
	calls := rpc.NewServer()
	need.OK(t, calls.RegisterName("Node", node))
	server := testPort(t, Hello{Cluster: "c", ServerID: "n2.bb"}, store.TLSFiles{})
	server.ServeNode = func(conn net.Conn, _ Hello) { calls.ServeConn(conn) }
	t.Cleanup(func() { close(node.answerReads) })
	p := NewNodes(testPort(t, Hello{Cluster: "c", ServerID: "n1.aa"}, store.TLSFiles{}), nil)
	t.Cleanup(p.Close)

	written := make(chan error, 1)
	go func() {
		_, err := Invoke[WorkReply](t.Context(), p, server.Addr().String(), "Node.Commit", []byte{})
		written <- err
	}()
	<-node.writing
	_, err := Invoke[PlaceReply](t.Context(), p, server.Addr().String(), "Node.ReadIndex", true)
	expect.That(t, errors.Is(err, context.DeadlineExceeded), "a read that is not answered: %v, want that its time is up", err)
	close(node.answerWrites)
	expect.OKf(t, <-written, "the write that was on its way meanwhile")
}

func TestAttemptLimitGrowsWhereNodesAreFarFromEachOther(t *testing.T) {
	tests := []struct {
		name           string
		trips          map[lineKey]time.Duration
		attempt, write time.Duration
	}{
		{name: "not connected", attempt: quickAttempt, write: 850 * time.Millisecond},
		{name: "still dialling", trips: map[lineKey]time.Duration{{"a", laneQuick}: 0}, attempt: quickAttempt, write: 850 * time.Millisecond},
		{name: "in one place", trips: map[lineKey]time.Duration{{"a", laneQuick}: time.Millisecond}, attempt: 303 * time.Millisecond, write: 858 * time.Millisecond},
		{name: "the most distant one counts", trips: map[lineKey]time.Duration{{"a", laneQuick}: 0, {"b", laneWork}: 300 * time.Millisecond, {"c", laneWork}: 20 * time.Millisecond}, attempt: 1200 * time.Millisecond, write: 3400 * time.Millisecond},
		{name: "the shorter of two answers of a node", trips: map[lineKey]time.Duration{{"a", laneQuick}: 100 * time.Millisecond, {"a", laneWork}: 700 * time.Millisecond}, attempt: 600 * time.Millisecond, write: 1700 * time.Millisecond},
		{name: "too far", trips: map[lineKey]time.Duration{{"a", laneWork}: 10 * time.Second}, attempt: maxAttempt, write: 5666 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := NewNodes(nil, nil)
			for to, trip := range tt.trips {
				p.lines[to] = &line{}
				p.lines[to].shortest.Store(int64(trip))
			}
			expect.Equal(t, p.AttemptLimit(), tt.attempt, "attempts get")
			expect.Equal(t, p.Stretch(850*time.Millisecond).Truncate(time.Millisecond), tt.write, "850 ms become")
		})
	}
}
