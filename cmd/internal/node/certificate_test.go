package node

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// writePair makes a certificate for 127.0.0.1 with this serial number and writes it and its key as
// if they had changed at that second.
func writePair(t *testing.T, dir string, serial int64) (cert, key string) {
	t.Helper()
	private := need.Got(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der := need.Got(x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private))(t)
	privateDER := need.Got(x509.MarshalECPrivateKey(private))(t)
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writeAt(t, cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), serial)
	writeAt(t, key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: privateDER}), serial)
	return cert, key
}

func writeAt(t *testing.T, path string, content []byte, second int64) {
	t.Helper()
	need.OK(t, os.WriteFile(path, content, 0o600))
	at := time.Unix(second, 0)
	need.OK(t, os.Chtimes(path, at, at))
}

func serial(t *testing.T, c *certificate) int64 {
	t.Helper()
	pair := need.Got(c.get(nil))(t)
	return pair.Leaf.SerialNumber.Int64()
}

func TestCertificateIsServedAnewWithoutARestart(t *testing.T) {
	dir := t.TempDir()
	if _, err := openCertificate(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), nil); err == nil {
		t.Fatal("no error without files")
	}
	cert, key := writePair(t, dir, 1)
	c := need.Got(openCertificate(cert, key, func(err error) { t.Errorf("warning: %v", err) }))(t)
	expect.Equal(t, serial(t, c), 1, "serves certificate")
	writePair(t, dir, 2)
	got := serial(t, c)
	expect.That(t, got == 2, "serves certificate %d after the renewal, want 2", got)
}

func TestCertificateStaysTheOldOneAndWarnsOnceWhenTheNewOneCannotBeUsed(t *testing.T) {
	for name, spoil := range map[string]func(cert, key string){
		"not PEM":                    func(cert, _ string) { writeAt(t, cert, []byte("x"), 3) },
		"gone":                       func(cert, _ string) { os.Remove(cert) },
		"of another key":             func(cert, _ string) { other, _ := writePair(t, t.TempDir(), 3); os.Rename(other, cert) },
		"key readable for the world": func(cert, key string) { writePair(t, filepath.Dir(cert), 3); os.Chmod(key, 0o644) },
	} {
		t.Run(name, func(t *testing.T) {
			cert, key := writePair(t, t.TempDir(), 1)
			warnings := 0
			c := need.Got(openCertificate(cert, key, func(error) { warnings++ }))(t)
			spoil(cert, key)
			for range 3 {
				got := serial(t, c)
				expect.That(t, got == 1, "serves certificate %d, want the old one", got)
			}
			expect.That(t, warnings == 1, "%d warnings, want one", warnings)
			need.OK(t, os.Remove(key))
			writePair(t, filepath.Dir(cert), 4)
			expect.Equal(t, serial(t, c), 4, "the certificate that is served after the repair:")
		})
	}
}

func TestTLSRefusesVersionsBelow12AndClientsWithoutACertificate(t *testing.T) {
	cert, key := writePair(t, t.TempDir(), 1)
	settings := config.HTTPTLSConfig{Cert: cert, Key: key, ClientCA: cert}
	pair := need.Got(openHTTPCertificate(&settings, nil))(t)
	config := need.Got(tlsConfig(&settings, pair))(t)
	expect.That(t, config.MinVersion == tls.VersionTLS12 && config.ClientAuth == tls.RequireAndVerifyClientCert && config.ClientCAs != nil,
		"least version %#x, client certificates %v", config.MinVersion, config.ClientAuth)
}
