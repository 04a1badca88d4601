package integration

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// Certificates is a certificate authority made for one test.
type Certificates struct {
	CA string // PEM file of the authority's certificate

	dir       string
	cert      *x509.Certificate
	key       *ecdsa.PrivateKey
	transport *http.Transport // trusts the authority
}

// NewCertificates makes an authority in a temporary directory.
func NewCertificates(t testing.TB) *Certificates {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	key := newKey(t)
	c := &Certificates{dir: t.TempDir(), key: key, cert: template}
	der := c.sign(t, template, key)
	cert, err := x509.ParseCertificate(der)
	need.OK(t, err)
	c.cert = cert
	c.CA = c.write(t, "ca.pem", "CERTIFICATE", der)
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	c.transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	t.Cleanup(c.transport.CloseIdleConnections)
	return c
}

// Client returns a client that trusts the authority.
func (c *Certificates) Client() *http.Client { return &http.Client{Transport: c.transport} }

// PresentTo makes tests show servers a certificate from the authority, if they ask for one.
func (c *Certificates) PresentTo(t testing.TB) {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(c.Issue(t, "test"))
	need.OK(t, err)
	c.transport.TLSClientConfig.Certificates = []tls.Certificate{pair}
}

// Issue writes a certificate for a node, for both directions, that names it and the loopback address, and returns the
// paths of certificate and key.
func (c *Certificates) Issue(t testing.TB, name string) (certFile, keyFile string) {
	t.Helper()
	key := newKey(t)
	der := c.sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		DNSNames: []string{name, "localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, key)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	need.OK(t, err)
	return c.write(t, name+".pem", "CERTIFICATE", der), c.write(t, name+"-key.pem", "PRIVATE KEY", keyDER)
}

// Settings returns the keys that make a node use TLS on both its listeners.
func (c *Certificates) Settings(t testing.TB, node string) map[string]string {
	t.Helper()
	cert, key := c.Issue(t, node)
	return map[string]string{
		"http.tls.cert": cert, "http.tls.key": key,
		"cluster.tls.cert": cert, "cluster.tls.key": key, "cluster.tls.ca": c.CA,
	}
}

func (c *Certificates) sign(t testing.TB, template *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, c.cert, &key.PublicKey, c.key)
	need.OKf(t, err, "sign certificate")
	return der
}

func (c *Certificates) write(t testing.TB, name, kind string, der []byte) string {
	t.Helper()
	path := filepath.Join(c.dir, name)
	need.OK(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return path
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	need.OKf(t, err, "make key")
	return key
}

// certifiedClient is a client whose certificate and trusted authorities can be replaced while it is used.
type certifiedClient struct {
	*http.Client
	now atomic.Pointer[http.Transport]
}

// RoundTrip implements http.RoundTripper.
func (c *certifiedClient) RoundTrip(r *http.Request) (*http.Response, error) {
	return c.now.Load().RoundTrip(r)
}

// use makes the client like another one.
func (c *certifiedClient) use(other *certifiedClient) {
	if before := c.now.Swap(other.now.Load()); before != other.now.Load() {
		before.CloseIdleConnections()
	}
}

// overHTTP2 returns a client with the same certificates that speaks HTTP/2.
func (c *certifiedClient) overHTTP2(t testing.TB) *certifiedClient {
	t.Helper()
	transport := c.now.Load().Clone()
	transport.ForceAttemptHTTP2 = true
	return newCertifiedClient(t, transport)
}

func newCertifiedClient(t testing.TB, transport *http.Transport) *certifiedClient {
	t.Cleanup(transport.CloseIdleConnections)
	c := new(certifiedClient)
	c.Client = &http.Client{Transport: c}
	c.now.Store(transport)
	return c
}

// newClientOf returns a client that shows a certificate from one authority and trusts several.
func newClientOf(t testing.TB, of *Certificates, trusted ...*Certificates) *certifiedClient {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(of.Issue(t, "client"))
	need.OK(t, err)
	roots := x509.NewCertPool()
	for _, a := range trusted {
		roots.AddCert(a.cert)
	}
	return newCertifiedClient(t, &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}})
}
