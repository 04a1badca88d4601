package integration

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// tlsCluster is a cluster whose every listener uses certificates of ca.
func tlsCluster(t *testing.T, ca *Certificates) Config {
	return Config{TLS: ca, Of: func(node string) map[string]string { return ca.Settings(t, node) }}
}

func TestClusterOverMutualTLSServesHTTPS(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, tlsCluster(t, NewCertificates(t)))
	follower := c.Others(c.Leader())[0]
	mustRegister(t, follower, Instance{App: "SECRET", ID: "s"})
	for _, n := range c.Nodes {
		_, listed := mustList(t, n)["s"]
		expect.That(t, listed, "node %s does not list what was registered over TLS", n.Name)
	}
	plain := *follower
	plain.Client = nil
	response := plain.Get("/eureka/apps")
	expect.That(t, response.Status != 200, "plain HTTP on the TLS port: %v, want a refusal", response)
}

// noticeAfter is when a node must know that its majority is gone.
const noticeAfter = 3 * time.Second

// mustStayOutside watches a node for a while in which it would have joined many times over: it may
// end, or serve what it has, but it must not learn what was written without it.
func mustStayOutside(t *testing.T, n *Node) {
	t.Helper()
	for range 10 {
		Pass(t, noticeAfter/10)
		if !n.Running() {
			return
		}
		need.That(t, n.Get("/eureka/apps?consistency=linearizable").Status != 200, "a node with a certificate of another authority serves linearizable reads")
		if listing, err := n.ListingOf("/eureka/apps?consistency=stale"); err == nil {
			_, listed := listing["s"]
			need.That(t, !listed, "a node with a certificate of another authority got the log")
		}
	}
}

// certificateFolder is the files of one node's certificates, which are exchanged while it runs.
type certificateFolder struct{ dir, node string }

func (f certificateFolder) path(name string) string { return filepath.Join(f.dir, f.node+"-"+name) }

// put replaces the node's certificate by one of an authority, and what it trusts by several.
func (f certificateFolder) put(t *testing.T, of *Certificates, trusted ...*Certificates) {
	t.Helper()
	cert, key := of.Issue(t, f.node)
	var authorities []byte
	for _, a := range trusted {
		authorities = append(authorities, need.Got(os.ReadFile(a.CA))(t)...)
	}
	for name, text := range map[string][]byte{
		"ca.pem": authorities, "key.pem": need.Got(os.ReadFile(key))(t), "cert.pem": need.Got(os.ReadFile(cert))(t),
	} {
		next := f.path(name) + ".next"
		need.OK(t, errors.Join(os.WriteFile(next, text, 0o600), os.Rename(next, f.path(name))))
	}
}

// settings make a node use the files for everything that has certificates.
func (f certificateFolder) settings() map[string]string {
	s := map[string]string{"test.connection-life": "10s"}
	for _, of := range []string{"http", "cluster", "replication"} {
		s[of+".tls.cert"], s[of+".tls.key"], s[of+".tls.ca"] = f.path("cert.pem"), f.path("key.pem"), f.path("ca.pem")
	}
	s["http.tls.client-ca"] = s["http.tls.ca"]
	delete(s, "http.tls.ca")
	return s
}

// callInTurn registers an instance, renews its lease and reads, again and again.
func callInTurn(ctx context.Context, n *Node, calls *Gaps) {
	for pause(ctx, 20*time.Millisecond) {
		r := n.Register(Instance{App: "ROLLED", ID: n.Datacenter + n.Name, Duration: 600})
		calls.add(unless(r.Status/100 == 2, "register at %s: %v", n.Name, r))
		for range 5 { // heartbeats in a row, for which a node takes a connection over
			r = n.Renew("ROLLED", n.Datacenter+n.Name)
			calls.add(unless(r.Status == 200, "renew at %s: %v", n.Name, r))
		}
		r = n.Get("/eureka/apps/ROLLED")
		calls.add(unless(r.Status/100 == 2, "list at %s: %v", n.Name, r))
	}
}

// watchInTurn reads one stream of changes after the other, and counts those that the node has ended in good order.
func watchInTurn(ctx context.Context, url string, client *http.Client, calls *Gaps, ended *atomic.Int64) {
	for pause(ctx, 20*time.Millisecond) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/v1/rollcall/watch", nil)
		if err == nil {
			var response *http.Response
			if response, err = client.Do(r); err == nil {
				_, err = io.Copy(io.Discard, response.Body)
				response.Body.Close()
				err = errors.Join(err, unless(response.StatusCode == 200 && response.ProtoMajor == 2, "watch: %s %s", response.Proto, response.Status))
			}
		}
		if ctx.Err() == nil {
			calls.add(err)
			ended.Add(1)
		}
	}
}

