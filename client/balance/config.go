package balance

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Defaults of a Transport.
const (
	DefaultTries   = 3
	DefaultAvoid   = 10 * time.Second
	DefaultConnect = 2 * time.Second
)

// List is where a Transport looks instances up: a *client.Discovery.
type List interface{ Snapshot() *client.Snapshot }

// Config is what a Transport needs. List is required; every other field has a default.
type Config struct {
	List List
	// Lookup finds the instances that may be called for a URL, of its scheme and its host (with the port,
	// if it is written with one). Nil: ByApp.
	Lookup func(s *client.Snapshot, scheme, host string) []*registry.Instance
	// Host is the name or address at which an instance is called; "": it cannot be. Nil: ByHostName.
	Host   func(i *registry.Instance) string
	Picker Picker // nil: RoundRobin
	// Base sends the requests. How long it waits for a connection is how long a host that says nothing is
	// waited for. Nil: a transport like http.DefaultTransport that waits for DefaultConnect, or for the
	// share of a try in what is left until the request's deadline.
	Base http.RoundTripper
	// Tries is how many instances are tried for one request at most. Another one is tried if the connection
	// could not be made, so that nothing was sent; and if it was cut off before an answer began and the
	// request may be sent twice, which net/http takes a GET, HEAD, OPTIONS and TRACE for, and whatever has
	// a header Idempotency-Key. 0: DefaultTries.
	Tries int
	// Avoid is for how long an instance that could not be connected to is passed over, unless all are, or
	// until it has registered anew: it may be dead before the registry knows. 0: DefaultAvoid; negative: it is not.
	Avoid time.Duration
}

// ByApp takes the host of a URL for an application: http://orders/path.
func ByApp(s *client.Snapshot, scheme, host string) []*registry.Instance { return s.App(host) }

// ByVIP takes the host of a URL for a VIP address, or for a secure VIP address with https.
func ByVIP(s *client.Snapshot, scheme, host string) []*registry.Instance {
	if scheme == "https" {
		return s.SecureVIP(host)
	}
	return s.VIP(host)
}

// ByHostName calls an instance by its host name, or by its address if it has none.
func ByHostName(i *registry.Instance) string { return cmp.Or(i.HostName, i.IPAddr) }

// ByIP calls an instance by its address, or by its host name if it has none: where host names cannot be
// resolved, as those of containers often are.
func ByIP(i *registry.Instance) string { return cmp.Or(i.IPAddr, i.HostName) }

// Validate reports every mistake at once.
func (c Config) Validate() error {
	var errs []error
	if c.List == nil {
		errs = append(errs, errors.New("no List is given; give a *client.Discovery"))
	}
	if c.Tries < 0 {
		errs = append(errs, fmt.Errorf("tries %d is negative; give at least 1, or 0 for %d", c.Tries, DefaultTries))
	}
	return errors.Join(errs...)
}
