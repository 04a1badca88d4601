package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// open reads the HTTP listener's certificate; nil if none is configured.
func (c *HTTPTLSConfig) open(warn func(error)) (*certificate, error) {
	if c.Cert == "" {
		return nil, nil
	}
	pair, err := openCertificate(c.Cert, c.Key, warn)
	if err != nil {
		return nil, fmt.Errorf("http.tls.cert and http.tls.key: %w", err)
	}
	return pair, nil
}

// config returns the TLS configuration of the HTTP listener.
func (c *HTTPTLSConfig) config(pair *certificate) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: pair.get}
	if c.ClientCA == "" {
		return config, nil
	}
	pool, err := readPool(c.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("http.tls.client-ca: %w", err)
	}
	config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, pool
	return config, nil
}

func readPool(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no PEM certificate", path)
	}
	return pool, nil
}
