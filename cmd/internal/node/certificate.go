package node

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
)

// certificate is a key pair in two files that may be replaced at any time.
type certificate struct {
	cert, key string
	// warn is called once per change with the reason why a changed pair is not used.
	warn func(error)

	mu      sync.Mutex
	pair    *tls.Certificate
	changed [2]time.Time // times of the files when they were checked last
}

// openCertificate reads the pair for the first time; later failures leave the old pair in use.
func openCertificate(cert, key string, warn func(error)) (*certificate, error) {
	c := &certificate{cert: cert, key: key, warn: warn}
	changed, err := c.modified()
	if err != nil {
		return nil, err
	}
	return c, c.read(changed)
}

// get implements tls.Config.GetCertificate. It costs two stats per handshake. Each change of the files is read once: a
// pair that is half replaced is read again when its other half changes.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed, err := c.modified()
	if changed == c.changed {
		return c.pair, nil
	}
	if err == nil {
		err = c.read(changed)
	}
	c.changed = changed
	if err != nil {
		c.warn(err)
	}
	return c.pair, nil
}

func (c *certificate) read(changed [2]time.Time) error {
	if err := config.CheckKeyFile("http.tls.key", c.key); err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return err
	}
	c.pair, c.changed = &pair, changed
	return nil
}

// modified returns the times at which the files changed last; zero times if one of them is not there.
func (c *certificate) modified() (at [2]time.Time, err error) {
	for i, path := range []string{c.cert, c.key} {
		info, err := os.Stat(path)
		if err != nil {
			return [2]time.Time{}, err
		}
		at[i] = info.ModTime()
	}
	return at, nil
}

// expiry is a metric: the end of the served certificate, in seconds since the epoch.
func (c *certificate) expiry() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rollcall_http_certificate_expiry_timestamp_seconds",
		Help: "When the certificate of the HTTP listener ends, in seconds since the epoch.",
	}, func() float64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		return float64(c.pair.Leaf.NotAfter.Unix())
	})
}

// openHTTPCertificate reads the HTTP listener's certificate; nil if none is configured.
func openHTTPCertificate(c *config.HTTPTLSConfig, warn func(error)) (*certificate, error) {
	if c.Cert == "" {
		return nil, nil
	}
	pair, err := openCertificate(c.Cert, c.Key, warn)
	if err != nil {
		return nil, fmt.Errorf("http.tls.cert and http.tls.key: %w", err)
	}
	return pair, nil
}

// tlsConfig returns the TLS configuration of the HTTP listener.
func tlsConfig(c *config.HTTPTLSConfig, pair *certificate) (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: pair.get}
	if c.ClientCA == "" {
		return t, nil
	}
	pool, err := config.ReadPool(c.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("http.tls.client-ca: %w", err)
	}
	t.ClientAuth, t.ClientCAs = tls.RequireAndVerifyClientCert, pool
	return t, nil
}
