package main

import (
	"slices"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestSpreadIsMedianAndEnds(t *testing.T) {
	for _, tc := range []struct {
		name   string
		values []float64
		want   spread
		text   string
	}{
		{name: "one", values: []float64{0.456}, want: spread{0.456, 0.456, 0.456}, text: "0.46 ×"},
		{name: "odd", values: []float64{3, 100.4, 20}, want: spread{20, 3, 100.4}, text: "20.0 (3.00–100) ×"},
		{name: "even", values: []float64{4000, 1000, 2000, 1234567}, want: spread{3000, 1000, 1234567}, text: "3,000 (1,000–1,234,567) ×"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			given := slices.Clone(tc.values)
			got := spreadOf(tc.values)
			if got != tc.want || got.text("×") != tc.text {
				t.Errorf("got %v, shown as %q, want %v as %q", got, got.text("×"), tc.want, tc.text)
			}
			if !slices.Equal(given, tc.values) {
				t.Errorf("the rounds' order was changed to %v", tc.values)
			}
		})
	}
}

func TestVerdictsFollowFloorAndGoal(t *testing.T) {
	higher := ratioRow{floor: 0.33, goal: 0.45}
	lower := ratioRow{floor: 8, goal: 5, lower: true}
	for _, tc := range []struct {
		name  string
		row   ratioRow
		value float64
		want  verdict
	}{
		{name: "below", row: higher, value: 0.329, want: missed},
		{name: "floor", row: higher, value: 0.33, want: met},
		{name: "goal", row: higher, value: 0.45, want: goalMet},
		{name: "too slow", row: lower, value: 8.1, want: missed},
		{name: "fast enough", row: lower, value: 8, want: met},
		{name: "fast", row: lower, value: 5, want: goalMet},
		{name: "nothing asked", row: ratioRow{}, value: 1, want: noVerdict},
	} {
		if got := tc.row.judge(tc.value); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
}

// measured has two rounds of everything that the rows need.
func measured() *figures {
	f := newFigures()
	for round := range 2 {
		for _, r := range ratioRows {
			for _, name := range []figureName{r.of, r.over} {
				if known := f.find(name); name != "" && (known == nil || len(known.Values) == round) {
					f.add(name, "/s", float64(round+1))
				}
			}
		}
	}
	return f
}

func TestRatiosAreTakenRoundByRound(t *testing.T) {
	f := measured()
	f.find(renew256).Values = []float64{50, 10}
	f.find(bare256).Values = []float64{100, 40}
	rows := need.Got(f.evaluate(ratioRows))(t)
	if got := rows[0]; got.of != renew256 || !slices.Equal(got.values, []float64{0.5, 0.25}) || got.spread != (spread{0.375, 0.25, 0.5}) || got.verdict != met {
		t.Errorf("got %+v", got)
	}
}

func TestWhatWasNotMeasuredIsAnError(t *testing.T) {
	for _, tc := range []struct {
		name   string
		forget func(*figures)
	}{
		{name: "never", forget: func(f *figures) {
			f.list = slices.DeleteFunc(f.list, func(f *figure) bool { return f.Name == rebuild })
		}},
		{name: "baseline never", forget: func(f *figures) {
			f.list = slices.DeleteFunc(f.list, func(f *figure) bool { return f.Name == bare64 })
		}},
		{name: "a round less", forget: func(f *figures) { f.find(bare64).Values = []float64{1} }},
		{name: "nothing came of it", forget: func(f *figures) { f.find(bare64).Values = []float64{1, 0} }},
	} {
		f := measured()
		tc.forget(f)
		if _, err := f.evaluate(ratioRows); err == nil {
			t.Errorf("%s: that is no error", tc.name)
		}
	}
}

func TestGoalsAreFloorsOrBeyond(t *testing.T) {
	for _, r := range ratioRows {
		if r.floor != r.goal && r.judge(r.floor) != met || r.goal != 0 && r.judge(r.goal) != goalMet {
			t.Errorf("%s: floor %v, goal %v", r.name, r.floor, r.goal)
		}
	}
}

func TestWrongAnswersAreListedWithWhereTheyCameUp(t *testing.T) {
	f := newFigures()
	f.wronged(renew64, wrongAnswers{"status 504 instead of 200": 2})
	f.wronged(renew64, wrongAnswers{"status 504 instead of 200": 1, "EOF": 1})
	want := "1 × EOF (renew, 64 connections to the leader), 3 × status 504 instead of 200 (renew, 64 connections to the leader)"
	if got := f.wrong.String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
