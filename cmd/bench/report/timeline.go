package report

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/verdict"
)

// timeline is what the time line of a scenario shows: one trial of each mode.
type timeline struct {
	Scenario string                      `json:"scenario"`
	Until    float64                     `json:"until"` // seconds: when the last of what is shown was observed
	Modes    map[scenario.Mode]*modeLine `json:"modes"`
}

// modeLine is one trial. Values are per 100 ms.
type modeLine struct {
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

// timelineOf shows the first completed trial of each mode. It has no modes if there is none.
func (r *Report) timelineOf(s scenario.Scenario) timeline {
	line := timeline{Scenario: s.Name, Modes: map[scenario.Mode]*modeLine{}}
	for _, mode := range r.modes() {
		if trials, _ := r.of(s.Name, mode); len(trials) > 0 {
			line.Modes[mode] = modeLineOf(trials[0], s)
			line.Until = max(line.Until, line.Modes[mode].until())
		}
	}
	return line
}

// end is when a trial's observations ended.
func end(t *trial.Trial) trial.Micros { return max(t.Settled, t.Length) }

func modeLineOf(t *trial.Trial, s scenario.Scenario) *modeLine {
	m := &modeLine{Round: t.Round, Length: t.Length.Seconds(), Bands: bands(t, s), Leaders: leaderStrips(t), Age: ages(t)}
	m.WriteSuccess, m.WriteLatency = successAndLatency(t, func(s trial.Series) bool { return s.Operation.Writes() })
	m.ReadSuccess, m.ReadLatency = successAndLatency(t, func(s trial.Series) bool { return !s.Operation.Writes() })
	m.CutOffSuccess, m.OthersSuccess = samples{}, samples{}
	if isolated := isolatedNodes(t); len(isolated) > 0 {
		m.CutOffSuccess, _ = successAndLatency(t, func(s trial.Series) bool { return isolated[s.Node] })
		m.OthersSuccess, _ = successAndLatency(t, func(s trial.Series) bool { return !isolated[s.Node] })
	}
	m.Behind = worstLists(t, func(l trial.List) int { return l.Behind })
	m.Ghosts = worstLists(t, func(l trial.List) int { return l.Ghosts })
	m.Missing = worstLists(t, func(l trial.List) int { return l.Missing })
	m.Unhealed = worstLists(t, func(l trial.List) int { return l.Unhealed })
	m.Queued, m.Lag = backlog(t)
	return m
}

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
	return slices.Contains([]scenario.Kind{scenario.Kill, scenario.Restart, scenario.Pause, scenario.Isolate, scenario.CutLink}, k)
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
	success, latency = noSamples(end(t)), noSamples(end(t))
	for number, b := range sumBins(t, which) {
		if b.due() > 0 {
			success.set(number, 100*b.success())
		}
		if p99, ok := b.quantile(0.99); ok {
			latency.set(number, float64(p99)/1e3)
		}
	}
	return success, latency
}

func ages(t *trial.Trial) samples {
	s := noSamples(end(t))
	for _, a := range verdict.Ages(t) {
		s.raise(slot(a.Called), a.Age.Seconds())
	}
	return s
}

func worstLists(t *trial.Trial, count func(trial.List) int) samples {
	s := noSamples(end(t))
	for _, l := range t.Lists {
		if !l.Failed {
			s.raise(slot(l.Asked), float64(count(l)))
		}
	}
	return s
}

// backlog is what the replicators had not sent, by the last report of each node.
func backlog(t *trial.Trial) (queued, lag samples) {
	queued, lag = noSamples(end(t)), noSamples(end(t))
	latest := map[int]trial.Replication{}
	next := 0
	for i := range queued {
		if next == len(t.Replicator) && next > 0 && i > slot(t.Replicator[next-1].At+trial.Of(time.Second)) {
			break // nobody asked any more
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
func (m *modeLine) until() float64 {
	last := m.Length
	for _, s := range []samples{m.WriteSuccess, m.ReadSuccess, m.Age, m.Missing, m.Queued} {
		for i, value := range s {
			if !math.IsNaN(value) {
				last = max(last, binBegin(i+1))
			}
		}
	}
	return significant(last)
}

// hasBacklog reports whether there was anything to catch up with after nodes were apart.
func (l timeline) hasBacklog() bool {
	for _, m := range l.Modes {
		if slices.ContainsFunc(m.Bands, func(b band) bool { return b.apart }) && (m.Queued.shows() || m.Lag.shows() || m.Unhealed.shows()) {
			return true
		}
	}
	return false
}
