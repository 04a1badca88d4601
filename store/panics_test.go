package store

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestPanicsOfAKindAreAllCountedAndTheFirstIsLogged(t *testing.T) {
	var log bytes.Buffer
	p := NewPanics(slog.New(slog.NewTextHandler(&log, nil)), prometheus.NewRegistry())
	done := 0
	for range 3 {
		expect.That(t, !p.Contain(measuredChanges, func() { panic("planted in changes") }), "a panic is a success")
		expect.That(t, p.Contain(measuredChanges, func() { done++ }), "no panic is a failure")
	}
	expect.That(t, !p.Contain(MeasuredReplicas, func() { (*Panics)(nil).record(measuredChanges, nil) }), "a panic of the runtime is a success")
	p.Println("error gathering metrics:", 7)
	p.Println("error gathering metrics:", 8)
	expect.Equal(t, done, 3, "what did not panic was done")
	for kind, want := range map[Measured]float64{measuredChanges: 3, MeasuredReplicas: 1, measuredMetrics: 2, MeasuredCluster: 0, MeasuredSettings: 0} {
		var got dto.Metric
		need.OK(t, p.counted.WithLabelValues(string(kind)).Write(&got))
		expect.Equal(t, got.GetCounter().GetValue(), want, "panics in %s", kind)
	}
	text := log.String()
	expect.Equal(t, strings.Count(text, "level=ERROR"), 3, "lines of\n%s", text)
	for _, words := range []string{"planted in changes", "nil pointer", "error gathering metrics:7", "panics_test.go"} {
		expect.That(t, strings.Contains(text, words), "%q is not logged:\n%s", words, text)
	}
}
