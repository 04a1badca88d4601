package node

import (
	"context"
	"sync"

	"github.com/seed-20419f34/rollcall/internal/certfiles"
)

// certificates are the files of certificates that a node uses, but for those of the store.
type certificates []*certfiles.Source

// run looks at the files again and again until ctx ends.
func (c certificates) run(ctx context.Context) {
	var all sync.WaitGroup
	for _, files := range c {
		all.Go(func() { files.Run(ctx) })
	}
	all.Wait()
}

// reload reads the files again, and returns the settings whose files hold something else now.
func (c certificates) reload() (changed []string) {
	for _, files := range c {
		changed = append(changed, files.Reload()...)
	}
	return changed
}
