package certfiles_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/internal/certfiles"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// authority signs certificates for 127.0.0.1, and is written to a file.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  []byte
	uses []x509.ExtKeyUsage // of the certificates that it signs
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key := need.Got(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der := need.Got(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))(t)
	return authority{key, need.Got(x509.ParseCertificate(der))(t), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		[]x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
}

// write writes a certificate with this serial number, its key and authorities, as if they had changed at that second.
func (a authority) write(t *testing.T, dir string, serial int64, trusted ...authority) certfiles.Files {
	t.Helper()
	key := need.Got(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: a.uses}
	der := need.Got(x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key))(t)
	keyDER := need.Got(x509.MarshalECPrivateKey(key))(t)
	f := certfiles.Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), CA: filepath.Join(dir, "ca.pem"), Keys: [3]string{"x.cert", "x.key", "x.ca"}}
	writeAt(t, f.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), serial)
	writeAt(t, f.Key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), serial)
	var pems []byte
	for _, a := range trusted {
		pems = append(pems, a.pem...)
	}
	writeAt(t, f.CA, pems, serial)
	return f
}

func writeAt(t *testing.T, path string, content []byte, second int64) {
	t.Helper()
	need.OK(t, os.WriteFile(path, content, 0o600))
	at := time.Unix(second, 0)
	need.OK(t, os.Chtimes(path, at, at))
}

func logTo() (*slog.Logger, *bytes.Buffer) {
	var said bytes.Buffer
	return slog.New(slog.NewTextHandler(&said, nil)), &said
}

func serial(s *certfiles.Source) int64 { return s.Certificate().Leaf.SerialNumber.Int64() }

func TestCertificateOfChangedFilesIsUsedAtTheNextHandshake(t *testing.T) {
	a, dir := newAuthority(t), t.TempDir()
	log, said := logTo()
	s := need.Got(certfiles.Open(a.write(t, dir, 1, a), log))(t)
	changes := 0
	s.Changed = func() { changes++ }
	expect.Equal(t, serial(s), 1, "the certificate")
	a.write(t, dir, 2, a)
	expect.Equal(t, serial(s), 2, "the certificate after the change")
	expect.That(t, changes == 1 && strings.Contains(said.String(), `keys="[x.cert x.key]"`), "%d changes, and the log says %q, want one, of x.cert and x.key", changes, said)
}

func TestCertificateIsReadWithoutAHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, dir := newAuthority(t), t.TempDir()
		log, _ := logTo()
		s := need.Got(certfiles.Open(a.write(t, dir, 1, a), log))(t)
		changed := make(chan bool, 1)
		s.Changed = func() { changed <- true }
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.Run(ctx)
		a.write(t, dir, 2, a)
		<-changed
	})
}

func TestReloadReadsFilesOfTheSameTime(t *testing.T) {
	a, b, dir := newAuthority(t), newAuthority(t), t.TempDir()
	log, _ := logTo()
	f := a.write(t, dir, 1, a)
	s := need.Got(certfiles.Open(f, log))(t)
	expect.Deep(t, s.Reload(), []string(nil), "changed")
	writeAt(t, f.CA, b.pem, 1)
	expect.Deep(t, s.Reload(), []string{"x.ca"}, "changed")
}

func TestCertificateThatCannotBeReadChangesNothingAndIsLoggedOnce(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	for name, spoil := range map[string]func(f certfiles.Files){
		"not PEM":                    func(f certfiles.Files) { writeAt(t, f.Cert, []byte("x"), 3) },
		"gone":                       func(f certfiles.Files) { os.Remove(f.Cert) },
		"of another key":             func(f certfiles.Files) { os.Rename(other.write(t, t.TempDir(), 3).Cert, f.Cert) },
		"key readable for the world": func(f certfiles.Files) { a.write(t, filepath.Dir(f.Cert), 3, a); os.Chmod(f.Key, 0o644) },
	} {
		t.Run(name, func(t *testing.T) {
			f := a.write(t, t.TempDir(), 1, a)
			log, said := logTo()
			s := need.Got(certfiles.Open(f, log))(t)
			spoil(f)
			for range 3 {
				expect.Equal(t, serial(s), 1, "the certificate")
			}
			expect.That(t, strings.Count(said.String(), "level=ERROR") == 1 && strings.Contains(said.String(), f.Cert), "the log says %q, want one error that names %s", said, f.Cert)
			need.OK(t, os.Remove(f.Key))
			a.write(t, filepath.Dir(f.Cert), 4, a)
			expect.Equal(t, serial(s), 4, "the certificate after the repair")
		})
	}
}

func TestCertificateThatIsHalfReplacedIsReadWhenItIsWhole(t *testing.T) {
	a, dir := newAuthority(t), t.TempDir()
	f := a.write(t, dir, 1, a)
	log, said := logTo()
	s := need.Got(certfiles.Open(f, log))(t)
	next := a.write(t, t.TempDir(), time.Now().Unix()+3600, a)
	need.OK(t, os.Rename(next.Cert, f.Cert))
	expect.Equal(t, serial(s), 1, "the certificate without its key")
	need.OK(t, os.Rename(next.Key, f.Key))
	expect.That(t, serial(s) != 1 && !strings.Contains(said.String(), "ERROR"), "the pair is not used, or the log says %q", said)
}

