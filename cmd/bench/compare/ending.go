package compare

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
	"github.com/seed-20419f34/rollcall/internal/wait"
)

const (
	// how long nodes that do not respond, or that differ, are asked again
	endLimit = 5 * time.Second
	// while nodes without consensus differ: they compare everything they hold every 60 s
	endLimitAP = 75 * time.Second
	endEvery   = 100 * time.Millisecond
)

// held is what every node is asked for at the end.
type held struct {
	App    string   // of the watched keys
	Keys   []string // their ids
	Sealed []string // ids of the sealed instances
	// SealedApp is their application.
	SealedApp string
	Lease     time.Duration // how long after its last sign of life an instance must have left the lists
	Lost      []int         // nodes that are not asked
}

// end asks every node for its own state (?consistency=stale): the registry's list, by the book, and the versions of
// the watched keys. It asks again for a while, by column, as long as a node gives no response, lacks something, lists
// what was canceled, or holds another version than the others; the last responses count. Leases must be renewed
// meanwhile.
//
// same says that the nodes agreed.
func (o *observer) end(ctx context.Context, held held) (endings []trial.Ending, same bool) {
	defer o.http.CloseIdleConnections()
	began := time.Now()
	for {
		endings = nil
		for node := range o.config.Nodes {
			if !slices.Contains(held.Lost, node) {
				endings = append(endings, trial.Ending{Node: node})
			}
		}
		var nodes sync.WaitGroup
		for i := range endings {
			nodes.Go(func() {
				if err := o.ending(ctx, held, &endings[i]); err != nil {
					endings[i] = trial.Ending{Node: endings[i].Node, Failed: err.Error()}
				}
			})
		}
		nodes.Wait()
		same, right := agreed(endings)
		limit := endLimit
		if !same && o.config.Column.Mode == scenario.AP {
			limit = endLimitAP
		}
		if same && right || time.Since(began) > limit || !wait.For(ctx, endEvery) {
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

// ending asks a node what it holds. Lists of caching servers do not have the newest versions.
func (o *observer) ending(ctx context.Context, held held, e *trial.Ending) error {
	asker, reader, asked := o.asker(e.Node), newListReader(), time.Now()
	resp, err := asker.find(ctx, registryPath+"?consistency=stale")
	if err != nil {
		return err
	}
	listing, err := reader.registry(resp.body)
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	e.Missing, e.Revived, e.Dead = o.config.Book.End(listing, asked, held.Lease)
	sealed := maps.Clone(listing)
	if e.Keys, err = versions(ctx, asker, reader, held.App, held.Keys); err != nil {
		return err
	}
	if o.config.caches() {
		if sealed, err = versions(ctx, asker, reader, held.SealedApp, held.Sealed); err != nil {
			return err
		}
	}
	e.Sealed = make([]int, len(held.Sealed))
	for i, id := range held.Sealed {
		e.Sealed[i] = int(sealed[id])
	}
	return nil
}

// versions returns the versions of instances of an application that a node holds.
func versions(ctx context.Context, a *asker, reader *listReader, app string, ids []string) (trial.Listing, error) {
	versions := make(trial.Listing)
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
