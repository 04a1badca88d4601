package top

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/seed-20419f34/rollcall/client"
)

// server is one server of the cluster.
type server struct {
	name   string         // as frames show it
	client *client.Client // asks no other server, and needs no leader
}

// reading is what one server has said at one time, and what others have not.
type reading struct {
	at       time.Time
	server   string // that responded; "" if none did
	failures []failure
	part     string // applications were limited to names with this part; "" for all
	overview client.Overview
}

// failure is why a server did not respond.
type failure struct {
	server string
	err    error
}

func (r reading) errors() (all []error) {
	for _, f := range r.failures {
		all = append(all, fmt.Errorf("%s: %w", f.server, f.err))
	}
	return all
}

const (
	// askPatience is the wait for one document from one server, which gives other nodes 2 s to respond if it was not
	// asked recently.
	askPatience = 4 * time.Second
	returnAfter = 30 * time.Second // the first server is asked first again after it
	mostApps    = 1000             // that a server counts in a response, those in trouble first
)

// reader asks the servers. It belongs to the goroutine that calls read.
type reader struct {
	servers []server
	first   int // of servers; asked first
	movedAt time.Time
}

func (r *reader) names() (all []string) {
	for _, s := range r.servers {
		all = append(all, s.name)
	}
	return all
}

// events returns what the first server that responds remembers, so that the first frame shows changes.
func (r *reader) events(ctx context.Context) (found client.Events, err error) {
	for _, s := range r.servers {
		found, err = ask(ctx, s.client.Events)
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	return found, err
}

// read asks one server after another until one says how the cluster is, and how many instances the applications have
// whose names contain part. A server that knows no leader may be cut off, so it only counts if no other server knows
// better.
func (r *reader) read(ctx context.Context, part string) reading {
	if r.first != 0 && time.Since(r.movedAt) > returnAfter {
		r.first, r.movedAt = 0, time.Now()
	}
	best, found := -1, reading{part: part}
	for n := range r.servers {
		i := (r.first + n) % len(r.servers)
		overview, err := ask(ctx, func(ctx context.Context) (client.Overview, error) {
			return r.servers[i].client.Overview(ctx, part, mostApps)
		})
		if err != nil {
			found.failures = append(found.failures, failure{r.servers[i].name, err})
			continue
		}
		if best < 0 || overview.Status.Quorum {
			best, found.overview = i, overview
		}
		if overview.Status.Quorum {
			break
		}
	}
	found.at = time.Now()
	if best < 0 {
		return found
	}
	if best != r.first {
		r.first, r.movedAt = best, time.Now()
	}
	found.server = r.servers[best].name
	return found
}

// ask bounds one question.
func ask[T any](ctx context.Context, question func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	return question(ctx)
}

// withoutUser returns a URL without the password that it may hold.
func withoutUser(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "a server" // whatever is wrong with it, part of it may be secret
	}
	u.User = nil
	return u.String()
}
