package load

import "context"

// watch holds the streams of the watchers open until ctx ends.
func (l *Load) watch(ctx context.Context) { <-ctx.Done() }
