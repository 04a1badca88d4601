package main

import (
	"fmt"
	"slices"
	"strings"
)

// figureName names something that is measured once per round. It is also what the reader sees.
type figureName string

// figure is what was measured under one name: one value per round.
type figure struct {
	Name   figureName `json:"name"`
	Unit   string     `json:"unit"`
	Values []float64  `json:"values"`
}

// figures are all that a run measured, in the order of first measurement.
type figures struct {
	list  []*figure
	wrong wrongAnswers
	notes []string
}

func newFigures() *figures { return &figures{wrong: make(wrongAnswers)} }

func (f *figures) add(name figureName, unit string, value float64) {
	found := f.find(name)
	if found == nil {
		found = &figure{Name: name, Unit: unit}
		f.list = append(f.list, found)
	}
	found.Values = append(found.Values, value)
}

func (f *figures) find(name figureName) *figure {
	i := slices.IndexFunc(f.list, func(found *figure) bool { return found.Name == name })
	if i < 0 {
		return nil
	}
	return f.list[i]
}

// note remembers what a reader of the figures should know.
func (f *figures) note(format string, args ...any) {
	f.notes = append(f.notes, fmt.Sprintf(format, args...))
}

// wronged counts answers other than the expected ones, and where they came up.
func (f *figures) wronged(name figureName, wrong wrongAnswers) {
	for how, n := range wrong {
		f.wrong[fmt.Sprintf("%s (%s)", how, name)] += n
	}
}

// spread is the middle and the ends of some values.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// spreadOf wants one value at least. The median of an even number is the mean of the middle two.
func spreadOf(values []float64) spread {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	median := sorted[middle]
	if len(sorted)%2 == 0 {
		median = (sorted[middle-1] + median) / 2
	}
	return spread{median, sorted[0], sorted[len(sorted)-1]}
}

// text shows a spread with its unit.
func (s spread) text(unit string) string {
	text := shortNumber(s.Median)
	if s.Min != s.Max {
		text += " (" + shortNumber(s.Min) + "–" + shortNumber(s.Max) + ")"
	}
	return strings.TrimSpace(text + " " + unit)
}

// shortNumber keeps about three digits, and marks thousands by a comma.
func shortNumber(v float64) string {
	switch {
	case v >= 1000:
		whole := fmt.Sprintf("%.0f", v)
		for at := len(whole) - 3; at > 0; at -= 3 {
			whole = whole[:at] + "," + whole[at:]
		}
		return whole
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
