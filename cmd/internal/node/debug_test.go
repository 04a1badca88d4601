package node

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestBundleHasWhatIsKnownOfANode(t *testing.T) {
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "some_total", Help: "Some."}))
	b := bundler{
		metrics: metrics, version: "v9",
		settings: func(io.Writer) error { return errors.New("no settings today") },
		log:      func() []byte { return []byte("last words\n") },
		status:   func(context.Context) any { return api.Status{Leader: "n7"} },
	}
	var out bytes.Buffer
	need.OK(t, b.Bundle(t.Context(), &out))
	archive := tar.NewReader(need.Got(gzip.NewReader(&out))(t))
	parts := map[string]string{}
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		need.OK(t, err)
		parts[strings.TrimPrefix(header.Name, "rollcall-debug/")] = string(need.Got(io.ReadAll(archive))(t))
	}
	for name, want := range map[string]string{
		"version.txt": "rollcall v9 go", "settings.yaml": "could not be made: no settings today", "status.json": `"leader":"n7"`,
		"metrics-1.txt": "some_total 0", "metrics-2.txt": "some_total 0", "goroutines.txt": "TestBundleHasWhatIsKnownOfANode", "heap.pb.gz": "\x1f\x8b", "log.txt": "last words\n",
	} {
		expect.That(t, strings.Contains(parts[name], want), "%s: got %.200q, want %q in it", name, parts[name], want)
		delete(parts, name)
	}
	expect.That(t, len(parts) == 0, "it has more: %v", parts)
}
