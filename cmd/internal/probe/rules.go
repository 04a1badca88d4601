package probe

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/setting"
)

// Rules say which addresses and methods checks may use. A registry can reach every machine in its network, and a
// client that registers a check makes the registry connect. So a check may use only what its own service registered,
// or what the operator has named.
type Rules struct {
	AllowLoopback bool     `key:"checks.allow-loopback" default:"true" help:"checks may name loopback addresses of the leader's machine; default: whether http.addr is one. Link-local, multicast and metadata addresses are never probed"`
	Targets       Targets  `key:"checks.targets" help:"what checks may address besides what their own service registered: CIDR:port, with * for any port, such as 10.0.0.0/8:* or [fd00::/8]:8080"`
	Methods       []string `key:"checks.methods" default:"GET,HEAD" help:"HTTP methods that checks may use"`
	Headers       []string `key:"checks.headers" default:"Accept,Content-Type,User-Agent" help:"headers that HTTP checks may send with access control on (enforced from level 3 of the formats; below it, other headers are only counted); *: all"`
	// IsNode reports whether an address belongs to a node's machine; no check owns that. If it is nil, only loopback
	// addresses do.
	IsNode func(netip.Addr) bool
}

// Targets are what every check may address.
type Targets []access.Target

// UnmarshalText reads a comma-separated list. Its error names every element that is not a target.
func (t *Targets) UnmarshalText(text []byte) error {
	var all Targets
	var errs []error
	for _, each := range setting.SplitList(string(text)) {
		target, err := access.ParseTarget(each)
		all, errs = append(all, target), append(errs, err)
	}
	*t = all
	return errors.Join(errs...)
}

// String is the inverse of UnmarshalText.
func (t Targets) String() string {
	texts := make([]string, len(t))
	for i, target := range t {
		texts[i] = target.String()
	}
	return strings.Join(texts, ",")
}

// location is where a service says it is: the hosts and ports that it registered.
type location struct {
	hosts []string
	ports []uint16
	from  string // the address from which the check was registered, which is its own; "" if not known
	// counted records what will be refused from level 3 on: an address that is not the check's own, and a header that
	// is not allowed. If it is nil, they are refused.
	counted func(why string)
}

// locationOf collects them. A node's check has neither, as it belongs to no service.
func locationOf(s *catalog.Service, i *registry.Instance) location {
	var l location
	add := func(host string, port int32) {
		if host != "" && !slices.Contains(l.hosts, host) {
			l.hosts = append(l.hosts, host)
		}
		if port > 0 && port <= 65535 && !slices.Contains(l.ports, uint16(port)) {
			l.ports = append(l.ports, uint16(port))
		}
	}
	if i != nil {
		add(i.HostName, 0)
		add(i.IPAddr, 0)
	}
	if s == nil {
		return l
	}
	add(s.Address, s.Port)
	for _, t := range s.Tagged {
		add(t.Address, t.Port)
	}
	var named []struct{ Port int32 }
	if json.Unmarshal(s.Ports, &named) == nil { // as the client gave it
		for _, p := range named {
			add("", p.Port)
		}
	}
	return l
}

// is reports whether one of the hosts is written like host.
func (l location) is(host string) bool {
	return slices.ContainsFunc(l.hosts, func(each string) bool { return strings.EqualFold(each, host) })
}

func (l location) String() string {
	if len(l.hosts) == 0 {
		return "nothing"
	}
	ports := "no port"
	if len(l.ports) > 0 {
		ports = strings.Trim(fmt.Sprint(l.ports), "[]")
	}
	return strings.Join(l.hosts, ", ") + " with " + ports
}

// names returns the hosts that are not addresses.
func (l location) names() []string {
	return slices.DeleteFunc(slices.Clone(l.hosts), func(host string) bool {
		_, err := netip.ParseAddr(host)
		return err == nil
	})
}

// Refuses returns why a probe of a service's check must not run (s and i are nil for a node's check), or "" if it
// may, judging by what is known before names are resolved. In that case needs is what the token that registers it must
// be allowed: to probe the address and port that the probe names, if they are not its own and no rule allows them,
// and to send a header beyond the settings. counted is what 0.1.1 did not ask for: the address that the service says
// is its own, and headers.
func (r Rules) Refuses(p *catalog.Probe, s *catalog.Service, i *registry.Instance) (why string, needs []access.Need) {
	loc := locationOf(s, i)
	if why = r.refuses(p, loc); why != "" {
		return why, nil
	}
	if header := r.beyondHeaders(p); header != "" {
		needs = append(needs, counted(header))
	}
	host, port, _ := address(p)
	at, err := netip.ParseAddr(host)
	if err != nil {
		return "", needs
	}
	to := netip.AddrPortFrom(plain(at), port).String()
	switch claimed := slices.Contains(loc.ports, port) && (loc.is(host) || len(loc.names()) > 0); {
	case !claimed:
		needs = append(needs, access.ToProbe(to))
	case !r.owns(p.From, plain(at)):
		needs = append(needs, counted(to))
	}
	return "", needs
}