// mustShow wants a listener to show a certificate of an authority to those who connect now.
func mustShow(t *testing.T, address string, of *Certificates, client *certifiedClient) {
	t.Helper()
	c := client.now.Load().TLSClientConfig.Clone()
	c.RootCAs = x509.NewCertPool()
	c.RootCAs.AddCert(of.cert)
	conn, err := tls.Dial("tcp", address, c)
	need.OKf(t, err, "%s shows no certificate of the authority", address)
	conn.Close()
}

// TestCertificatesAreExchangedWhileCallsRun goes over to another authority: first all trust both, then all have certificates of
// the new one, then the old one is forgotten. Meanwhile two datacenters, one of each mode, serve calls and replicate; the old
// connections have all ended after each step.
func TestCertificatesAreExchangedWhileCallsRun(t *testing.T) {
	t.Parallel()
	old, next := NewCertificates(t), NewCertificates(t)
	both := newClientOf(t, old, old, next)
	folders, dir := map[string]certificateFolder{}, t.TempDir()
	of := func(dc string) func(node string) map[string]string {
		return func(node string) map[string]string {
			f := certificateFolder{filepath.Join(dir, dc), node}
			need.OK(t, os.MkdirAll(f.dir, 0o700))
			f.put(t, old, old)
			folders[dc+node] = f
			return f.settings()
		}
	}
	cp, ap := withSteadyLeader(Config{TLS: old, Of: of("dc1")}), Config{AP: true, Nodes: 2, TLS: old, Of: of("dc2")}
	old.PresentTo(t)
	d := StartUnlikeDatacenters(t, cp, ap)
	second := both.overHTTP2(t)
	var calls Gaps
	var watches atomic.Int64 // that have ended in good order
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for _, n := range d.Nodes() {
		n.Client = both.Client
		callers.Go(func() { callInTurn(ctx, n, &calls) })
		callers.Go(func() {
			other := *n
			other.Client = second.Client
			callInTurn(ctx, &other, &calls)
		})
		callers.Go(func() { watchInTurn(ctx, n.URL(), second.Client, &calls, &watches) })
	}
	step := func(of *Certificates, client *certifiedClient, trusted ...*Certificates) {
		t.Helper()
		for i, n := range d.Nodes() {
			folders[n.Datacenter+n.Name].put(t, of, trusted...)
			if i%2 == 0 { // the others find out by themselves
				n.Signal(t, syscall.SIGHUP)
			}
		}
		Pass(t, 10*time.Second) // in which every node looks at its files
		both.use(client)
		second.use(client.overHTTP2(t))
		Pass(t, 10*time.Second) // in which every connection ends, see test.connection-life
		for _, n := range d.Nodes() {
			mustShow(t, n.HTTP, of, client)
			if n.Datacenter == dcName(0) { // mode ap has no such port
				mustShow(t, n.Cluster, of, client)
			}
		}
	}
	step(old, both, old, next)
	step(next, newClientOf(t, next, old, next), old, next)
	step(next, newClientOf(t, next, next), next)
	// Both still replicate.
	for i, c := range d.Clusters {
		for _, other := range d.Clusters[1-i].Nodes {
			awaitStatus(t, other, "ROLLED", dcName(i)+c.Nodes[0].Name, "UP")
		}
		mustRegister(t, c.Nodes[0], Instance{App: "ROLLED", ID: fmt.Sprintf("after-%d", i)})
		for _, other := range d.Clusters[1-i].Nodes {
			awaitStatus(t, other, "ROLLED", fmt.Sprintf("after-%d", i), "UP")
		}
	}
	cancel()
	callers.Wait()
	good, bad := calls.counts()
	t.Logf("calls: %v", &calls)
	expect.That(t, bad == 0 && good > 1000, "calls: %v, want many, and none bad", &calls)
	expect.That(t, watches.Load() >= int64(3*len(d.Nodes())), "%d watches ended in good order, want one at each node in each step", watches.Load())
	for _, n := range d.Nodes() {
		stranger := *n
		stranger.Client = newClientOf(t, old, old, next).Client
		expect.OKf(t, stranger.Get("/eureka/apps").is(0), "a client with a certificate of the old authority")
		expect.That(t, !strings.Contains(n.Output(t), "cannot be read"), "%s could not read a certificate: %s", n.Name, n.LastWords(10))
	}
	// A node whose certificate is of the old authority is outside.
	lost := d.Clusters[0].Others(d.Clusters[0].Leader())[0]
	lost.Stop(t)
	folders[lost.Datacenter+lost.Name].put(t, old, old, next)
	mustRegister(t, d.Clusters[0].Leader(d.Clusters[0].Others(lost)...), Instance{App: "SECRET", ID: "s"})
	lost.Client = newClientOf(t, next, old, next).Client
	lost.Start(t)
	mustStayOutside(t, lost)
}
