package client

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// sessionLength is how long a client stays with a server that answers, give or take half of it. Then it picks
// anew, so that after an outage clients go back, and spread over the servers again. (Upstream's
// com.netflix.discovery.shared.transport.decorator.SessionedEurekaHttpClient.)
const sessionLength = 20 * time.Minute

// serverList says whom to ask, and remembers who gave no answer. Safe for concurrent use.
type serverList struct {
	inOrder bool

	mu      sync.Mutex
	all     []*standing // as given
	current *standing   // who is stayed with; nil: whoever answers next
	until   time.Time   // the end of the session
}

// standing is what is remembered of a server.
type standing struct {
	*server
	quarantine
}

// newServers takes servers that Config.Validate has accepted.
func newServers(c Config) *serverList {
	l := &serverList{inOrder: c.InOrder}
	if len(c.Servers) > 0 {
		_, _ = l.replace(c.Servers) // they are valid
	}
	return l
}

// order returns whom to ask, the best first: the current one, then the others, and at the end those in
// quarantine, whose time is over first before the rest. Nobody is left out, so that a client whose servers
// are all in quarantine asks them all the same; upstream, where quarantine excludes, has to clear it for
// that when it holds two thirds of them.
func (l *serverList) order() []*server {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !now.Before(l.until) {
		l.pick(now)
	}
	all := l.preferred()
	slices.SortStableFunc(all, func(a, b *standing) int { return a.quarantine.compare(b.quarantine, now) })
	servers := make([]*server, len(all))
	for i, s := range all {
		servers[i] = s.server
	}
	return servers
}

// pick begins a session: with the first server or with any, but with none in quarantine.
func (l *serverList) pick(now time.Time) {
	l.until = now.Add(sessionLength/2 + rand.N(sessionLength+1))
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

// preferred are all servers but for quarantine: the current one, then the others as given or, unless
// their order matters, from any of them on.
func (l *serverList) preferred() []*standing {
	others := slices.DeleteFunc(slices.Clone(l.all), func(s *standing) bool { return s == l.current })
	if len(others) > 1 && !l.inOrder {
		from := rand.IntN(len(others))
		others = slices.Concat(others[from:], others[:from])
	}
	if l.current == nil {
		return others
	}
	return slices.Insert(others, 0, l.current)
}

// answered notes that a server did. It is stayed with if nobody else is.
func (l *serverList) answered(by *server) {
	l.note(by, func(s *standing) {
		s.clear()
		if l.current == nil {
			l.current = s
		}
	})
}

// failed notes that a server gave no answer.
func (l *serverList) failed(at *server) {
	l.note(at, func(s *standing) {
		s.extend(time.Now())
		l.leave(s)
	})
}

// unavailable notes that a server answered that it cannot serve for d, as all of them do while there is no
// leader. That says nothing bad of it.
func (l *serverList) unavailable(at *server, d time.Duration) {
	l.note(at, func(s *standing) {
		s.set(time.Now(), d)
		l.leave(s)
	})
}

// unfit notes that a server answers, but not what was asked.
func (l *serverList) unfit(at *server) { l.note(at, l.leave) }

func (l *serverList) leave(s *standing) {
	if l.current == s {
		l.current = nil
	}
}

// note does something to what is remembered of a server, unless that was replaced.
func (l *serverList) note(of *server, do func(*standing)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.find(of); s != nil {
		do(s)
	}
}

func (l *serverList) find(one *server) *standing {
	for _, s := range l.all {
		if s.eureka == one.eureka {
			return s
		}
	}
	return nil
}

// replace takes other servers, and says whether they are others. Those that stay keep what is remembered
// of them; one that is given twice is one. The error joins every mistake; nothing has changed then.
func (l *serverList) replace(urls []string) (changed bool, err error) {
	given, err := parseServers(urls)
	if err != nil {
		return false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*standing
	for _, one := range given {
		if slices.ContainsFunc(all, func(s *standing) bool { return s.eureka == one.eureka }) {
			continue
		}
		s := &standing{server: one}
		if known := l.find(one); known != nil {
			s.quarantine = known.quarantine
		}
		all = append(all, s)
	}
	changed = !slices.EqualFunc(all, l.all, func(a, b *standing) bool { return a.eureka == b.eureka })
	stayed := l.current
	l.all, l.current = all, nil
	if stayed != nil {
		l.current = l.find(stayed.server)
	}
	return changed, nil
}

// quarantined is how many servers are asked last because they gave no answer.
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

// names are the servers' URLs, for people.
func (l *serverList) names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for _, s := range l.all {
		names = append(names, s.url)
	}
	return names
}

// sibling is the server of another address (host:port) of the same cluster: it is spoken to as the present
// one is, which is one that the cluster's addresses were asked of.
func (l *serverList) sibling(address string) *server {
	scheme, auth := "http", Auth(nil)
	if present := l.order(); len(present) > 0 {
		scheme, _, _ = strings.Cut(present[0].url, "://")
		auth = present[0].auth
	}
	url := scheme + "://" + address
	return &server{url: url, eureka: url + "/eureka", auth: auth}
}

// quarantine is the time for which a server is asked last. The zero quarantine is over.
type quarantine struct {
	until    time.Time
	failures int // in a row, each after the quarantine for the one before
}

// The first quarantine is between half and the whole of shortestQuarantine; each further one may be twice
// as long, up to longestQuarantine.
const shortestQuarantine, longestQuarantine = time.Second, 30 * time.Second

func (q *quarantine) holds(now time.Time) bool { return now.Before(q.until) }

func (q *quarantine) clear() { *q = quarantine{} }

// extend begins the next quarantine. Failures within one are those of calls that were under way together,
// or that had nobody else to ask, and say nothing new.
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

// set begins a quarantine of a known length.
func (q *quarantine) set(now time.Time, d time.Duration) {
	if !q.holds(now) {
		q.until = now.Add(d)
	}
}

// compare puts the one that does not hold, or ends first, first.
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

// retryAfter is for how long a server that cannot serve is asked last, when it says so (d; 0: it does not).
// A server that wants more is one of a proxy that knows no better.
func retryAfter(d time.Duration) time.Duration {
	const usual, longest = time.Second, 5 * time.Second
	return min(cmp.Or(d, usual), longest)
}
