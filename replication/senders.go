package replication

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// name returns the name of the Eureka server that sends from an identity (DiscoveryIdentity-Id, may be empty) and an
// address (host:port): the peer with that host, otherwise "eureka".
func (s *eurekaSenders) name(peers []link.PeerConfig, identity, address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	names := s.names(peers)
	for _, known := range []string{identity, host} {
		if name, ok := names[canonical(known)]; ok {
			return name
		}
	}
	return registry.FromEureka.DC
}

// The names of servers' hosts are looked up again after a while, because addresses move. A server waits 200 ms for
// the response to its batch, so no lookup may take long.
const (
	lookupEvery = time.Minute
	lookupLimit = 100 * time.Millisecond
)

// eurekaSenders knows Eureka servers by their hosts and addresses. The zero value is ready for use.
type eurekaSenders struct {
	known  atomic.Pointer[knownSenders]
	lookup sync.Mutex // held by the one caller that looks up
}

// forget has the servers looked up again, because the peers have changed.
func (s *eurekaSenders) forget() { s.known.Store(nil) }

type knownSenders struct {
	at    time.Time
	names map[string]string // by host and by address
}

// names returns the servers by their hosts and addresses. While one caller looks them up, the others use what was
// known, and wait only if nothing was.
func (s *eurekaSenders) names(peers []link.PeerConfig) map[string]string {
	before := s.known.Load()
	if before != nil && time.Since(before.at) < lookupEvery {
		return before.names
	}
	if before == nil {
		s.lookup.Lock()
	} else if !s.lookup.TryLock() {
		return before.names
	}
	defer s.lookup.Unlock()
	if now := s.known.Load(); now != nil && now != before {
		return now.names // another caller was first
	}
	now := &knownSenders{at: time.Now(), names: lookupSenders(peers, before)}
	s.known.Store(now)
	return now.names
}

// lookupSenders looks up all Eureka servers. If several share a host or address the first counts; a host that cannot
// be looked up keeps its old addresses.
func lookupSenders(peers []link.PeerConfig, before *knownSenders) map[string]string {
	ctx, cancel := context.WithTimeout(context.Background(), lookupLimit)
	defer cancel()
	names := map[string]string{}
	add := func(address, name string) {
		if _, known := names[canonical(address)]; !known {
			names[canonical(address)] = name
		}
	}
	for _, p := range peers {
		if p.Kind != link.Eureka {
			continue
		}
		service, err := url.Parse(p.URLs[0])
		if err != nil {
			continue
		}
		add(service.Hostname(), p.Name)
		addresses, err := net.DefaultResolver.LookupHost(ctx, service.Hostname())
		for _, address := range addresses {
			add(address, p.Name)
		}
		if err != nil && before != nil {
			for address, name := range before.names {
				if name == p.Name {
					add(address, name)
				}
			}
		}
	}
	return names
}

// canonical returns an address in its canonical form; other text is returned unchanged.
func canonical(host string) string {
	a, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	return a.Unmap().WithZone("").String()
}