func counted(at string) access.Need {
	n := access.ToProbe(at)
	n.Counted = true
	return n
}

// owns reports whether a check was registered from an address. The nodes' machines belong to no check: a proxy may
// run on one, and checks would tell those behind it which of its ports are open.
func (r Rules) owns(from string, a netip.Addr) bool {
	own, err := netip.ParseAddr(from)
	return err == nil && plain(own) == a && !a.IsLoopback() && (r.IsNode == nil || !r.IsNode(a))
}

// beyondHeaders returns the first header of a probe that checks.headers does not allow, in the words of a need, or
// "".
func (r Rules) beyondHeaders(p *catalog.Probe) string {
	allowed := r.Headers
	if allowed == nil {
		allowed = setting.Default[Rules]().Headers
	}
	for _, h := range p.Header {
		if p.HTTP != "" && !slices.ContainsFunc(allowed, func(name string) bool { return name == "*" || strings.EqualFold(name, h.Key) }) {
			return access.HeaderTarget + h.Key
		}
	}
	return ""
}

func (r Rules) refuses(p *catalog.Probe, loc location) string {
	methods := r.Methods
	if methods == nil {
		methods = setting.Default[Rules]().Methods
	}
	if p.HTTP != "" && p.Method != "" && !slices.ContainsFunc(methods, func(m string) bool { return strings.EqualFold(m, p.Method) }) {
		return fmt.Sprintf("method %.20q is not used by checks; checks.methods allows %s", p.Method, strings.Join(methods, " and "))
	}
	host, port, why := address(p)
	if why != "" {
		return why
	}
	at, err := netip.ParseAddr(host)
	if err == nil {
		if why := (filter{loopback: r.AllowLoopback}).refuses(at); why != "" {
			return fmt.Sprintf("%s is not probed: it is %s", host, why)
		}
	}
	isAddress := err == nil
	mine := slices.Contains(loc.ports, port)
	switch {
	case mine && loc.is(host):
		return ""
	case mine && !isAddress && len(loc.hosts) > 0, mine && len(loc.names()) > 0:
		return "" // it depends on the addresses of names
	case isAddress && r.targets(at, port):
		return ""
	case !isAddress && slices.ContainsFunc(r.Targets, func(t access.Target) bool { return t.Port == 0 || t.Port == port }):
		return "" // it depends on the addresses of the name
	}
	return notRegistered(net.JoinHostPort(host, fmt.Sprint(port)), loc)
}

func notRegistered(address string, loc location) string {
	return fmt.Sprintf("%s is not probed: a check addresses what its own service registered (%v), or what checks.targets names", address, loc)
}

func (r Rules) targets(a netip.Addr, port uint16) bool {
	at := netip.AddrPortFrom(plain(a), port)
	return slices.ContainsFunc(r.Targets, func(t access.Target) bool { return t.Contains(at) })
}

// Kinds of probes, as metrics name them.
const (
	kindHTTP   = "http"
	kindTCP    = "tcp"
	kindUDP    = "udp"
	kindGRPC   = "grpc"
	kindH2PING = "h2ping"
)

// target returns what a probe calls: a URL for HTTP, host:port for the others.
func target(p *catalog.Probe) (kind, address string) {
	switch {
	case p.HTTP != "":
		return kindHTTP, p.HTTP
	case p.UDP != "":
		return kindUDP, p.UDP
	case p.GRPC != "":
		server, _, _ := strings.Cut(p.GRPC, "/")
		return kindGRPC, server
	case p.H2PING != "":
		return kindH2PING, p.H2PING
	}
	return kindTCP, p.TCP
}

// address returns the host and port that a probe names, or why it names none.
func address(p *catalog.Probe) (host string, port uint16, why string) {
	kind, text := target(p)
	if kind == kindHTTP {
		u, err := url.Parse(text)
		standard := map[string]string{"http": "80", "https": "443"}
		if err != nil || standard[u.Scheme] == "" || u.Hostname() == "" {
			return "", 0, "its URL is not of the form http://host:port/path"
		}
		text = net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), standard[u.Scheme]))
	}
	host, digits, err := net.SplitHostPort(text)
	n, bad := strconv.ParseUint(digits, 10, 16)
	if err != nil || bad != nil || host == "" {
		return "", 0, fmt.Sprintf("%.100q is not of the form host:port", text)
	}
	return host, uint16(n), ""
}
