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

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
)

const (
	// endLimit is for how long nodes that do not respond, or that differ, are asked again.
	endLimit = 5 * time.Second
	endEvery = 100 * time.Millisecond
)

// End asks every node for its own state (?consistency=stale): the registry's list, by the book, and the versions of
// the watched keys. It asks again for up to 5 s while a node gives no response, lacks something, lists what was
// canceled, or holds another version than the others; the last responses count. Leases must be renewed meanwhile. The
// times of Config.Began and the seed do not matter.
func End(ctx context.Context, c Config, app string, keys []string, lease time.Duration) []trial.Ending {
	e := &ender{observer: New(c), app: app, keys: keys, lease: lease}
	defer e.observer.http.CloseIdleConnections()
	return e.askUntilAgreed(ctx)
}

// askUntilAgreed asks until there is nothing to wait for.
func (e *ender) askUntilAgreed(ctx context.Context) []trial.Ending {
	limit := time.Now().Add(endLimit)
	for {
		endings := e.all(ctx)
		if agreed(endings) || time.Now().After(limit) || !wire.Pause(ctx, endEvery) {
			return endings
		}
	}
}

// agreed reports whether there is nothing to wait for. Dead instances may stay, because of self-preservation.
func agreed(endings []trial.Ending) bool {
	return !slices.ContainsFunc(endings, func(e trial.Ending) bool {
		return e.Failed != "" || len(e.Missing) > 0 || len(e.Revived) > 0 || !maps.Equal(e.Keys, endings[0].Keys)
	})
}

// ender asks nodes for their ending.
type ender struct {
	observer *Observer
	app      string
	keys     []string
	lease    time.Duration
}

func (e *ender) all(ctx context.Context) []trial.Ending {
	endings := make([]trial.Ending, len(e.observer.config.Nodes))
	var nodes sync.WaitGroup
	for node := range endings {
		nodes.Go(func() { endings[node] = e.node(ctx, node) })
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
	ending.Missing, ending.Revived, ending.Dead = e.observer.config.Book.End(listing, asked, e.lease)
	if ending.Keys, err = e.versions(ctx, asker, reader); err != nil {
		return fail(err)
	}
	return ending
}

// versions are the versions of the watched keys that a node holds.
func (e *ender) versions(ctx context.Context, a *asker, reader *listReader) (map[string]int64, error) {
	versions := make(map[string]int64)
	for _, key := range e.keys {
		path := registryPath + "/" + url.PathEscape(e.app) + "/" + url.PathEscape(key) + "?consistency=stale"
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
