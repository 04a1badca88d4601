package httpd

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/seed-20419f34/rollcall/httpd/web"
)

// Every client that can reach a node may write, and a browser reaches what its user's machine reaches: a page of any
// site can make it send forms and simple requests, and a page whose name is made to resolve to this node (DNS
// rebinding) can even read the responses. Two checks before everything else keep pages of other sites out; no path is
// exempt from the first one.

// sites decides from which web pages requests are served.
type sites struct {
	crossOrigin http.CrossOriginProtection
	hosts       map[string]bool // names that the node may be addressed by; nil allows any
}

func newSites(hosts []string) *sites {
	s := &sites{}
	if hosts == nil {
		return s
	}
	s.hosts = map[string]bool{"localhost": true}
	for _, host := range hosts {
		s.hosts[hostName(host)] = true
	}
	return s
}

// check refuses a write on behalf of a page of another site, and a request to a name that is not the node's. Clients
// other than browsers send neither Origin nor Sec-Fetch-Site.
func (s *sites) check(r *http.Request) error {
	if err := s.checkWrite(r); err != nil {
		return err
	}
	if s.knows(r) {
		return nil
	}
	return &web.Refusal{Status: http.StatusMisdirectedRequest,
		Text: fmt.Sprintf("this node listens on loopback and is not addressed as %.100q; use localhost or its address, or add the name to http.hosts", hostName(r.Host))}
}

// checkWrite refuses a write on behalf of a page of another site. It judges by the method, so reads pass.
func (s *sites) checkWrite(r *http.Request) error {
	if err := s.crossOrigin.Check(r); err != nil {
		return &web.Refusal{Status: http.StatusForbidden, Cause: err,
			Text: "a web page of another site may not write here (headers Sec-Fetch-Site and Origin)"}
	}
	return nil
}

// knows reports whether the request names this node. Probes may use any name: they read nothing. Only a browser can be
// lured by a name, and a browser always sends one.
func (s *sites) knows(r *http.Request) bool {
	if s.hosts == nil || r.Host == "" || r.URL.Path == "/healthz" || r.URL.Path == "/readyz" {
		return true
	}
	host := hostName(r.Host)
	if s.hosts[host] {
		return true
	}
	_, err := netip.ParseAddr(host)
	return err == nil
}

// hostName returns the host of host:port, in the form used to compare names.
func hostName(hostport string) string {
	if rest, ok := strings.CutPrefix(hostport, "["); ok {
		host, _, _ := strings.Cut(rest, "]")
		return host
	}
	host, _, _ := strings.Cut(hostport, ":")
	return strings.TrimSuffix(strings.ToLower(host), ".")
}
