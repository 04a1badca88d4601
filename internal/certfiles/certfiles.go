// Package certfiles reads key pairs and authorities from PEM files that may be replaced while they are used, and has
// a small authority that signs certificates of nodes. Its TLS configurations use what the files hold at each
// handshake; it does nothing about existing connections.
package certfiles

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Files are the names of a key pair and of the file of authorities. A name may be empty.
type Files struct {
	Cert, Key, CA string
	// Keys are the settings that name the three, for errors and the log.
	Keys [3]string
}

// checkInterval is how often the files are checked besides handshakes: long-lived connections need none.
const checkInterval = 10 * time.Second

// Source is the contents of the files. Safe for concurrent use.
type Source struct {
	files Files
	log   *slog.Logger
	// Changed is called after the contents of the files have changed. It may be nil, and is set before Run and the
	// first handshake.
	Changed func()

	pair atomic.Pointer[tls.Certificate]
	pool atomic.Pointer[x509.CertPool]

	mu sync.Mutex // guards the fields below
	at stamps
}

// stamps are the times when each of the files last changed; zero for one that does not exist.
type stamps [3]time.Time

// Open reads the files for the first time. Later failures leave in use what was read before.
func Open(f Files, log *slog.Logger) (*Source, error) {
	s := &Source{files: f, log: log}
	s.at = s.modified()
	pair, pool, err := s.read()
	s.pair.Store(pair)
	s.pool.Store(pool)
	return s, err
}

// Certificate returns the current pair, or nil if the files have none.
func (s *Source) Certificate() *tls.Certificate {
	s.Check()
	return s.pair.Load()
}

// Authorities returns the current authorities, or nil if the files have none.
func (s *Source) Authorities() *x509.CertPool {
	s.Check()
	return s.pool.Load()
}

// Run checks the files at intervals until ctx ends.
func (s *Source) Run(ctx context.Context) {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.Check()
		case <-ctx.Done():
			return
		}
	}
}

// Check reads the files again if one of them was changed. It costs three stats. Each change is read once: a pair that
// is half replaced is read again when its other half changes.
func (s *Source) Check() {
	s.mu.Lock()
	at := s.modified()
	if at == s.at {
		s.mu.Unlock()
		return
	}
	pair, pool, err := s.read()
	if err != nil && time.Since(at.newest()) < replacing {
		s.mu.Unlock()
		return // the next check reads them again
	}
	s.at = at
	changed := s.replace(pair, pool, err)
	s.mu.Unlock()
	s.announce(changed)
}

// replacing is how long the other half of a pair may take to be replaced before an error counts.
const replacing = time.Second

// newest returns the time of the last change.
func (s stamps) newest() time.Time {
	return slices.MaxFunc(s[:], time.Time.Compare)
}

// Reload reads the files again, whenever they were changed, and returns the settings whose files have changed.
func (s *Source) Reload() (changed []string) {
	s.mu.Lock()
	s.at = s.modified()
	changed = s.replace(s.read())
	s.mu.Unlock()
	s.announce(changed)
	return changed
}

func (s *Source) announce(changed []string) {
	if len(changed) == 0 {
		return
	}
	s.log.Info("changed certificates are in use", "keys", changed)
	if s.Changed != nil {
		s.Changed()
	}
}

// replace uses what could be read, and returns the settings whose files have changed.
func (s *Source) replace(pair *tls.Certificate, pool *x509.CertPool, err error) (changed []string) {
	if err != nil {
		s.log.Error("changed certificates cannot be read, the old ones stay in use", "err", err)
	}
	if old := s.pair.Load(); pair != nil && !samePair(old, pair) {
		s.pair.Store(pair)
		changed = append(changed, s.files.Keys[0], s.files.Keys[1])
	}
	if old := s.pool.Load(); pool != nil && !pool.Equal(old) {
		s.pool.Store(pool)
		changed = append(changed, s.files.Keys[2])
	}
	return changed
}

// samePair compares the chains: another key has another certificate.
func samePair(a, b *tls.Certificate) bool {
	if a == nil || len(a.Certificate) != len(b.Certificate) {
		return false
	}
	for i := range a.Certificate {
		if string(a.Certificate[i]) != string(b.Certificate[i]) {
			return false
		}
	}
	return true
}

// read reads all files. What one of them does not provide is nil.
func (s *Source) read() (pair *tls.Certificate, pool *x509.CertPool, err error) {
	var errs []error
	if s.files.Cert != "" {
		read, err := tls.LoadX509KeyPair(s.files.Cert, s.files.Key)
		err = errors.Join(CheckPrivate(s.files.Key), err)
		if err == nil {
			pair = &read
		} else {
			errs = append(errs, fmt.Errorf("%s and %s (%s and %s): %w", s.files.Keys[0], s.files.Keys[1], s.files.Cert, s.files.Key, err))
		}
	}
	if s.files.CA != "" {
		if pool, err = ReadPool(s.files.CA); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.files.Keys[2], err))
		}
	}
	return pair, pool, errors.Join(errs...)
}

func (s *Source) modified() (at stamps) {
	for i, path := range []string{s.files.Cert, s.files.Key, s.files.CA} {
		if info, err := os.Stat(path); path != "" && err == nil {
			at[i] = info.ModTime()
		}
	}
	return at
}

// ReadPool reads the certificates of authorities from a PEM file. Every one must be readable.
func ReadPool(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool, count := x509.NewCertPool(), 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		count++
		authority, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: certificate %d: %w", path, count, err)
		}
		pool.AddCert(authority)
	}
	if count == 0 {
		return nil, fmt.Errorf("%s holds no PEM certificate", path)
	}
	return pool, nil
}
