package top

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/client"
)

// server is one server of the cluster.
type server struct {
	name   string         // as frames show it
	client *client.Client // that asks no other server
	stale  *client.Client // the same, with what the server has at hand, which needs no leader
}

// reading is what one server has said at one time, and what others have not.
type reading struct {
	at         time.Time
	server     string // that responded; "": none did
	failures   []failure
	status     client.Status
	preserving client.SelfPreservation
	peers      client.Peers // without any, if nothing is replicated
	figures    figures
	gaps       []string // in words, what the server does not say
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

// figures are what is counted of the instances.
type figures struct {
	known     bool // they were counted once
	up, notUp int
	apps      []appFigures // by name
}

// appFigures is one application's part.
type appFigures struct {
	name    string
	up, all int
}

// count counts all instances. It is the only source of figures, and a reader has it as a function: a document of the API
// that says the same in fewer bytes comes in its place.
func count(ctx context.Context, cl *client.Client) (figures, error) {
	instances, err := cl.List(ctx, "")
	if err != nil {
		return figures{}, err
	}
	byApp := map[string]appFigures{}
	f := figures{known: true}
	for _, i := range instances {
		app := byApp[i.App]
		app.name = i.App
		app.all++
		if i.Status == "UP" {
			app.up++
			f.up++
		} else {
			f.notUp++
		}
		byApp[i.App] = app
	}
	for _, app := range byApp {
		f.apps = append(f.apps, app)
	}
	slices.SortFunc(f.apps, func(a, b appFigures) int { return cmp.Compare(a.name, b.name) })
	return f, nil
}

// How often instances are counted: when one has changed, or some time has passed, but not so often that counting costs the
// server more than a twentieth of the time.
const (
	countAfterChange = 2 * time.Second
	countAnyway      = 30 * time.Second
	countShare       = 20
)

const (
	askPatience = 2 * time.Second  // for one document of one server
	countLimit  = 10 * time.Second // for the list of all instances
	returnAfter = 30 * time.Second // after which the first server is asked first again
)

// reader asks the servers. It belongs to the goroutine that calls read; only changed is for others.
type reader struct {
	servers []server
	count   func(context.Context, *client.Client) (figures, error)
	changed atomic.Bool // an instance has changed since the last count

	first     int // of servers, that is asked first
	movedAt   time.Time
	figures   figures
	countedAt time.Time
	cost      time.Duration // of the last count
}

func (r *reader) names() (all []string) {
	for _, s := range r.servers {
		all = append(all, s.name)
	}
	return all
}

// events is what the first server that responds remembers, so that the first frame shows changes.
func (r *reader) events(ctx context.Context) (found client.Events, err error) {
	for _, s := range r.servers {
		found, err = ask(ctx, s.stale.Events)
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	return found, err
}

// read asks one server after another until one says how the cluster is. A server that knows no leader may be cut off, so
// it only counts if no other server knows better.
func (r *reader) read(ctx context.Context) reading {
	if r.first != 0 && time.Since(r.movedAt) > returnAfter {
		r.first, r.movedAt = 0, time.Now()
	}
	best, found := -1, reading{}
	for n := range r.servers {
		i := (r.first + n) % len(r.servers)
		status, err := ask(ctx, r.servers[i].client.Status)
		if err != nil {
			found.failures = append(found.failures, failure{r.servers[i].name, err})
			continue
		}
		if best < 0 || status.Quorum {
			best, found.status = i, status
		}
		if status.Quorum {
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
	cl := r.servers[best].client
	if !found.status.Quorum {
		cl = r.servers[best].stale
	}
	r.readRest(ctx, cl, &found)
	return found
}

// readRest asks the server that said how the cluster is for the rest.
func (r *reader) readRest(ctx context.Context, cl *client.Client, found *reading) {
	lacks := func(what string, err error) {
		if err != nil {
			found.gaps = append(found.gaps, what+": "+err.Error())
		}
	}
	var err error
	found.preserving, err = ask(ctx, cl.SelfPreservation)
	lacks("self-preservation", err)
	found.peers, err = ask(ctx, cl.Peers)
	if !replicatesNothing(err) {
		lacks("peers", err)
	}
	if r.countIsDue() {
		lacks("instances", r.recount(ctx, cl))
	}
	found.figures = r.figures
}

func (r *reader) countIsDue() bool {
	age := time.Since(r.countedAt)
	if age < countShare*r.cost {
		return false
	}
	return age >= countAnyway || age >= countAfterChange && r.changed.Load()
}

func (r *reader) recount(ctx context.Context, cl *client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, countLimit)
	defer cancel()
	start := time.Now()
	r.changed.Store(false) // before the count: what changes during it is counted again
	counted, err := r.count(ctx, cl)
	r.countedAt = time.Now()
	r.cost = r.countedAt.Sub(start)
	if err == nil {
		r.figures = counted
	}
	return err
}

// ask bounds one question.
func ask[T any](ctx context.Context, question func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	return question(ctx)
}

// replicatesNothing says that a server refused to speak of peers because there are none.
func replicatesNothing(err error) bool {
	status, ok := errors.AsType[*client.StatusError](err)
	return ok && status.Status == http.StatusNotImplemented
}

// withoutUser is a URL without the password that it may hold.
func withoutUser(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "a server" // whatever is wrong with it, a part of it may be secret
	}
	u.User = nil
	return u.String()
}
