package observe

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/truth"
	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
)

const (
	// how long nodes that do not respond, or that differ, are asked again
	endLimit = 5 * time.Second
	// while nodes without consensus differ: they compare everything they hold every 60 s
	endLimitAP = 75 * time.Second
	endEvery   = 100 * time.Millisecond
)

// Held is what every node is asked for at the end.
type Held struct {
	App    string   // of the watched keys
	Keys   []string // their ids
	Sealed []string // ids of the sealed instances
	// SealedApp is their application.
	SealedApp string
	Lease     time.Duration // how long after its last sign of life an instance must have left the lists
	Lost      []int         // nodes that are not asked
}

// End asks every node for its own state (?consistency=stale): the registry's list, by the book, and the versions of
// the watched keys. It asks again for a while, by column, as long as a node gives no response, lacks something, lists
// what was canceled, or holds another version than the others; the last responses count. Leases must be renewed
// meanwhile. The times of Config.Began and the seed do not matter.
//
// same says that the nodes agreed.
func End(ctx context.Context, c Config, held Held) (endings []trial.Ending, same bool) {
	e := &ender{observer: New(c), Held: held}
	defer e.observer.http.CloseIdleConnections()
	return e.askUntilAgreed(ctx)
}

// askUntilAgreed asks until there is nothing to wait for.
func (e *ender) askUntilAgreed(ctx context.Context) ([]trial.Ending, bool) {
	began := time.Now()
	for {
		endings := e.all(ctx)
		same, right := agreed(endings)
		limit := endLimit
		if !same && e.observer.config.Column.Mode == scenario.AP {
			limit = endLimitAP
		}
		if same && right || time.Since(began) > limit || !wire.Pause(ctx, endEvery) {
			return endings, same
		}
	}
}

// agreed reports whether all nodes hold the same, and whether that is what they should hold. Dead instances may stay,
// because of self-preservation.
func agreed(endings []trial.Ending) (same, right bool) {
	same, right = true, true
	for _, e := range endings {
		first := endings[0]
		same = same && e.Failed == "" && maps.Equal(e.Keys, first.Keys) && slices.Equal(e.Sealed, first.Sealed) &&
			slices.Equal(e.Missing, first.Missing) && slices.Equal(e.Revived, first.Revived)
		right = right && len(e.Missing) == 0 && len(e.Revived) == 0
	}
	return same, right
}

// cached reports whether lists are older than what the servers know.
func (e *ender) cached() bool { return e.observer.config.Column.System == scenario.Eureka }

// ender asks nodes for their ending.
type ender struct {
	observer *Observer
	Held
}

func (e *ender) all(ctx context.Context) []trial.Ending {
	var asked []int
	for node := range e.observer.config.Nodes {
		if !slices.Contains(e.Lost, node) {
			asked = append(asked, node)
		}
	}
	endings := make([]trial.Ending, len(asked))
	var nodes sync.WaitGroup
	for i, node := range asked {
		nodes.Go(func() { endings[i] = e.node(ctx, node) })
	}
	nodes.Wait()
	return endings
}

func (e *ender) node(ctx context.Context, node int) trial.Ending {
	asker, reader := e.observer.asker(node), newListReader()
	ending := trial.Ending{Node: node}
	fail := func(err error) trial.Ending {
		return trial.Ending{Node: node, Failed: err.Error()}
	}
	asked := time.Now()
	resp, err := asker.find(ctx, registryPath+"?consistency=stale")
	if err != nil {
		return fail(err)
	}
	listing, err := reader.registry(resp.body)
	if err != nil {
		return fail(fmt.Errorf("list: %w", err))
	}
	ending.Missing, ending.Revived, ending.Dead = e.observer.config.Book.End(listing, asked, e.Lease)
	sealed := maps.Clone(listing)
	if ending.Keys, err = e.versions(ctx, asker, reader, e.App, e.Keys); err != nil {
		return fail(err)
	}
	if e.cached() {
		if sealed, err = e.versions(ctx, asker, reader, e.SealedApp, e.Sealed); err != nil {
			return fail(err)
		}
	}
	ending.Sealed = make([]int, len(e.Sealed))
	for i, id := range e.Sealed {
		ending.Sealed[i] = int(sealed[id])
	}
	return ending
}

// versions returns the versions of instances of an application that a node holds.
func (e *ender) versions(ctx context.Context, a *asker, reader *listReader, app string, ids []string) (truth.Listing, error) {
	versions := make(truth.Listing)
	for _, key := range ids {
		path := registryPath + "/" + url.PathEscape(app) + "/" + url.PathEscape(key) + "?consistency=stale"
		resp, err := a.get(ctx, path)
		switch {
		case err != nil:
			return nil, err
		case resp.status == http.StatusNotFound:
			continue
		case resp.status != http.StatusOK:
			return nil, fmt.Errorf("%s: status %d", key, resp.status)
		}
		held, err := reader.instance(resp.body)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		versions[key] = held[key]
	}
	return versions, nil
}
