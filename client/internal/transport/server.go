package transport

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Server is one of the servers. It never changes.
type Server struct {
	URL    string // of Rollcall's own resources, without trailing slash, user and password; its name for people
	socket string // path of the socket it listens on; "" if the URL's host says where it is
	eureka string // URL of Eureka's resources, as in requests; its identity in a list
	auth   Auth   // from the URL's user and password; may be nil
}

// Auth signs a request, in its header. An error keeps the request from being sent.
type Auth func(r *http.Request) error

// eurekaBases has the paths below which stock servers have Eureka's resources, each before those that it ends with:
// Netflix's /eureka/v2 (/v2 where the application is mounted as eureka), Spring's /eureka.
var eurekaBases = [...]string{"/eureka/v2", "/eureka/v1", "/eureka", "/v2"}

// parseServer reads the URL of a server. Errors show neither user nor password.
func parseServer(text string) (*Server, error) {
	if path, is := strings.CutPrefix(text, SocketScheme); is {
		return socketServer(path)
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("server %q is not a URL such as http://127.0.0.1:8761", withoutUser(text))
	}
	if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.HasSuffix(text, "#") {
		return nil, fmt.Errorf("server %q has a query or a fragment; give scheme, host and path only", withoutUser(text))
	}
	host, path := u.Scheme+"://"+u.Host, strings.TrimRight(u.EscapedPath(), "/")
	s := &Server{URL: host + path, eureka: host + path + "/eureka"}
	for _, base := range eurekaBases {
		if before, is := strings.CutSuffix(path, base); is {
			s.URL, s.eureka = host+strings.TrimRight(before, "/"), host+path
			break
		}
	}
	if u.User != nil {
		name := u.User.Username()
		password, _ := u.User.Password()
		s.auth = func(r *http.Request) error {
			r.SetBasicAuth(name, password)
			return nil
		}
	}
	return s, nil
}

// SocketScheme begins the address of a server that is called through a socket of the file system: unix:PATH.
const SocketScheme = "unix:"

// socketHost ends the host in the URLs of requests to a socket, after the socket's path in hexadecimal digits,
// because a transport keeps connections by host. No name in DNS ends like this.
const socketHost = ".unix.invalid"

// socketServer returns the server that listens on a socket.
func socketServer(path string) (*Server, error) {
	if after, is := strings.CutPrefix(path, "//"); is { // unix:///path
		path = after
	}
	path = strings.TrimRight(path, "/")
	if path == "" {
		return nil, fmt.Errorf("server %q names no socket; give a path, such as unix:/var/lib/rollcall/admin.sock", SocketScheme+path)
	}
	s := &Server{URL: SocketScheme + path, socket: path}
	s.eureka = s.own() + "/eureka"
	return s, nil
}

// own returns the URL of Rollcall's own resources, as in requests.
func (s *Server) own() string {
	if s.socket == "" {
		return s.URL
	}
	return "http://" + hex.EncodeToString([]byte(s.socket)) + socketHost
}

// socketOf returns the path of the socket that a host stands for, or "" if it is an ordinary host.
func socketOf(host string) (path string) {
	digits, is := strings.CutSuffix(host, socketHost)
	decoded, err := hex.DecodeString(digits)
	if !is || err != nil {
		return ""
	}
	return string(decoded)
}

// withoutUser hides a possible user and password in a text that may not be a URL.
func withoutUser(text string) string {
	at := strings.LastIndexByte(text, '@')
	if at < 0 {
		return text
	}
	scheme, _, is := strings.Cut(text[:at], "://")
	if !is || strings.ContainsAny(scheme, ":@/") {
		return "…" + text[at:]
	}
	return scheme + "://…" + text[at:]
}

// CheckServers returns every mistake in the URLs of the servers. An empty list is one, too.
func CheckServers(urls []string) []error {
	_, errs := parseServers(urls)
	return errs
}

// parseServers reads the URLs of all servers, and returns every mistake.
func parseServers(urls []string) (all []*Server, errs []error) {
	for _, text := range urls {
		s, err := parseServer(text)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, s)
	}
	if len(urls) == 0 {
		errs = append(errs, errNoServer)
	}
	return all, errs
}

var errNoServer = errors.New("no server is given; give a URL such as http://127.0.0.1:8761")

// sign adds the sender's name to a request, by auth or, if that is nil, by the server's URL.
func (s *Server) sign(r *http.Request, auth Auth) error {
	if auth == nil {
		auth = s.auth
	}
	if auth == nil {
		return nil
	}
	return auth(r)
}

// same reports whether both are the same server.
func (s *Server) same(other *Server) bool { return s.eureka == other.eureka }
