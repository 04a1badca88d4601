package top

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

func lose(m *model) {
	for n := range 2 {
		m.add(reading{at: at(3 + n), failures: []failure{{first, errors.New("connection refused")}, {second, errors.New("no route")}}})
	}
}

func moves(r *reading) {
	r.server, r.failures = second, []failure{{first, errors.New("connection refused")}}
}

func breaks(m *model) {
	m.breakStream(at(4), "EOF")
	m.breakStream(at(5), "connection refused")
}

func saying(level, text string) func(r *reading) {
	return func(r *reading) { r.overview.Line = client.Line{Level: level, Text: text} }
}

// states has a row for each truth: what brings it about, and the line of state then.
var states = []struct {
	name  string
	read  func(r *reading) // what the server says, at second 2
	later func(m *model)   // what happens besides
	want  line
}{
	{name: "no server responds", later: lose, want: line{"No answer from any server since 12:00:03Z: http://10.0.0.1:8761 (connection refused), http://10.0.0.2:8761 (no route). Trying again. You see what node1 knew 4s ago.", bad}},
	{name: "the server's line", want: line{"Healthy. node2 leads; 3 of 3 nodes agree; one may fail.", good}},
	{name: "another server", read: moves, want: line{"No answer from http://10.0.0.1:8761 since 12:00:02Z. http://10.0.0.2:8761 is asked instead.", warn}},
	{name: "no stream", later: breaks, want: line{"No changes come since 12:00:04Z (connection refused). The next server is tried.", warn}},
}

func inState(read func(*reading), later func(*model)) *model {
	m, r := sample(), healthy(2)
	if read != nil {
		read(&r)
	}
	m.add(r)
	if later != nil {
		later(m)
	}
	return m
}

func TestLineOfStateSaysTheWorst(t *testing.T) {
	untested := map[string]bool{}
	for _, truth := range truths {
		untested[truth.name] = true
	}
	for _, tc := range states {
		expect.Equal(t, inState(tc.read, tc.later).holding(at(6))[0], tc.want, "%s: the line of state is", tc.name)
		delete(untested, tc.name)
	}
	expect.That(t, len(untested) == 0, "no test has the states %v", untested)
}

func TestServersLineHasItsLevel(t *testing.T) {
	for _, tc := range []struct {
		level, text string
		want        line
	}{
		{"well", "Healthy.", line{"Healthy.", good}},
		{"warn", "dc2 is not heard.", line{"dc2 is not heard.", warn}},
		{"bad", "No leader.", line{"No leader.", bad}},
		{"dire", "What a later version says.", line{"What a later version says.", warn}},
		{"", "", line{"http://10.0.0.1:8761 does not say how the cluster is.", warn}},
	} {
		got := inState(saying(tc.level, tc.text), nil).holding(at(6))
		expect.Slice(t, got, []line{tc.want}, "of level %q it shows", tc.level)
	}
}

func TestTruthsAreShownTheWorstFirst(t *testing.T) {
	for _, tc := range []struct {
		name, level string
		read        func(*reading)
		later       func(*model)
		want        []string // the names of truths
	}{
		{"well", "well", nil, nil, []string{"the server's line"}},
		{"well, elsewhere", "well", moves, nil, []string{"another server", "the server's line"}},
		{"well, elsewhere, without a stream", "well", moves, breaks, []string{"another server", "no stream", "the server's line"}},
		{"a warning, elsewhere, without a stream", "warn", moves, breaks, []string{"the server's line", "another server", "no stream"}},
		{"bad, without a stream", "bad", nil, breaks, []string{"the server's line", "no stream"}},
		{"bad, and no server responds", "bad", nil, lose, []string{"no server responds", "the server's line"}},
	} {
		m := inState(tc.read, tc.later)
		m.last.overview.Line.Level = tc.level
		var got []string
		for _, l := range m.holding(at(6)) {
			for _, truth := range truths {
				if truth.say(m, at(6)) == l {
					got = append(got, truth.name)
				}
			}
		}
		expect.Slice(t, got, tc.want, "%s: it shows", tc.name)
	}
}

func TestStateBeforeTheFirstResponse(t *testing.T) {
	m := newModel([]string{first, second})
	expect.Slice(t, m.holding(at(0)), []line{{"Asking http://10.0.0.1:8761, http://10.0.0.2:8761 …", dim}}, "at first:")
	lose(m)
	expect.Slice(t, m.holding(at(6)), []line{{"No answer from any server since 12:00:03Z: http://10.0.0.1:8761 (connection refused), http://10.0.0.2:8761 (no route). Trying again.", bad}}, "without a response:")
}

func TestAttentionIsTheWorstFirstAndBounded(t *testing.T) {
	m := inState(moves, breaks)
	m.last.overview.Line = client.Line{Level: "warn", Text: "Degraded."}
	attention := func() []line { return m.attention(m.holding(at(6))[1:]) }
	listed := []line{
		{"PAY: none of 2 instances is UP", bad}, {"ORDERS: 2 UP, within ten minutes 5 were", warn}, {"ORDERS: 3 of 4 leases are overdue, orders-2 for 1m5s", warn},
	}
	expect.Slice(t, attention(), append([]line{states[2].want, states[3].want}, listed...), "attention")
	m.last.overview.Line = client.Line{Level: "well", Text: "Healthy."}
	expect.Slice(t, attention(), append([]line{states[3].want}, listed...), "without the good news")

	for n := range 9 {
		m.last.overview.Attention = append(m.last.overview.Attention, client.Attention{Level: "warn", Text: fmt.Sprintf("W%d", n)})
	}
	bounded := attention()
	expect.That(t, len(bounded) == mostTroubles && slices.Contains(bounded, line{"W4", warn}) && bounded[mostTroubles-1].text == "… and 4 more",
		"of 13 it shows %v", bounded)
}
