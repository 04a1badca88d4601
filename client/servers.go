package client

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
)

// server is one of the servers.
type server struct {
	url    string // of Rollcall's own resources, without a slash at the end, user or password; its name for people
	eureka string // of Eureka's resources
	auth   Auth   // of the URL's user and password; nil: it has none
}

// parseServer takes a URL of Config.Servers.
func parseServer(text string) (*server, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("server %q is not a URL such as http://127.0.0.1:8761", text)
	}
	s := &server{url: strings.TrimRight(text, "/")}
	s.eureka = s.url + "/eureka"
	return s, nil
}

// serverList says whom to ask, and remembers who gave no answer. Safe for concurrent use.
type serverList struct {
	mu      sync.Mutex
	all     []*server
	current int // index of the one that answered last
}

func newServers(c Config, m *metrics) *serverList {
	s := &serverList{}
	for _, text := range c.Servers {
		one, _ := parseServer(text)
		s.all = append(s.all, one)
	}
	return s
}

// order returns whom to ask, the best first.
func (s *serverList) order() []*server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(append([]*server{}, s.all[s.current:]...), s.all[:s.current]...)
}

// answered notes that a server did, and stays with it.
func (s *serverList) answered(by *server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, one := range s.all {
		if one == by {
			s.current = i
		}
	}
}

// failed notes that a server gave no answer, or none that helps.
func (s *serverList) failed(at *server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[s.current] == at {
		s.current = (s.current + 1) % len(s.all)
	}
}

// replace takes other servers. Those that stay keep what is remembered of them.
func (s *serverList) replace(urls []string) error { panic("not written") }

// httpClient is the one that Config asks for.
func (c Config) httpClient() *http.Client {
	if c.HTTPClient != nil {
		return c.HTTPClient
	}
	return &http.Client{}
}
