package compare

import (
	"context"
	"strconv"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

const (
	registryPath = "/eureka/apps" // the same on every system
	// listShare bounds the share of the time that reading a node's lists takes to one in listShare: large registries
	// are read less often.
	listShare = 10
)

// cachedLook is the time between two looks at a document that a server makes every 30 s: looking more often would only
// burden the server.
const cachedLook = 500 * time.Millisecond

// listedEvery is the pause before a node that lacks an instance is asked for its list again.
const listedEvery = 100 * time.Millisecond

// awaitListed waits until every node lists all instances that are certainly registered, or ctx ends.
func awaitListed(ctx context.Context, nodes []string, book *trial.Book) (listed bool) {
	o := newObserver(observed{Nodes: nodes, Book: book})
	defer o.http.CloseIdleConnections()
	for node := range nodes {
		asker, reader := o.asker(node), newListReader()
		for {
			list, _ := o.list(ctx, node, asker, reader)
			if !list.Failed && list.Missing == 0 {
				break
			}
			if !wait.For(ctx, listedEvery) {
				return false
			}
		}
	}
	return true
}

// follow fetches a node's list, as an unmodified client does, again and again, and judges it by the book. The nodes
// are asked in turn, not all at once.
func (o *observer) follow(ctx context.Context, node int) {
	asker, reader := o.asker(node), newListReader()
	turn := o.config.Every * time.Duration(node) / time.Duration(len(o.config.Nodes))
	if !wait.For(ctx, turn) {
		return
	}
	repeat(ctx, o.config.Every, func() (pause time.Duration) {
		if o.isDropped(node) {
			return longPause
		}
		asked := time.Now()
		list, work := o.list(ctx, node, asker, reader)
		if ctx.Err() == nil {
			o.add(func(t *trial.Trial) {
				t.Lists = append(t.Lists, list)
				o.nodes[node].asked, o.nodes[node].list = asked, list
			})
		}
		return (listShare - 1) * work
	})
}

// list fetches and judges one list. work is the time spent reading, not waiting for the node.
func (o *observer) list(ctx context.Context, node int, a *asker, reader *listReader) (list trial.List, work time.Duration) {
	asked := time.Now()
	resp, err := a.find(ctx, registryPath)
	answered := time.Now()
	var listing trial.Listing
	if err == nil {
		listing, err = reader.registry(resp.body)
	}
	if err != nil {
		list = o.config.Book.Unanswered(node, asked, answered)
	} else {
		list = o.config.Book.Judge(node, listing, asked, answered)
		work = time.Since(resp.firstByte)
	}
	list.Asked, list.Answered = o.at(asked), o.at(answered)
	return list, work
}

// versionKey is the metadata key under which clients of a trial write the version of a registration.
const versionKey = "n"

// listReader reads Eureka's documents for the ids and versions of their instances. One goroutine uses it.
type listReader struct {
	listing trial.Listing
	names   map[string]string // ids seen so far, so that each is allocated once
}

func newListReader() *listReader {
	return &listReader{listing: make(trial.Listing), names: make(map[string]string)}
}

// registry reads the document of all applications. The result is valid until the next call.
func (l *listReader) registry(document []byte) (trial.Listing, error) {
	clear(l.listing)
	return l.listing, eureka.EachInstance(document, versionKey, l.add)
}

// instance reads the document of one instance. The result is valid until the next call.
func (l *listReader) instance(document []byte) (trial.Listing, error) {
	clear(l.listing)
	return l.listing, eureka.OneInstance(document, versionKey, l.add)
}

func (l *listReader) add(id, version []byte) {
	name, ok := l.names[string(id)]
	if !ok {
		name = string(id)
		l.names[name] = name
	}
	l.listing[name], _ = strconv.ParseInt(string(version), 10, 64) // another's instance: the document has no version
}
