package node

import (
	"context"
	"sync"

	"github.com/seed-20419f34/rollcall/internal/certfiles"
)

// certificates are the certificate files that a node uses, except those of the store.
type certificates []*certfiles.Source

// run checks the files at intervals until ctx ends.
func (c certificates) run(ctx context.Context) {
	var all sync.WaitGroup
	for _, files := range c {
		all.Go(func() { files.Run(ctx) })
	}
	all.Wait()
}

// reload reads the files again, and returns the settings whose files have changed.
func (c certificates) reload() (changed []string) {
	for _, files := range c {
		changed = append(changed, files.Reload()...)
	}
	return changed
}