func TestAuthoritiesThatCannotBeReadChangeNothing(t *testing.T) {
	a := newAuthority(t)
	for name, text := range map[string][]byte{
		"none": nil, "not PEM": []byte("x"),
		"one of two": append(bytes.Clone(a.pem), "-----BEGIN CERTIFICATE-----\naGFsbG8=\n-----END CERTIFICATE-----\n"...),
	} {
		f := a.write(t, t.TempDir(), 1, a)
		log, said := logTo()
		s := need.Got(certfiles.Open(f, log))(t)
		before := s.Authorities()
		writeAt(t, f.CA, text, 2)
		expect.That(t, s.Authorities() == before && strings.Contains(said.String(), f.CA), "%s: the authorities changed, or the log does not name %s: %q", name, f.CA, said)
	}
}

// connects reports whether a handshake between a listener and a client succeeds, and a byte arrives.
func connects(t *testing.T, server, client *tls.Config) bool {
	t.Helper()
	l := need.Got(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	served := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			defer conn.Close()
			encrypted := tls.Server(conn, server)
			if err = encrypted.Handshake(); err == nil {
				_, err = encrypted.Write([]byte("x"))
			}
		}
		served <- err
	}()
	conn, err := tls.Dial("tcp", l.Addr().String(), client)
	if err == nil {
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1))
	}
	return <-served == nil && err == nil
}

func TestAuthorityThatWasTakenAwayIsRefusedAlsoByAResumedSession(t *testing.T) {
	old, next, dir := newAuthority(t), newAuthority(t), t.TempDir()
	log, _ := logTo()
	for name, server := range map[string]func(*certfiles.Source) *tls.Config{
		"clients":       func(s *certfiles.Source) *tls.Config { return s.Server() },
		"between nodes": func(s *certfiles.Source) *tls.Config { return s.Mutual() },
	} {
		s := need.Got(certfiles.Open(old.write(t, dir, 1, old), log))(t)
		listener := server(s)
		clientOf := func(a authority) *tls.Config {
			f := a.write(t, t.TempDir(), 7, old, next)
			c := need.Got(certfiles.Open(f, log))(t).Client()
			c.ClientSessionCache = tls.NewLRUClientSessionCache(1)
			return c
		}
		before, after := clientOf(old), clientOf(next)
		expect.That(t, connects(t, listener, before) && !connects(t, listener, after), "%s: with the old authority", name)
		old.write(t, dir, 2, old, next)
		expect.That(t, connects(t, listener, before) && connects(t, listener, after), "%s: with both authorities", name)
		next.write(t, dir, 3, next)
		expect.That(t, !connects(t, listener, before) && connects(t, listener, after), "%s: with the new authority", name)
	}
}

func TestCertificateForClientsAloneIsNotAPeers(t *testing.T) {
	a := newAuthority(t)
	log, _ := logTo()
	open := func() *certfiles.Source { return need.Got(certfiles.Open(a.write(t, t.TempDir(), 1, a), log))(t) }
	node, other := open(), open()
	a.uses = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	program := open()
	expect.That(t, connects(t, node.Mutual(), other.Mutual()), "a node is refused")
	expect.That(t, !connects(t, node.Mutual(), program.Mutual()) && !connects(t, node.Mutual(), program.Client()), "a program is an equal")
	expect.That(t, connects(t, node.Server(), program.Client()), "a program is refused where clients are served")
}

func TestTLSIsVersion12AtLeast(t *testing.T) {
	a := newAuthority(t)
	log, _ := logTo()
	s := need.Got(certfiles.Open(a.write(t, t.TempDir(), 1, a), log))(t)
	for _, c := range []*tls.Config{s.Server(), s.Mutual(), s.Client()} {
		expect.That(t, c.MinVersion == tls.VersionTLS12, "least version %#x", c.MinVersion)
	}
}

func TestOnlyAnAuthorityThatHoldsSigns(t *testing.T) {
	now := time.Now()
	a, pair, err := certfiles.NewAuthority("nodes", now)
	need.OK(t, err)
	_, err = certfiles.ReadAuthority(pair)
	need.OK(t, err)
	issued := need.Got(a.Issue("n1", []string{"10.0.0.1"}, certfiles.CertificateLife, now))(t)
	_, err = certfiles.ReadAuthority(issued)
	expect.That(t, err != nil && strings.Contains(err.Error(), `"n1" does not belong to an authority`), "a node's certificate as authority: %v", err)
	late := now.Add(9*365*24*time.Hour + 100*24*time.Hour)
	last := need.Got(a.Issue("n1", nil, certfiles.CertificateLife, late))(t)
	of := func(p certfiles.Pair) *x509.Certificate { return need.Got(tls.X509KeyPair(p.Cert, p.Key))(t).Leaf }
	expect.That(t, of(last).NotAfter.Equal(of(pair).NotAfter), "a late certificate ends %v, the authority %v", of(last).NotAfter, of(pair).NotAfter)
	expect.ErrorSays(t, expect.Err(a.Issue("n1", nil, certfiles.CertificateLife, late.Add(365*24*time.Hour))), "expired", "after its end:")
}
