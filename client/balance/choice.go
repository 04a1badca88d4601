package balance

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// ErrNoInstance: the service has no instance that is UP and listens for the URL's scheme.
var ErrNoInstance = errors.New("no instance to call")

// address is where an instance is connected to.
type address struct {
	host string
	port uint16
}

// String returns host:port, as URLs have it.
func (a address) String() string { return net.JoinHostPort(a.host, strconv.Itoa(int(a.port))) }

// addressOf is where an instance listens for a scheme; the zero address: nowhere.
func (t *Transport) addressOf(i *registry.Instance, scheme string) address {
	host, port := t.host(i), i.PortFor(scheme == "https")
	if host == "" || port == 0 {
		return address{}
	}
	return address{host, port}
}

func (t *Transport) asListed(i *registry.Instance, scheme string) listed {
	return listed{t.addressOf(i, scheme), i.LastDirty}
}

// choice is the instance for one try.
type choice struct {
	listed
	of int // how many it was chosen from
}

// choose chooses an instance for a URL among those that are listed now and were not tried, if possible
// one that is not avoided.
func (t *Transport) choose(u *url.URL, tried []address) (choice, error) {
	if u == nil {
		return choice{}, errors.New("the request has no URL")
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return choice{}, fmt.Errorf("scheme %q of %s is not http or https", u.Scheme, u.Redacted())
	}
	list := t.list.Snapshot()
	up := t.lookup(list, u.Scheme, u.Host)
	fit := keep(up, func(i *registry.Instance) bool {
		at := t.addressOf(i, u.Scheme)
		return at != address{} && !slices.Contains(tried, at)
	})
	switch {
	case len(fit) > 0:
	case len(up) > 0:
		return choice{}, fmt.Errorf("service %q: %w: none of the %d that are UP has a host and its %s enabled", u.Host, ErrNoInstance, len(up), portName(u.Scheme))
	case list.Len() == 0:
		return choice{}, fmt.Errorf("service %q: %w: the list of all instances is empty (Discovery.Ready waits for it)", u.Host, ErrNoInstance)
	default:
		return choice{}, fmt.Errorf("service %q: %w: none is UP", u.Host, ErrNoInstance)
	}
	picked := t.picker.Pick(t.unavoided(fit, u.Scheme))
	if picked == nil {
		return choice{}, fmt.Errorf("service %q: %w: the Picker took none of %d", u.Host, ErrNoInstance, len(fit))
	}
	return choice{t.asListed(picked, u.Scheme), len(fit)}, nil
}

func portName(scheme string) string {
	if scheme == "https" {
		return "securePort"
	}
	return "port"
}

// unavoided returns those of list that are not avoided, or all if all are.
func (t *Transport) unavoided(list []*registry.Instance, scheme string) []*registry.Instance {
	avoided := t.avoided.now()
	if avoided == nil {
		return list
	}
	rest := keep(list, func(i *registry.Instance) bool {
		_, avoid := avoided[t.asListed(i, scheme)]
		return !avoid
	})
	if len(rest) == 0 {
		return list
	}
	return rest
}

// keep returns those of list that are good: list itself if all are, as nearly always.
func keep(list []*registry.Instance, good func(*registry.Instance) bool) []*registry.Instance {
	bad := slices.IndexFunc(list, func(i *registry.Instance) bool { return !good(i) })
	if bad < 0 {
		return list
	}
	kept := slices.Clone(list[:bad])
	for _, i := range list[bad+1:] {
		if good(i) {
			kept = append(kept, i)
		}
	}
	return kept
}
