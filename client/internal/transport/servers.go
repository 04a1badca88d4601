package transport

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// usualStay is how long a client stays with a server that responds, give or take half of it. Then it picks again, so
// that after an outage clients go back, and spread over the servers again. (Upstream's
// com.netflix.discovery.shared.transport.decorator.SessionedEurekaHttpClient.)
const usualStay = 20 * time.Minute

// serverList orders the servers for calls, and remembers those that failed. Safe for concurrent use.
type serverList struct {
	inOrder bool

	mu      sync.Mutex
	all     []*standing // as given, each once
	current *standing   // the one in all that the client stays with; nil if the next to respond will be it
	until   time.Time   // the end of the stay
}

// standing is a server and how it fared.
type standing struct {
	*Server
	quarantine
}

// newServerList returns a list of servers that CheckServers has accepted; it may be empty.
func newServerList(urls []string, inOrder bool) *serverList {
	l := &serverList{inOrder: inOrder}
	if len(urls) > 0 {
		_, _ = l.replace(urls) // they are valid
	}
	return l
}

// order returns the servers, the best first: the current one, then the others, and at the end those in quarantine, by
// the end of their quarantines. No server is left out, so a client whose servers are all in quarantine still asks
// them. Upstream, where quarantine excludes servers, has to clear it when it holds two thirds of them.
func (l *serverList) order() []*Server {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !now.Before(l.until) {
		l.pick(now)
	}
	all := slices.DeleteFunc(slices.Clone(l.all), func(s *standing) bool { return s == l.current })
	if len(all) > 1 && !l.inOrder {
		from := rand.IntN(len(all)) // the others start anywhere, unless their order matters
		all = slices.Concat(all[from:], all[:from])
	}
	if l.current != nil {
		all = slices.Insert(all, 0, l.current)
	}
	slices.SortStableFunc(all, func(a, b *standing) int { return a.quarantine.compare(b.quarantine, now) })
	servers := make([]*Server, len(all))
	for i, s := range all {
		servers[i] = s.Server
	}
	return servers
}

// pick starts a stay: with the first server or a random one, but with none in quarantine.
func (l *serverList) pick(now time.Time) {
	l.until = now.Add(usualStay/2 + rand.N(usualStay+1))
	fit := slices.DeleteFunc(slices.Clone(l.all), func(s *standing) bool { return s.holds(now) })
	switch {
	case len(fit) == 0:
		l.current = nil
	case l.inOrder:
		l.current = fit[0]
	default:
		l.current = fit[rand.IntN(len(fit))]
	}
}

// responded ends a server's quarantine. The client stays with it unless it stays with another.
func (l *serverList) responded(one *Server) {
	l.update(one, func(s *standing) {
		s.quarantine = quarantine{}
		if l.current == nil {
			l.current = s
		}
	})
}

// failed starts the quarantine of a server that did not respond.
func (l *serverList) failed(one *Server) {
	l.update(one, func(s *standing) {
		s.extend(time.Now())
		l.turnFrom(s)
	})
}

// unavailable starts the quarantine of a server which responded that it cannot serve for d, as all of them do while
// no node leads. That is not held against it.
func (l *serverList) unavailable(one *Server, d time.Duration) {
	l.update(one, func(s *standing) {
		s.set(time.Now(), d)
		l.turnFrom(s)
	})
}

// unfit ends the stay with a server that responds, but not with what was asked.
func (l *serverList) unfit(one *Server) { l.update(one, l.turnFrom) }

func (l *serverList) turnFrom(s *standing) {
	if l.current == s {
		l.current = nil
	}
}

// update changes the standing of a server, unless the server was replaced.
func (l *serverList) update(one *Server, change func(*standing)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.find(one); s != nil {
		change(s)
	}
}

func (l *serverList) find(one *Server) *standing {
	for _, s := range l.all {
		if s.same(one) {
			return s
		}
	}
	return nil
}

// replace replaces the servers, and reports whether the new ones differ. Those that stay keep their standing; one
// that is given twice counts once. The error joins every mistake; then nothing has changed.
func (l *serverList) replace(urls []string) (changed bool, err error) {
	given, errs := parseServers(urls)
	if len(errs) > 0 {
		return false, errors.Join(errs...)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*standing
	for _, one := range given {
		if slices.ContainsFunc(all, func(s *standing) bool { return s.same(one) }) {
			continue
		}
		s := &standing{Server: one}
		if known := l.find(one); known != nil {
			s.quarantine = known.quarantine
		}
		all = append(all, s)
	}
	changed = !slices.EqualFunc(all, l.all, func(a, b *standing) bool { return a.same(b.Server) })
	stayed := l.current
	l.all, l.current = all, nil
	if stayed != nil {
		l.current = l.find(stayed.Server)
	}
	return changed, nil
}

// quarantined returns how many servers are asked last because they did not respond.
func (l *serverList) quarantined() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, now := 0, time.Now()
	for _, s := range l.all {
		if s.holds(now) {
			n++
		}
	}
	return n
}

func (l *serverList) empty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all) == 0
}

// names returns the servers' URLs, for people.
func (l *serverList) names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for _, s := range l.all {
		names = append(names, s.URL)
	}
	return names
}

// sibling returns the server at another address (host:port) of the same cluster. It is asked in the same way as the
// current server, which has just named that address.
func (l *serverList) sibling(address string) *Server {
	scheme, auth := "http", Auth(nil)
	if present := l.order(); len(present) > 0 && present[0].socket == "" {
		scheme, _, _ = strings.Cut(present[0].URL, "://")
		auth = present[0].auth
	}
	url := scheme + "://" + address
	return &Server{URL: url, eureka: url + "/eureka", auth: auth}
}

// quarantine is the time during which a server is asked last. The zero quarantine is over.
type quarantine struct {
	until    time.Time
	failures int // in a row, each after the quarantine for the one before
}

// The first quarantine is between half and all of shortestQuarantine; each further one may be twice as long, up to
// longestQuarantine.
const shortestQuarantine, longestQuarantine = time.Second, 30 * time.Second

func (q *quarantine) holds(now time.Time) bool { return now.Before(q.until) }

// extend starts the next quarantine. Failures within one come from calls that were in progress together, or that had
// no other server to ask, and say nothing new.
func (q *quarantine) extend(now time.Time) {
	if q.holds(now) {
		return
	}
	most := longestQuarantine
	if q.failures < 5 {
		most = shortestQuarantine << q.failures
	}
	q.until = now.Add(most/2 + rand.N(most/2+1))
	q.failures++
}

// set starts a quarantine of a known length.
func (q *quarantine) set(now time.Time, d time.Duration) {
	if !q.holds(now) {
		q.until = now.Add(d)
	}
}

// compare orders quarantines: first those that are over, then by their end.
func (q quarantine) compare(other quarantine, now time.Time) int {
	switch mine, others := q.holds(now), other.holds(now); {
	case mine && others:
		return q.until.Compare(other.until)
	case mine:
		return 1
	case others:
		return -1
	}
	return 0
}

// retryAfter returns how long a server that cannot serve is asked last, if its response says so (d; 0 if it does
// not). A response that wants more comes from a proxy that knows no better.
func retryAfter(d time.Duration) time.Duration {
	const usual, longest = time.Second, 5 * time.Second
	return min(cmp.Or(d, usual), longest)
}
