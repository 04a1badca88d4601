package replication

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/setting"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// part is an item of a batch, or a call, with its task.
type part struct {
	eureka.Item
	task link.Task
}

// fact returns the word that the status has for an item.
func (t part) fact() string {
	switch t.Action {
	case eureka.Register:
		return "register"
	case eureka.Heartbeat:
		return "heartbeat"
	case eureka.Cancel:
		return "cancel"
	}
	return "override"
}

// partsOf returns what the server must be told of an instance, in order: its current state, to the extent that the
// task asks for it. For a removed instance that is nothing; its removal is a task of its own. The server knows no
// quarantine, so an instance in quarantine is canceled there, and comes back by the 404 to its next heartbeat
// afterwards.
func partsOf(v *registry.View, t link.Task) []part {
	if t.Facts&link.Canceled != 0 {
		return []part{cancelOf(t)}
	}
	l, ok := v.Find(t.Key)
	switch {
	case !ok:
		return nil
	case l.Quarantine != nil && t.Facts&(link.Registered|link.Overridden) == 0:
		return nil
	case l.Quarantine != nil:
		return []part{cancelOf(t)}
	case t.Facts&link.Registered != 0:
		return registeredParts(v, l, t)
	case t.Facts&link.Overridden != 0:
		return []part{overrideOf(l, t)}
	}
	beat := itemOf(eureka.Heartbeat, t, l)
	beat.Overridden = l.Instance.Overridden
	return []part{beat}
}

// registeredParts returns what a client says of itself. The server's override for a name outlives a registration, so
// ours is sent after the registration if it may differ: the server's may be from an earlier life, or ours has
// changed. The server shows the client's own DOWN or STARTING, which is stronger than an override, only if the
// instance registers after the override.
func registeredParts(v *registry.View, l *registry.Lease, t link.Task) []part {
	register := itemOf(eureka.Register, t, l)
	shown := *l
	shown.RenewedAt = v.LastRenewal(l)
	if t.Above >= l.Instance.LastDirty {
		above := *l.Instance
		above.LastDirty = max(t.Above, t.Above+1) // the last timestamp itself: a server keeps only what is newer
		shown.Instance, register.LastDirty = &above, above.LastDirty
	}
	register.Lease = &shown
	all := []part{register}
	if t.NewLife || t.Facts&link.Overridden != 0 {
		all = append(all, overrideOf(l, t))
		if i := l.Instance; i.Overridden != registry.Unknown && i.Status != i.Overridden {
			all = append(all, register)
		}
	}
	if t.Tries > 0 {
		// its result tells whether the registration was accepted, see registerAbove
		beat := itemOf(eureka.Heartbeat, t, l)
		beat.LastDirty = register.LastDirty
		all = append(all, beat)
	}
	return all
}

func itemOf(action eureka.ItemAction, t link.Task, l *registry.Lease) part {
	i := l.Instance
	return part{task: t, Item: eureka.Item{
		Action: action, App: t.Key.App, ID: t.Key.ID, LastDirty: i.LastDirty, Status: i.Status, HasStatus: true,
	}}
}

func cancelOf(t link.Task) part {
	return part{task: t, Item: eureka.Item{Action: eureka.Cancel, App: t.Key.App, ID: t.Key.ID}}
}

// overrideOf sends the override, or deletes it and sends the status that applies instead.
func overrideOf(l *registry.Lease, t link.Task) part {
	if l.Instance.Overridden == registry.Unknown {
		return itemOf(eureka.DeleteStatusOverride, t, l)
	}
	set := itemOf(eureka.StatusUpdate, t, l)
	set.Status = l.Instance.Overridden
	return set
}

// instancePath returns an instance's resource below the service URL.
func instancePath(key registry.Key) string {
	return "/apps/" + url.PathEscape(key.App) + "/" + url.PathEscape(key.ID)
}

// callOf returns the client's call that an item stands for.
func callOf(t part) (method, target string, body []byte) {
	target = instancePath(t.task.Key)
	dirty := strconv.FormatInt(t.LastDirty, 10)
	switch t.Action {
	case eureka.Register:
		body = eureka.AppendInstanceDocument(nil, eureka.Format{}, t.Lease, t.Lease.RenewedAt)
		return http.MethodPost, "/apps/" + url.PathEscape(t.App), body
	case eureka.Cancel:
		return http.MethodDelete, target, nil
	case eureka.Heartbeat:
		query := url.Values{"status": {t.Status.String()}, "lastDirtyTimestamp": {dirty}}
		if t.Overridden != registry.Unknown {
			query.Set("overriddenstatus", t.Overridden.String())
		}
		return http.MethodPut, target + "?" + query.Encode(), nil
	}
	method = http.MethodPut
	if t.Action == eureka.DeleteStatusOverride {
		method = http.MethodDelete
	}
	query := url.Values{"value": {t.Status.String()}, "lastDirtyTimestamp": {dirty}}
	return method, target + "/status?" + query.Encode(), nil
}

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
func (l *eurekaLink) Run(ctx context.Context) error {
	self := &registration{eurekaLink: l, lease: selfLease(ctx, l.env.HTTP, l.env.World.Now())}
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
	*eurekaLink
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
