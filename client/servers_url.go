package client

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// server is one of the servers. It never changes.
type server struct {
	url    string // of Rollcall's own resources, without a slash at the end, user or password; its name for people
	eureka string // of Eureka's resources; its identity in a serverList
	auth   Auth   // of the URL's user and password; nil: it has none
}

// eurekaBases are the paths below which stock servers have Eureka's resources, each before what it ends
// with: Netflix's /eureka/v2 (/v2 where the application is mounted as eureka), Spring's /eureka.
var eurekaBases = [...]string{"/eureka/v2", "/eureka/v1", "/eureka", "/v2"}

// parseServer takes a URL of Config.Servers. Errors show no user and no password.
func parseServer(text string) (*server, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("server %q is not a URL such as http://127.0.0.1:8761", withoutUser(text))
	}
	if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.HasSuffix(text, "#") {
		return nil, fmt.Errorf("server %q has a query or a fragment; give scheme, host and path only", withoutUser(text))
	}
	s := &server{}
	s.url, s.eureka = bases(u)
	if u.User != nil {
		password, _ := u.User.Password()
		s.auth = BasicAuth(u.User.Username(), password)
	}
	return s, nil
}

// bases are the URLs of Rollcall's own resources and of Eureka's.
func bases(u *url.URL) (own, eureka string) {
	host, path := u.Scheme+"://"+u.Host, strings.TrimRight(u.EscapedPath(), "/")
	for _, base := range eurekaBases {
		if before, is := strings.CutSuffix(path, base); is {
			return host + strings.TrimRight(before, "/"), host + path
		}
	}
	return host + path, host + path + "/eureka"
}

// withoutUser hides what may be a user and a password in what may not be a URL.
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

// parseServers takes what is given for all servers. The error joins every mistake.
func parseServers(urls []string) ([]*server, error) {
	var all []*server
	var errs []error
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
	return all, errors.Join(errs...)
}

var errNoServer = errors.New("no server is given; give a URL such as http://127.0.0.1:8761")

// sign adds what the server wants to know of who asks.
func (s *server) sign(r *http.Request, auth Auth) error {
	if auth == nil {
		auth = s.auth
	}
	if auth == nil {
		return nil
	}
	return auth(r)
}
