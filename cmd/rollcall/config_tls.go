package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

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
		checkKeyFile("http.tls.key", h.Key),
		checkFile("http.tls.client-ca", h.ClientCA),
		checkFile("cluster.tls.cert", n.Cert),
		checkKeyFile("cluster.tls.key", n.Key),
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

// checkFile wants a file where one is named.
func checkFile(name, path string) error {
	if path == "" {
		return nil
	}
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// checkKeyFile refuses a private key that others than owner and group could read.
func checkKeyFile(name, path string) error {
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
