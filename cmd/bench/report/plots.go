package report

import (
	"bytes"
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/verdict"
)

// timeline is what the time line of a scenario shows: one trial of each column.
type timeline struct {
	Scenario string                 `json:"scenario"`
	Until    float64                `json:"until"`   // seconds: when the last of what is shown was observed
	Columns  map[string]*columnLine `json:"columns"` // by name
}

// columnLine is one trial. Values are per 100 ms.
type columnLine struct {
	Round         int           `json:"round"`
	Length        float64       `json:"length"` // of the load, in seconds
	Bands         []band        `json:"bands"`
	WriteSuccess  samples       `json:"writeSuccess"` // percent of the calls that were due
	ReadSuccess   samples       `json:"readSuccess"`
	CutOffSuccess samples       `json:"cutOffSuccess"` // of the clients whose home was isolated at any time; empty: there were none
	OthersSuccess samples       `json:"othersSuccess"` // of all others
	WriteLatency  samples       `json:"writeLatency"`  // p99 of the answered, ms
	ReadLatency   samples       `json:"readLatency"`
	Age           samples       `json:"age"`      // of the oldest answer, s
	Behind        samples       `json:"behind"`   // entries of the list of the node that had most of them
	Ghosts        samples       `json:"ghosts"`   // likewise
	Missing       samples       `json:"missing"`  // likewise
	Unhealed      samples       `json:"unhealed"` // likewise
	Queued        samples       `json:"queued"`   // tasks in the replicators of all nodes
	Lag           samples       `json:"lag"`      // of the peer most behind, s
	Leaders       []leaderStrip `json:"leaders"`
}

// band is a fault, or a storm, in a plot.
type band struct {
	From  float64 `json:"from"` // seconds
	To    float64 `json:"to"`
	Text  string  `json:"text"`
	apart bool    // nodes were kept from replicating to each other
}

// timelineOf shows the first round that counts of each column. It has no columns if there is none, and of heartbeats alone,
// which look the same all the time.
func (r *Report) timelineOf(s scenario.Scenario) timeline {
	line := timeline{Scenario: s.Name, Columns: map[string]*columnLine{}}
	if s.HeartbeatsOnly() {
		return line
	}
	for _, of := range r.each(s, r.columns()) {
		if len(of.of) > 0 {
			line.Columns[of.Name] = columnLineOf(of.of[0].Trial, s)
			line.Until = max(line.Until, line.Columns[of.Name].until())
		}
	}
	return line
}

// endOf is when a trial's observations ended.
func endOf(t *trial.Trial) trial.Micros { return max(t.Ended, t.Length) }

func columnLineOf(t *trial.Trial, s scenario.Scenario) *columnLine {
	m := &columnLine{Round: t.Round, Length: t.Length.Seconds(), Bands: bands(t, s), Leaders: leaderStrips(t), Age: ages(t)}
	m.WriteSuccess, m.WriteLatency = successAndLatency(t, func(s trial.Series) bool { return s.Operation.Writes() })
	m.ReadSuccess, m.ReadLatency = successAndLatency(t, func(s trial.Series) bool { return s.Operation.Reads() })
	m.CutOffSuccess, m.OthersSuccess = samples{}, samples{}
	if isolated := isolatedNodes(t); len(isolated) > 0 {
		m.CutOffSuccess, _ = successAndLatency(t, func(s trial.Series) bool { return stock(s.Operation) && isolated[s.Node] })
		m.OthersSuccess, _ = successAndLatency(t, func(s trial.Series) bool { return stock(s.Operation) && !isolated[s.Node] })
	}
	m.Behind = worstLists(t, func(l trial.List) int { return l.Behind })
	m.Ghosts = worstLists(t, func(l trial.List) int { return l.Ghosts })
	m.Missing = worstLists(t, func(l trial.List) int { return l.Missing })
	m.Unhealed = worstLists(t, func(l trial.List) int { return l.Unhealed })
	m.Queued, m.Lag = backlog(t)
	return m
}

// stock reports whether an operation is one of stock clients, and no probe.
func stock(o trial.Operation) bool { return o.Writes() || o.Reads() }

