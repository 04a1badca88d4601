package dashboard

import (
	"math"
	"slices"
	"strconv"
	"time"

	g "maragu.dev/gomponents"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// An hour of figures, one sample every ten seconds.
const (
	sampleEvery = 10 * time.Second
	ringLength  = int(time.Hour / sampleEvery)
)

// The figures of a sample.
const (
	upInstances = iota
	otherInstances
	applications
	changesAMinute
	writesASecond
	writeP99 // seconds
	watchers
	overdueLeases
	figureCount
)

// sample holds the figures of one moment. An unknown figure is NaN.
type sample struct {
	at      int64 // ms since the epoch
	figures [figureCount]float32
}

// counters are the basis of rates.
type counters struct {
	at     time.Time
	epoch  string
	index  registry.Index
	writes Times
}

// Times counts the calls since the start by duration: the first of Counts took at most the first of Bounds, the next
// at most the next one, and so on, each without the calls before; the last of Counts took longer than all Bounds.
type Times struct {
	Bounds []float64 // seconds
	Counts []uint64
}

// since returns the calls after earlier.
func (t Times) since(earlier Times) Times {
	d := Times{Bounds: t.Bounds, Counts: slices.Clone(t.Counts)}
	for i := range d.Counts {
		if i < len(earlier.Counts) {
			d.Counts[i] -= earlier.Counts[i]
		}
	}
	return d
}

func (t Times) count() (n uint64) {
	for _, c := range t.Counts {
		n += c
	}
	return n
}

// p99 returns the duration that 99 of 100 calls did not exceed, in seconds, as precisely as the bounds of the counts
// allow, or NaN without any calls.
func (t Times) p99() float64 {
	all := t.count()
	if all == 0 {
		return math.NaN()
	}
	rank := 0.99 * float64(all)
	below := 0.0
	for i, c := range t.Counts {
		if below+float64(c) < rank || i == len(t.Bounds) {
			below += float64(c)
			continue
		}
		least := 0.0
		if i > 0 {
			least = t.Bounds[i-1]
		}
		return least + (t.Bounds[i]-least)*(rank-below)/float64(c)
	}
	return t.Bounds[len(t.Bounds)-1]
}

// sample takes the current figures.
func (m *monitor) sample(now time.Time) {
	v := web.StaleView(m.Service)
	if v == nil {
		return
	}
	s := sample{at: m.World.Wall(now).UnixMilli()}
	up, all, apps := 0, 0, 0
	for _, a := range m.tally.of(v, now) {
		up, all = up+a.Up(), all+a.Total
		if a.Total > 0 {
			apps++
		}
	}
	at := m.clock(v)
	figures := v.Freshness(at.Now)
	var overdues []registry.AppFreshness
	if figures.Counted > figures.Fresh {
		overdues = slices.DeleteFunc(v.FreshnessByApp(at.Now), func(a registry.AppFreshness) bool { return a.Counted == a.Fresh })
	}
	watching, _ := m.Used()
	is := counters{now, v.Epoch(), v.Index(), m.writes()}
	m.mu.Lock()
	defer m.mu.Unlock()
	changes, writes, p99 := m.rates(is)
	s.figures = [figureCount]float32{float32(up), float32(all - up), float32(apps), changes, writes, p99,
		float32(watching), float32(figures.Counted - figures.Fresh)}
	m.before, m.figures, m.figured, m.overdues = is, figures, now, overdues
	m.ring[m.sampled%ringLength] = s
	m.sampled++
}

// rates returns the rates since the previous sample, or NaN without one.
func (m *monitor) rates(is counters) (changesAMinute, writesASecond, p99 float32) {
	was := m.before
	took := is.at.Sub(was.at).Seconds()
	if was.at.IsZero() || took <= 0 || was.epoch != is.epoch || is.index < was.index {
		nan := float32(math.NaN())
		return nan, nan, nan
	}
	written := is.writes.since(was.writes)
	return float32(float64(is.index-was.index) / took * 60), float32(float64(written.count()) / took), float32(written.p99())
}

// history returns the samples of the last hour, oldest first.
func (m *monitor) history() []sample {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := min(m.sampled, ringLength)
	all := make([]sample, 0, kept)
	for i := m.sampled - kept; i < m.sampled; i++ {
		all = append(all, m.ring[i%ringLength])
	}
	return all
}

// Size of a sparkline, in its own units.
const (
	sparkWidth  = 120
	sparkHeight = 28
)

// sparkline draws an hour of one figure, each sample at its time, with gaps where it is missing.
func sparkline(title string, history []sample, figure int, wall time.Time) g.Node {
	least, most := bounds(history, figure)
	var path []byte
	drawing, last := false, int64(0)
	for _, s := range history {
		y := float64(s.figures[figure])
		if math.IsNaN(y) {
			drawing = false
			continue
		}
		if s.at-last > 3*sampleEvery.Milliseconds() {
			drawing = false
		}
		last = s.at
		x := sparkWidth * (1 - float64(wall.UnixMilli()-s.at)/float64(time.Hour.Milliseconds()))
		if x < 0 {
			continue
		}
		verb := byte('L')
		if !drawing {
			verb, drawing = 'M', true
		}
		path = append(path, verb)
		path = strconv.AppendFloat(path, x, 'f', 1, 64)
		path = append(path, ' ')
		path = strconv.AppendFloat(path, (sparkHeight-2)*(1-(y-least)/(most-least))+1, 'f', 1, 64)
	}
	return el("svg", class("spark"), attr("viewBox", "0 0 120 28"), attr("preserveAspectRatio", "none"), attr("role", "img"), attr("aria-label", title),
		el("path", attr("d", string(path)), attr("vector-effect", "non-scaling-stroke")))
}

// bounds returns the minimum and the maximum of a figure, which always differ.
func bounds(history []sample, figure int) (least, most float64) {
	least, most = math.Inf(1), math.Inf(-1)
	for _, s := range history {
		if y := float64(s.figures[figure]); !math.IsNaN(y) {
			least, most = min(least, y), max(most, y)
		}
	}
	if least > 0 && least > most*0.5 {
		least -= (most - least) * 0.1
	} else {
		least = min(least, 0)
	}
	if !(most > least) {
		most = least + 1
	}
	if math.IsInf(least, 0) || math.IsInf(most, 0) {
		return 0, 1
	}
	return least, most
}
