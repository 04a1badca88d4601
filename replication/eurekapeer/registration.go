package eurekapeer

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/setting"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// Eureka servers register with each other as an application of this name. They show a peer as available only if an
// instance of it has the host of the peer's URL.
const serverApp = "EUREKA"

const (
	selfInterval = registry.DefaultRenewalInterval * time.Second
	selfRetry    = 5 * time.Second
	cancelLimit  = time.Second // for the last call, when the node stops sending
)

// Run keeps this node registered with the server, as a client of it. Replication does not depend on that: a failure
// is only tried again.
func (l *Link) Run(ctx context.Context) error {
	self := &registration{Link: l, lease: selfLease(ctx, l.env.HTTP, l.env.World.Now())}
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			self.cancel(ctx)
			return nil
		case <-next.C:
		}
		err := self.renew(ctx)
		if changed := self.failing != (err != nil); changed && ctx.Err() == nil {
			if self.failing = err != nil; self.failing {
				self.env.Log.Warn("this node cannot register with a Eureka server", "peer", self.env.Peer.Name, "err", err)
			} else {
				self.env.Log.Info("this node is registered with a Eureka server", "peer", self.env.Peer.Name)
			}
		}
		if err != nil {
			next.Reset(selfRetry)
		} else {
			next.Reset(selfInterval)
		}
	}
}

// registration is this node's own registration. It belongs to Run.
type registration struct {
	*Link
	lease      *registry.Lease
	registered bool
	possible   bool // the response to a registration was lost: it may have been made
	failing    bool
}

// renew renews the registration, or makes it.
func (s *registration) renew(ctx context.Context) error {
	if s.registered {
		i := s.lease.Instance
		target := instancePath(i.Key()) + "?status=" + i.Status.String() + "&lastDirtyTimestamp=" + strconv.FormatInt(i.LastDirty, 10)
		resp, err := s.ask(ctx, false, http.MethodPut, target, nil)
		if err != nil || resp.ok() {
			return err
		}
		s.registered = false
		if resp.status != http.StatusNotFound {
			return refusedCall(http.MethodPut, target, resp)
		}
	}
	return s.register(ctx)
}

func (s *registration) register(ctx context.Context) error {
	const target = "/apps/" + serverApp
	resp, err := s.ask(ctx, false, http.MethodPost, target, eureka.AppendInstanceDocument(nil, eureka.Format{}, s.lease, s.lease.RenewedAt))
	if s.possible = err != nil; s.possible {
		return err
	}
	if !resp.ok() {
		return refusedCall(http.MethodPost, target, resp)
	}
	s.registered = true
	return nil
}

// cancel cancels the registration after ctx has ended; a node that dies without it is evicted in time.
func (s *registration) cancel(ctx context.Context) {
	if !s.registered && !s.possible {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelLimit)
	defer cancel()
	if _, err := s.ask(ctx, false, http.MethodDelete, instancePath(s.lease.Key()), nil); err != nil {
		s.env.Log.Debug("this node stays registered with a Eureka server until that evicts it", "peer", s.env.Peer.Name, "err", err)
	}
}

// selfLease describes this node as an instance that listens at an address (host:port).
func selfLease(ctx context.Context, address string, wall time.Time) *registry.Lease {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	number, _ := strconv.ParseUint(port, 10, 16)
	page := "http://" + address + "/"
	return &registry.Lease{
		Interval: registry.DefaultRenewalInterval, Duration: registry.DefaultDuration,
		UpdatedAt: wall.UnixMilli(), Action: registry.ActionAdded,
		Instance: &registry.Instance{
			InstanceID: fmt.Sprintf("%s:rollcall:%d", host, number), HostName: host, App: serverApp, IPAddr: ipOf(ctx, host),
			Status: registry.Up, Port: registry.Port{Number: uint16(number), Enabled: true}, SecurePort: registry.Port{Number: 443},
			CountryID: 1, DataCenter: registry.DataCenter{Name: registry.MyOwn},
			RenewalInterval: registry.DefaultRenewalInterval, Duration: registry.DefaultDuration,
			HomePageURL: page, StatusPageURL: page, HealthCheckURL: page + "healthz",
			VIP: "eureka", SecureVIP: "eureka", LastDirty: wall.UnixMilli(),
		},
	}
}

// ipOf returns the address of a host, for display, or the host itself if its address is not known.
func ipOf(ctx context.Context, host string) string {
	if _, err := netip.ParseAddr(host); err == nil {
		return host
	}
	ctx, cancel := context.WithTimeout(ctx, setting.Default[link.Flow]().ConnectTimeout)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil || len(addresses) == 0 {
		return host
	}
	return addresses[0]
}
