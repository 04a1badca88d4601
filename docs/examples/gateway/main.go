// Command gateway forwards requests by path, and limits how many of each route are under way at a time, across all its
// processes: each holds a permit of the route's semaphore meanwhile.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/client"
)

func main() {
	var routes routeList
	listen := flag.String("listen", "127.0.0.1:8080", "address to serve")
	servers := flag.String("servers", "http://127.0.0.1:8761", "Rollcall's servers, separated by commas")
	patience := flag.Duration("patience", 2*time.Second, "longest time that a request waits for its turn")
	flag.Var(&routes, "route", "PATH=URL,LIMIT: forward what begins with PATH to URL, LIMIT at a time; may be repeated")
	flag.Parse()
	c, err := client.New(client.Config{Servers: strings.Split(*servers, ",")})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe(*listen, &gateway{client: c, routes: routes, patience: *patience}))
}

// route is where a path's requests go, and how many at a time.
type route struct {
	path  string
	limit int
	proxy *httputil.ReverseProxy
}

// routeList holds the routes of the command line.
type routeList []route

// String implements flag.Value.
func (l *routeList) String() string { return fmt.Sprint(len(*l), " routes") }

// Set implements flag.Value.
func (l *routeList) Set(text string) error {
	path, target, ok := strings.Cut(text, "=")
	comma := strings.LastIndexByte(target, ',')
	if !ok || !strings.HasPrefix(path, "/") || comma < 0 {
		return errors.New("write PATH=URL,LIMIT")
	}
	backend, err := url.Parse(target[:comma])
	if err != nil {
		return err
	}
	limit, err := strconv.Atoi(target[comma+1:])
	if err != nil || limit < 1 {
		return fmt.Errorf("limit %q is not a number of at least 1", target[comma+1:])
	}
	*l = append(*l, route{path: path, limit: limit, proxy: httputil.NewSingleHostReverseProxy(backend)})
	return nil
}

// gateway is the handler.
type gateway struct {
	client   *client.Client
	routes   routeList
	patience time.Duration
}

// ServeHTTP implements http.Handler.
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for _, route := range g.routes {
		if strings.HasPrefix(r.URL.Path, route.path) {
			g.forward(w, r, route)
			return
		}
	}
	http.NotFound(w, r)
}

// forward waits for a permit of the route, in turn with all others, and holds it during the call.
func (g *gateway) forward(w http.ResponseWriter, r *http.Request, to route) {
	turn, cancel := context.WithTimeout(r.Context(), g.patience)
	defer cancel()
	permit, err := g.client.AcquireSemaphore(turn, client.SemaphoreOptions{
		Limit:       to.limit,
		LockOptions: client.LockOptions{Name: "gateway" + to.path, Value: []byte(holder(r))},
	})
	if err != nil {
		log.Printf("%s: %v", to.path, err)
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many requests of this route are under way", http.StatusServiceUnavailable)
		return
	}
	// The client may have gone away; the permit is given back in any case.
	defer release(context.WithoutCancel(r.Context()), permit)
	// A call whose permit was lost ends, so that there is never one too many for long.
	ctx, end := context.WithCancelCause(r.Context())
	defer end(nil)
	defer context.AfterFunc(permit.Context(), func() { end(permit.Err()) })()
	to.proxy.ServeHTTP(w, r.WithContext(ctx))
}

// holder returns what Rollcall shows about the holder of a permit.
func holder(r *http.Request) string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s:%d for %s", host, os.Getpid(), r.RemoteAddr)
}

func release(ctx context.Context, permit *client.Held) {
	if err := permit.Release(ctx); err != nil {
		log.Print(err) // the permit is free once its session has ended
	}
}
