package node

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/seed-20419f34/rollcall/internal/wait"
	"github.com/seed-20419f34/rollcall/internal/world"
)

// betweenScrapes is the time between the two scrapes of a bundle: rates follow from their differences.
const betweenScrapes = 2 * time.Second

// bundler collects what helps somebody else to see what is wrong with a node. It implements own.Debug.
type bundler struct {
	world    *world.World
	metrics  prometheus.Gatherer
	version  string
	settings func(io.Writer) error // writes them without secrets
	log      func() []byte         // the last lines of the log
	status   func(context.Context) any
}

// Bundle implements own.Debug: a gzipped tar file, with each part in a file of its own. The file of a part that
// failed says why.
func (b bundler) Bundle(ctx context.Context, w io.Writer) error {
	zipped := gzip.NewWriter(w)
	archive := tar.NewWriter(zipped)
	now := time.Now()
	for _, part := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{"version.txt", func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "rollcall %s %s %s/%s, %d processors, %s\n", b.version, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), b.world.Wall(now).UTC().Format(time.RFC3339))
			return err
		}},
		{"settings.yaml", b.settings},
		{"status.json", func(w io.Writer) error { return json.NewEncoder(w).Encode(b.status(ctx)) }},
		{"metrics-1.txt", b.scrape},
		{"goroutines.txt", func(w io.Writer) error { return pprof.Lookup("goroutine").WriteTo(w, 1) }},
		{"heap.pb.gz", func(w io.Writer) error { return pprof.Lookup("heap").WriteTo(w, 0) }},
		{"log.txt", func(w io.Writer) error { _, err := w.Write(b.log()); return err }},
		{"metrics-2.txt", func(w io.Writer) error {
			wait.Pause(ctx, nil, time.Until(now.Add(betweenScrapes)))
			return b.scrape(w)
		}},
	} {
		var content bytes.Buffer
		if err := part.write(&content); err != nil {
			fmt.Fprintf(&content, "\nthis part could not be made: %v\n", err)
		}
		header := &tar.Header{Name: "rollcall-debug/" + part.name, Mode: 0o600, Size: int64(content.Len()), ModTime: b.world.Wall(now)}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := content.WriteTo(archive); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), zipped.Close(), ctx.Err())
}

// scrape writes the metrics as Prometheus reads them.
func (b bundler) scrape(w io.Writer) error {
	families, err := b.metrics.Gather()
	if err != nil {
		return err
	}
	encoder := expfmt.NewEncoder(w, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families {
		if err := encoder.Encode(f); err != nil {
			return err
		}
	}
	return nil
}
