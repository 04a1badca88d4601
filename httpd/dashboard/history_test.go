package dashboard

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestP99LiesWithinItsBucket(t *testing.T) {
	bounds := []float64{0.001, 0.01, 0.1}
	for _, row := range []struct {
		name        string
		counts      []uint64
		least, most float64
	}{
		{"all quick", []uint64{100, 0, 0, 0}, 0, 0.001},
		{"one of a hundred slow", []uint64{99, 0, 1, 0}, 0, 0.001},
		{"two of a hundred slow", []uint64{98, 0, 2, 0}, 0.01, 0.1},
		{"beyond the bounds", []uint64{0, 0, 0, 5}, 0.1, 0.1},
		{"one call", []uint64{0, 1, 0, 0}, 0.001, 0.01},
	} {
		got := Times{bounds, row.counts}.p99()
		expect.That(t, got >= row.least && got <= row.most, "%s: got %v, want %v to %v", row.name, got, row.least, row.most)
	}
	expect.That(t, math.IsNaN(Times{bounds, make([]uint64, 4)}.p99()), "of no calls a time is told")
}

func TestTimesSinceEarlier(t *testing.T) {
	d := Times{[]float64{1}, []uint64{5, 7}}.since(Times{[]float64{1}, []uint64{2, 7}})
	expect.That(t, d.Counts[0] == 3 && d.Counts[1] == 0 && d.count() == 3, "got %+v", d)
}

func TestSparklineBreaksOffWhereNothingIsKnown(t *testing.T) {
	nan := float32(math.NaN())
	var history []sample
	for i, y := range []float32{1, 2, nan, 4, 5} {
		s := sample{at: noon.Add(time.Duration(i-5) * sampleEvery).UnixMilli()}
		s.figures[upInstances] = y
		history = append(history, s)
	}
	history[4].at = noon.UnixMilli() + 10*sampleEvery.Milliseconds() // a gap
	var out bytes.Buffer
	need.OK(t, sparkline("x", history, upInstances, noon).Render(&out))
	expect.Equal(t, strings.Count(out.String(), "M"), 3, "parts of %s", out.String())
	out.Reset()
	need.OK(t, sparkline("x", nil, upInstances, noon).Render(&out))
	expect.That(t, !strings.Contains(out.String(), "NaN") && !strings.Contains(out.String(), "Inf"), "of nothing it draws %s", out.String())
}
