package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// ReplicationTLSConfig is the trust in peers with https URLs, and the certificate that they are shown.
type ReplicationTLSConfig struct {
	CA   string `key:"replication.tls.ca" help:"PEM file with the authorities of the peers' certificates; empty: the system's"`
	Cert string `key:"replication.tls.cert" help:"PEM file with the certificate that is shown to peers that ask for one"`
	Key  string `key:"replication.tls.key" help:"PEM file with its key, of mode 0640 or narrower"`
}

// open reads the files; nil if none is configured.
func (c *ReplicationTLSConfig) open() (*tls.Config, error) {
	if c.CA == "" && c.Cert == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		pool, err := ReadPool(c.CA)
		if err != nil {
			return nil, fmt.Errorf("replication.tls.ca: %w", err)
		}
		config.RootCAs = pool
	}
	if c.Cert != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, fmt.Errorf("replication.tls.cert and replication.tls.key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// widestKey is the widest mode of a private key's file: owner writes, group reads.
const widestKey fs.FileMode = 0o640

func (c *Config) validateTLS() error {
	h, n := &c.HTTP.TLS, &c.Store.TLS
	var errs []error
	if (h.Cert == "") != (h.Key == "") {
		errs = append(errs, errors.New("http.tls: cert and key belong together; give both or none"))
	}
	if h.ClientCA != "" && h.Cert == "" {
		errs = append(errs, errors.New("http.tls.client-ca: needs http.tls.cert and http.tls.key"))
	}
	if given := countGiven(n.Cert, n.Key, n.CA); given != 0 && given != 3 {
		errs = append(errs, errors.New("cluster.tls: cert, key and ca belong together; give all three or none"))
	}
	return errors.Join(append(errs,
		checkFile("http.tls.cert", h.Cert),
		CheckKeyFile("http.tls.key", h.Key),
		checkFile("http.tls.client-ca", h.ClientCA),
		checkFile("cluster.tls.cert", n.Cert),
		CheckKeyFile("cluster.tls.key", n.Key),
		checkFile("cluster.tls.ca", n.CA),
	)...)
}

func countGiven(texts ...string) int {
	n := 0
	for _, t := range texts {
		if t != "" {
			n++
		}
	}
	return n
}

// checkFile wants the file that a setting names; an empty path names none.
func checkFile(name, path string) error {
	if path == "" {
		return nil
	}
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// CheckKeyFile refuses a private key that is readable beyond its owner and group. An empty path names none.
func CheckKeyFile(name, path string) error {
	if err := checkFile(name, path); err != nil || path == "" {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if mode := info.Mode().Perm(); mode&^widestKey != 0 {
		return fmt.Errorf("%s: %s has mode %#o, wider than %#o; chmod it", name, path, mode, widestKey)
	}
	return nil
}

// ReadPool reads the certificates of authorities from a PEM file.
func ReadPool(path string) (*x509.CertPool, error) {
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