// bands are the faults and storms by their times, those of the same time as one.
func bands(t *trial.Trial, s scenario.Scenario) []band {
	found := []band{}
	for _, f := range t.Faults {
		found = append(found, band{From: f.From.Seconds(), To: max(f.From, f.To).Seconds(), Text: f.Text, apart: apart(f.Kind)})
	}
	for _, storm := range s.Storms {
		from := storm.At.In(t.Length.Duration()).Seconds()
		found = append(found, band{From: from, To: from + storm.For.In(t.Length.Duration()).Seconds(), Text: "storm of " + stormOf(storm)})
	}
	slices.SortStableFunc(found, func(a, b band) int { return cmp.Compare(a.From, b.From) })
	all := []band{}
	for _, b := range found {
		if last := len(all) - 1; last >= 0 && all[last].From == b.From && all[last].To == b.To {
			all[last].Text += "; " + b.Text
			all[last].apart = all[last].apart || b.apart
			continue
		}
		all = append(all, b)
	}
	return all
}

// apart reports whether a fault of the kind keeps nodes from replicating to each other.
func apart(k scenario.Kind) bool {
	return slices.Contains([]scenario.Kind{scenario.Kill, scenario.Lose, scenario.Restart, scenario.Pause, scenario.Isolate, scenario.CutLink}, k)
}

// isolatedNodes are those of any fault that cut nodes off together with their clients.
func isolatedNodes(t *trial.Trial) map[int]bool {
	nodes := map[int]bool{}
	for _, f := range t.Faults {
		if f.Kind == scenario.Isolate {
			for _, node := range f.Nodes {
				nodes[node] = true
			}
		}
	}
	return nodes
}

func successAndLatency(t *trial.Trial, which func(trial.Series) bool) (success, latency samples) {
	success, latency = noSamples(endOf(t)), noSamples(endOf(t))
	for number, b := range sumBins(t, which) {
		if b.Due() > 0 {
			success.set(number, 100*float64(b.Answered())/float64(b.Due()))
		}
		if p99, ok := b.Quantile(0.99); ok {
			latency.set(number, float64(p99)/1e3)
		}
	}
	return success, latency
}

func ages(t *trial.Trial) samples {
	s := noSamples(endOf(t))
	for _, a := range verdict.Ages(t) {
		s.raise(slot(a.Called), a.Age.Seconds())
	}
	return s
}

func worstLists(t *trial.Trial, count func(trial.List) int) samples {
	s := noSamples(endOf(t))
	for _, l := range t.Lists {
		if !l.Failed {
			s.raise(slot(l.Asked), float64(count(l)))
		}
	}
	return s
}

// backlog is what the replicators had not sent, by the last report of each node.
func backlog(t *trial.Trial) (queued, lag samples) {
	queued, lag = noSamples(endOf(t)), noSamples(endOf(t))
	latest := map[int]trial.Replication{}
	next := 0
	for i := range queued {
		if next == len(t.Replicator) && next > 0 && i > slot(t.Replicator[next-1].At+trial.Of(time.Second)) {
			break // no node was asked any more
		}
		for ; next < len(t.Replicator) && slot(t.Replicator[next].At) <= i; next++ {
			latest[t.Replicator[next].Node] = t.Replicator[next]
		}
		if len(latest) == 0 {
			continue
		}
		queued[i], lag[i] = 0, 0
		for _, report := range latest {
			queued[i] += report.Queued
			lag.raise(i, report.LagSeconds)
		}
	}
	return queued, lag
}

// until is when the last of what is shown was observed, in seconds, and at least the length of the load.
func (m *columnLine) until() float64 {
	last := m.Length
	for _, s := range []samples{m.WriteSuccess, m.ReadSuccess, m.Age, m.Missing, m.Queued} {
		for i, value := range s {
			if !math.IsNaN(value) {
				last = max(last, binBegin(i+1))
			}
		}
	}
	return significant(last, inPlots)
}

// hasBacklog reports whether there was anything to catch up with after nodes were apart.
func (l timeline) hasBacklog() bool {
	for _, m := range l.Columns {
		if slices.ContainsFunc(m.Bands, func(b band) bool { return b.apart }) && (m.Queued.shows() || m.Lag.shows() || m.Unhealed.shows()) {
			return true
		}
	}
	return false
}

// cdf is a cumulative distribution: at most so much percent of what was counted took so long.
type cdf struct {
	Name   string  `json:"name"` // of the scenario
	Column string  `json:"column"`
	Count  int     `json:"count"` // the endless ones, too
	Never  int     `json:"never"` // of Count
	Delay  samples `json:"delay"` // ms, ascending
	Share  samples `json:"share"` // percent
}

// cdfPoints is how many points a plot needs at most: its width in pixels, roughly.
const cdfPoints = 250

