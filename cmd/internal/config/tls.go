package config

import (
	"errors"
	"log/slog"
	"os"
	"slices"

	"github.com/seed-20419f34/rollcall/internal/certfiles"
)

// replicationTLSConfig says which peers with https URLs are trusted, and which certificate they are shown.
type replicationTLSConfig struct {
	CA   string `key:"replication.tls.ca" path:"yes" help:"PEM file with the authorities of the peers' certificates; empty: the system's; this file and the other two are reread when they change"`
	Cert string `key:"replication.tls.cert" path:"yes" help:"PEM file with the certificate for peers that ask for one"`
	Key  string `key:"replication.tls.key" path:"yes" help:"PEM file with its key; mode 0640 or stricter"`
}

// Open reads the files. It returns nil if none is configured.
func (c *replicationTLSConfig) Open(log *slog.Logger) (*certfiles.Source, error) {
	if c.CA == "" && c.Cert == "" {
		return nil, nil
	}
	return certfiles.Open(certfiles.Files{Cert: c.Cert, Key: c.Key, CA: c.CA, Keys: [3]string{"replication.tls.cert", "replication.tls.key", "replication.tls.ca"}}, log)
}

// Open reads the files. It returns nil if none is configured.
func (c *httpTLSConfig) Open(log *slog.Logger) (*certfiles.Source, error) {
	if c.Cert == "" {
		return nil, nil
	}
	return certfiles.Open(certfiles.Files{Cert: c.Cert, Key: c.Key, CA: c.ClientCA, Keys: [3]string{"http.tls.cert", "http.tls.key", "http.tls.client-ca"}}, log)
}

func (c *Config) validateTLS() error {
	h, n := &c.HTTP.TLS, &c.Store.TLS
	var errs []error
	if (h.Cert == "") != (h.Key == "") {
		errs = append(errs, errors.New("http.tls: cert and key belong together; give both or none"))
	}
	if h.ClientCA != "" && h.Cert == "" {
		errs = append(errs, errors.New("http.tls.client-ca: needs http.tls.cert and http.tls.key"))
	}
	if missing := slices.Contains([]string{n.Cert, n.Key, n.CA}, ""); missing && n.Cert+n.Key+n.CA != "" {
		errs = append(errs, errors.New("cluster.tls: cert, key and ca belong together; give all three or none"))
	}
	return errors.Join(append(errs,
		checkFile("http.tls.cert", h.Cert, os.Stat),
		checkKeyFile("http.tls.key", h.Key),
		checkFile("http.tls.client-ca", h.ClientCA, certfiles.ReadPool),
		checkFile("cluster.tls.cert", n.Cert, os.Stat),
		checkKeyFile("cluster.tls.key", n.Key),
		checkFile("cluster.tls.ca", n.CA, certfiles.ReadPool),
	)...)
}

// checkFile checks that read accepts the file that a setting names; an empty path names none.
func checkFile[T any](name, path string, read func(path string) (T, error)) error {
	if path == "" {
		return nil
	}
	_, err := read(path)
	return prefix(name, err)
}

// checkKeyFile refuses a private key that is readable beyond its owner and group. An empty path names none.
func checkKeyFile(name, path string) error {
	if path == "" {
		return nil
	}
	return prefix(name, certfiles.CheckPrivate(path))
}
