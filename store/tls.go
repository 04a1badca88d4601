package store

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLSFiles are the PEM files of mutual TLS on the node-to-node port. The certificate must be usable
// for client and server authentication and must name the node (node.name as a DNS name of its
// subject alternative names), because a certificate proves the name of a node, not its address.
type TLSFiles struct {
	Cert string `key:"cluster.tls.cert" help:"PEM file with the node's certificate, for both directions"`
	Key  string `key:"cluster.tls.key" help:"PEM file with its key, of mode 0640 or narrower"`
	CA   string `key:"cluster.tls.ca" help:"PEM file with the authority of all nodes' certificates and of nothing else"`
}

// Config returns a TLS configuration that accepts exactly the certificates of the CA. The name of
// the node at the other end is checked after the hello, by verifyName in package port.
func (f TLSFiles) Config() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("cluster.tls.cert and cluster.tls.key: %w", err)
	}
	pem, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, fmt.Errorf("cluster.tls.ca: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("cluster.tls.ca: %s holds no PEM certificate", f.CA)
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{cert},
		ClientCAs:    roots,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		// Nodes are dialled by address and known by name, so the host name check of the standard
		// library is replaced by a check of the chain here and of the name after the hello.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 {
				return errors.New("peer sent no certificate")
			}
			opts := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
			for _, c := range s.PeerCertificates[1:] {
				opts.Intermediates.AddCert(c)
			}
			_, err := s.PeerCertificates[0].Verify(opts)
			return err
		},
	}, nil
}
