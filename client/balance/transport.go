package balance

import (
	"errors"
	"net/http"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// ErrNoInstance: the service has no instance that is UP.
var ErrNoInstance = errors.New("no instance is UP")

// Defaults of a Transport.
const (
	DefaultTries = 3
	DefaultAvoid = 10 * time.Second
)

// List is where a Transport looks instances up: a *client.Discovery.
type List interface{ Snapshot() *client.Snapshot }

// Config is what a Transport needs. List is required; every other field has a default.
type Config struct {
	List List
	// Lookup finds the instances that may be called for a URL. Nil: ByApp.
	Lookup func(s *client.Snapshot, scheme, host string) []*registry.Instance
	Picker Picker            // nil: RoundRobin
	Base   http.RoundTripper // sends the requests; nil: http.DefaultTransport
	// Tries is how many instances are tried for one request at most. Another one is tried only if the
	// connection could not be made, so that nothing was sent. 0: DefaultTries.
	Tries int
	// Avoid is for how long an instance that could not be connected to is passed over, unless all are: it
	// may be dead before the registry knows. 0: DefaultAvoid; negative: it is not.
	Avoid time.Duration
}

// ByApp takes the host of a URL for an application: http://orders/path.
func ByApp(s *client.Snapshot, scheme, host string) []*registry.Instance { return s.App(host) }

// ByVIP takes the host of a URL for a VIP address, or for a secure VIP address with https.
func ByVIP(s *client.Snapshot, scheme, host string) []*registry.Instance { panic("not written") }

// Transport is an http.RoundTripper that sends a request for a service to one of its instances: the host
// of the URL names the service, the port is the instance's (its secure port with https). The Host header
// is the instance's, unless the request gives one. Safe for concurrent use.
type Transport struct{}

// New returns a Transport. The error joins every mistake of the configuration.
func New(c Config) (*Transport, error) { panic("not written") }

// RoundTrip implements http.RoundTripper. ErrNoInstance: there is none to call.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) { panic("not written") }
