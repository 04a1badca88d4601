package certfiles

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// Default lifetimes: ten years for an authority, two for a certificate.
const (
	authorityLife   = 10 * 365 * 24 * time.Hour
	CertificateLife = 2 * 365 * 24 * time.Hour
	clockSkew       = time.Hour // how much the clocks of machines may differ
)

// Authority signs certificates of nodes (ECDSA, P-256).
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair is a certificate and its private key, in PEM.
type Pair struct{ Cert, Key []byte }

// NewAuthority creates an authority whose certificate has the given name. An error comes from the system's source of
// randomness.
func NewAuthority(name string, now time.Time) (*Authority, Pair, error) {
	template, key, err := newTemplate(name, now, authorityLife)
	if err != nil {
		return nil, Pair{}, err
	}
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	a := &Authority{template, key}
	pair, err := a.sign(template, key)
	if err != nil {
		return nil, Pair{}, err
	}
	a, err = ReadAuthority(pair)
	return a, pair, err
}

// ReadAuthority reads an authority that NewAuthority made. The error says why the pair is not one.
func ReadAuthority(pair Pair) (*Authority, error) {
	read, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, err
	}
	key, ok := read.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || !read.Leaf.IsCA {
		return nil, fmt.Errorf("the certificate of %q does not belong to an authority with an ECDSA key", read.Leaf.Subject.CommonName)
	}
	return &Authority{read.Leaf, key}, nil
}

// PEM returns the authority's certificate, which others trust.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// Issue issues a certificate under a name: for servers and clients, for its hosts (DNS names and IP addresses) and
// for localhost, or without hosts for clients alone. It expires with the authority's at the latest.
func (a *Authority) Issue(name string, hosts []string, life time.Duration, now time.Time) (Pair, error) {
	template, key, err := newTemplate(name, now, life)
	if err != nil {
		return Pair{}, err
	}
	if !now.Before(a.cert.NotAfter) {
		return Pair{}, fmt.Errorf("the authority %q expired at %v", a.cert.Subject.CommonName, a.cert.NotAfter)
	}
	if template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.DNSNames = []string{name}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(hosts) == 0 {
		return a.sign(template, key)
	}
	template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	template.DNSNames = append(template.DNSNames, "localhost")
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return a.sign(template, key)
}

func newTemplate(name string, now time.Time, life time.Duration) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, err
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(life),
	}, key, nil
}

// sign makes a certificate for a key, and returns both in PEM.
func (a *Authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) (Pair, error) {
	cert, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return Pair{}, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}, nil
}
