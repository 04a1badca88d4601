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
)

const (
	// endLimit is for how long nodes are asked again that do not answer, or that differ.
	endLimit = 5 * time.Second
	endEvery = 100 * time.Millisecond
)

// End asks every node what it holds itself (?consistency=stale): the registry's list, by the book, and the versions of
// the watched keys. It asks again for up to 5 s while a node gives no answer, lacks something, lists what was
// canceled, or holds another version than the others; the last answers count. Leases must be renewed meanwhile. The
// times of Config.Began and the seed do not matter.
func End(ctx context.Context, c Config, app string, keys []string, lease time.Duration) []trial.Ending {
	e := &ender{observer: New(c), app: app, keys: keys, lease: lease}
	defer e.observer.http.CloseIdleConnections()
	return e.settle(ctx)
}

// settle asks until there is nothing to wait for.
func (e *ender) settle(ctx context.Context) []trial.Ending {
	limit := time.Now().Add(endLimit)
	for {
		endings := e.all(ctx)
		if settled(endings) || time.Now().After(limit) || !wait(ctx, endEvery) {
			return endings
		}
	}
}

// settled reports whether there is nothing to wait for. The dead may stay, as servers protect themselves.
func settled(endings []trial.Ending) bool {
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
	answer, err := asker.find(ctx, registryPath+"?consistency=stale")
	if err != nil {
		return fail(err)
	}
	listing, err := reader.registry(answer.body)
	if err != nil {
		return fail(fmt.Errorf("list: %w", err))
	}
	ending.Missing, ending.Revived, ending.Dead = e.observer.config.Book.End(listing, asked, e.lease)
	if ending.Keys, err = e.versions(ctx, asker, reader); err != nil {
		return fail(err)
	}
	return ending
}

// versions are those of the watched keys that a node has.
func (e *ender) versions(ctx context.Context, a *asker, reader *listReader) (map[string]int64, error) {
	versions := make(map[string]int64)
	for _, key := range e.keys {
		path := registryPath + "/" + url.PathEscape(e.app) + "/" + url.PathEscape(key) + "?consistency=stale"
		answer, err := a.get(ctx, path)
		switch {
		case err != nil:
			return nil, err
		case answer.status == http.StatusNotFound:
			continue
		case answer.status != http.StatusOK:
			return nil, fmt.Errorf("%s: status %d", key, answer.status)
		}
		held, err := reader.instance(answer.body)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		versions[key] = held[key]
	}
	return versions, nil
}
