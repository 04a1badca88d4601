package certfiles

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
)

// Server returns the TLS configuration of a listener that shows the pair. If there are authorities, clients must show
// a certificate from one of them.
func (s *Source) Server(protocols ...string) *tls.Config {
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.Certificate(), nil },
	}
	if s.files.CA != "" {
		s.demand(c)
	}
	return c
}

// Mutual returns the TLS configuration for both sides of connections between equals, which recognize each other by
// certificates from the authorities and not by host names. Finding out who the other one is, is left to the caller.
func (s *Source) Mutual() *tls.Config {
	c := s.Server()
	c.GetClientCertificate = s.clientCertificate
	// A check of the chain in VerifyConnection replaces the standard library's check of the host name.
	c.InsecureSkipVerify, c.VerifyConnection = true, s.verifyChain
	return c
}

// demand makes clients show a certificate from the current authorities; crypto/tls resumes no session with one from
// another.
func (s *Source) demand(c *tls.Config) {
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := c.Clone()
		now.GetConfigForClient = nil
		now.ClientAuth, now.ClientCAs = tls.RequireAndVerifyClientCert, s.Authorities()
		return now, nil
	}
}

// Client returns the current TLS configuration for clients of servers that have certificates from the authorities
// (the system's if there are none), and that are known by host name.
func (s *Source) Client() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: s.Authorities(), GetClientCertificate: s.clientCertificate}
}

func (s *Source) clientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if pair := s.Certificate(); pair != nil {
		return pair, nil
	}
	return new(tls.Certificate), nil
}

// verifyChain requires a certificate from the current authorities that is valid for servers: one for clients alone
// makes nobody an equal.
func (s *Source) verifyChain(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("peer sent no certificate")
	}
	opts := x509.VerifyOptions{Roots: s.Authorities(), Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, c := range state.PeerCertificates[1:] {
		opts.Intermediates.AddCert(c)
	}
	_, err := state.PeerCertificates[0].Verify(opts)
	return err
}