// cdfOf is the distribution of delays. Negative ones never ended: they are counted, but reach no share.
func cdfOf(name, column string, delays []trial.Micros) cdf {
	slices.Sort(delays)
	never, _ := slices.BinarySearch(delays, 0)
	c := cdf{Name: name, Column: column, Count: len(delays), Never: never, Delay: samples{}, Share: samples{}}
	ended := delays[never:]
	for point := range min(cdfPoints, len(ended)) {
		i := (point + 1) * len(ended) / min(cdfPoints, len(ended)) // how many took at most that long
		c.Delay = append(c.Delay, float64(ended[i-1])/1e3)
		c.Share = append(c.Share, 100*float64(i)/float64(len(delays)))
	}
	return c
}

// wayPlot is one way of looking for an instance, or the ages of answers, with a line for each scenario and column.
type wayPlot struct {
	Title string `json:"title"`
	Lines []cdf  `json:"lines"`
}

// visibility takes the delays at other nodes, of the same datacenter or of other ones, from all rounds of some scenarios.
func (r *Report) visibility(scenarios []scenario.Scenario, abroad bool) []wayPlot {
	plots := []wayPlot{}
	for _, way := range trial.Ways {
		plot := wayPlot{Title: "by " + string(way)}
		if abroad {
			plot.Title += ", in the other datacenter"
		}
		for _, s := range scenarios {
			for _, of := range r.each(s, r.columns()) {
				if delays := of.sightings(way, abroad); len(delays) > 0 {
					plot.Lines = append(plot.Lines, cdfOf(s.Title, of.Name, delays))
				}
			}
		}
		if len(plot.Lines) > 0 {
			plots = append(plots, plot)
		}
	}
	return plots
}

// ages are the distributions of how old answers to probes were, of those that were fresh 0, from all rounds of some
// scenarios; none without probes.
func (r *Report) ages(scenarios []scenario.Scenario) []wayPlot {
	plot := wayPlot{Title: "age of an answer to a probe"}
	for _, s := range scenarios {
		for _, of := range r.each(s, r.columns()) {
			var all []trial.Micros
			for _, o := range of.of {
				for _, a := range verdict.Ages(o.Trial) {
					all = append(all, a.Age)
				}
			}
			if len(all) > 0 {
				plot.Lines = append(plot.Lines, cdfOf(s.Title, of.Name, all))
			}
		}
	}
	if len(plot.Lines) == 0 {
		return nil
	}
	return []wayPlot{plot}
}

func (m runs) sightings(way trial.Way, abroad bool) []trial.Micros {
	var delays []trial.Micros
	for _, t := range m.of {
		delays = append(delays, verdict.Delays(t.Trial, way, abroad)...)
	}
	return delays
}

// removalPlot is how long instances that went were still listed by some node.
type removalPlot struct {
	Died     []cdf   `json:"died"`     // from the last heartbeat on; a line for each column and each scenario in which instances die
	Canceled []cdf   `json:"canceled"` // from the cancel's answer on; a line for each column, over all scenarios in which nothing fails
	Lease    float64 `json:"lease"`    // seconds, the longest of the instances that died
}

func (r *Report) removal() removalPlot {
	plot := removalPlot{Died: []cdf{}, Canceled: []cdf{}}
	for _, s := range r.ran() {
		if !died(s) {
			continue
		}
		for _, c := range r.columns() {
			if delays := r.departures(c, false, s); len(delays) > 0 {
				plot.Died = append(plot.Died, cdfOf(s.Title, c.Name, delays))
				plot.Lease = max(plot.Lease, s.Load.Lease.Duration().Seconds())
			}
		}
	}
	for _, c := range r.columns() {
		if canceled := r.departures(c, true, r.undisturbed()...); len(canceled) > 0 {
			plot.Canceled = append(plot.Canceled, cdfOf("canceled", c.Name, canceled))
		}
	}
	return plot
}

// undisturbed are the scenarios without faults and storms, or if there are none, all.
func (r *Report) undisturbed() []scenario.Scenario {
	calm := slices.DeleteFunc(slices.Clone(r.ran()), func(s scenario.Scenario) bool { return len(s.Faults)+len(s.Storms) > 0 })
	if len(calm) == 0 {
		return r.ran()
	}
	return calm
}

