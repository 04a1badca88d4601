package certfiles

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
)

// Server is the TLS of a listener that shows the pair; with authorities, clients must show a certificate of one of them.
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

// Mutual is the TLS of both sides of connections between equals, which know each other by certificates of the authorities
// and not by host names: who the other one is, is left to the caller.
func (s *Source) Mutual() *tls.Config {
	c := s.Server()
	c.GetClientCertificate = s.clientCertificate
	// The host name check of the standard library is replaced by one of the chain in VerifyConnection.
	c.InsecureSkipVerify, c.VerifyConnection = true, s.verifyChain
	return c
}

// demand makes clients show a certificate of the authorities of now; crypto/tls resumes no session with one of another.
func (s *Source) demand(c *tls.Config) {
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := c.Clone()
		now.GetConfigForClient = nil
		now.ClientAuth, now.ClientCAs = tls.RequireAndVerifyClientCert, s.Authorities()
		return now, nil
	}
}

// Client is the TLS of now of clients of servers that have certificates of the authorities (none: the system's), and that
// are known by host name.
func (s *Source) Client() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: s.Authorities(), GetClientCertificate: s.clientCertificate}
}

func (s *Source) clientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if pair := s.Certificate(); pair != nil {
		return pair, nil
	}
	return new(tls.Certificate), nil
}

// verifyChain wants a certificate of the authorities of now, for servers: one that is for clients alone makes nobody an equal.
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
