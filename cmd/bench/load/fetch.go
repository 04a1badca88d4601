package load

import (
	"context"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// fetchStreams are the fetches of the whole registry and of the delta.
func (l *Load) fetchStreams() []*stream {
	return []*stream{
		{source: l.fetches(trial.Fetch, "/eureka/v2/apps"), name: "fetches", rate: l.Load.Fetches},
		{source: l.fetches(trial.Delta, "/eureka/v2/apps/delta"), name: "deltas", rate: l.Load.Deltas},
	}
}

// fetches fetch a document as stock clients do: JSON, compressed, and whatever consistency the server gives to
// those who cannot ask for one.
type fetches struct {
	load    *Load
	what    trial.Operation
	request []byte
}

func (l *Load) fetches(what trial.Operation, path string) *fetches {
	return &fetches{l, what, []byte("GET " + path + " HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\nAccept-Encoding: gzip\r\n\r\n")}
}

func (f *fetches) operation() trial.Operation { return f.what }

func (f *fetches) send(ctx context.Context, c *caller, due time.Time) {
	f.load.record(f.what, c.home, due, c.call(ctx, f.request, false))
}