// departures is, of each instance that went, how long the last node listed it; negative: until the end.
func (r *Report) departures(c column, canceled bool, scenarios ...scenario.Scenario) []trial.Micros {
	var delays []trial.Micros
	for _, s := range scenarios {
		for _, t := range r.runs(s, c).of {
			delays = append(delays, slices.Collect(maps.Values(verdict.LastGone(t.Departures, canceled)))...)
		}
	}
	return delays
}

// leaderStrip is which nodes led a datacenter, and when.
type leaderStrip struct {
	Datacenter string       `json:"dc"`
	Reigns     []leaderTime `json:"reigns"`
}

// leaderTime is one leader's time; none: an empty name.
type leaderTime struct {
	From float64 `json:"from"` // seconds
	To   float64 `json:"to"`
	Name string  `json:"name"`
	Term uint64  `json:"term"`
}

// leaderStrips are those of the datacenters whose nodes knew leaders. While nodes disagree, the greatest term is
// right.
func leaderStrips(t *trial.Trial) []leaderStrip {
	said := verdict.LeadersByDatacenter(t)
	delete(said, "") // of numbers that are no node's
	strips := []leaderStrip{}
	for _, dc := range slices.Sorted(maps.Keys(said)) {
		strips = append(strips, leaderStrip{Datacenter: dc, Reigns: reigns(t, said[dc])})
	}
	return strips
}

func reigns(t *trial.Trial, said []trial.Leader) []leaderTime {
	latest := map[int]trial.Leader{}
	var list []leaderTime
	for _, l := range said {
		latest[l.Node] = l
		now := leaderOf(t, latest)
		now.From, now.To = max(0, l.At).Seconds(), endOf(t).Seconds()
		if last := len(list) - 1; last >= 0 {
			if list[last].Name == now.Name && list[last].Term == now.Term {
				continue
			}
			list[last].To = now.From
		}
		list = append(list, now)
	}
	return slices.DeleteFunc(list, func(l leaderTime) bool { return l.To <= l.From })
}

func leaderOf(t *trial.Trial, latest map[int]trial.Leader) leaderTime {
	best := leaderTime{}
	for node := range t.Nodes {
		if l, shown := latest[node]; shown && l.Leader >= 0 && l.Leader < len(t.Nodes) && l.Term >= best.Term {
			best = leaderTime{Name: t.Nodes[l.Leader].Name, Term: l.Term}
		}
	}
	return best
}

// samples are values at every 100 ms from 0 on; NaN where there is none. In JSON that is null, and values are rounded
// to what a plot can show.
type samples []float64

// MarshalJSON implements json.Marshaler.
func (s samples) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('[')
	for i, v := range s {
		if i > 0 {
			b.WriteByte(',')
		}
		if math.IsNaN(v) {
			b.WriteString("null")
			continue
		}
		b.WriteString(strconv.FormatFloat(significant(v, inPlots), 'f', -1, 64))
	}
	b.WriteByte(']')
	return b.Bytes(), nil
}

// noSamples are as many as fit between 0 and a moment, none of them known.
func noSamples(until trial.Micros) samples {
	s := make(samples, max(0, slot(until-1)+1))
	for i := range s {
		s[i] = math.NaN()
	}
	return s
}

// slot is the number of the 100 ms in which a moment lies.
func slot(at trial.Micros) int {
	return int(math.Floor(float64(at) / float64(trial.BinLength/time.Microsecond)))
}

// set puts a value into a slot, if there is such a slot.
func (s samples) set(slot int, value float64) {
	if slot >= 0 && slot < len(s) {
		s[slot] = value
	}
}

// raise makes a slot hold at least a value.
func (s samples) raise(slot int, value float64) {
	if slot >= 0 && slot < len(s) && !(s[slot] >= value) {
		s[slot] = value
	}
}

// shows reports whether any value is above 0.
func (s samples) shows() bool {
	for _, v := range s {
		if v > 0 {
			return true
		}
	}
	return false
}

// sumBins sums the bins of the series of a trial that are selected, by number.
func sumBins(t *trial.Trial, which func(trial.Series) bool) map[int]*trial.Bin {
	sums := map[int]*trial.Bin{}
	for _, series := range t.Series {
		if !which(series) {
			continue
		}
		for _, b := range series.Bins {
			if sums[b.Number] == nil {
				sums[b.Number] = &trial.Bin{Number: b.Number}
			}
			sums[b.Number].Add(&b)
		}
	}
	return sums
}

// binBegin is when a bin begins, in seconds since the load began.
func binBegin(number int) float64 { return float64(number) * trial.BinLength.Seconds() }
