package report

import (
	"maps"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// perRound is one value of each round.
type perRound []float64

func (f perRound) median() float64 { return median(slices.Clone(f)) }

// zero reports whether there is nothing, or nothing but zeros.
func (f perRound) zero() bool { return !slices.ContainsFunc(f, func(v float64) bool { return v != 0 }) }

// whole reports whether every share is all.
func (f perRound) whole() bool {
	return len(f) > 0 && !slices.ContainsFunc(f, func(v float64) bool { return v != 1 })
}

// show is the median, and if the rounds differ the range, each as show writes it.
func (f perRound) show(show func(float64) string) string {
	if len(f) == 0 {
		return "–"
	}
	text, least, most := show(f.median()), show(slices.Min(f)), show(slices.Max(f))
	if least == most {
		return text
	}
	return text + " (" + least + " to " + most + ")"
}

// counted is "no write", "1 write", "412 writes" or "412 writes (398 to 420)".
func (f perRound) counted(noun string) string {
	if len(f) == 0 {
		return ""
	}
	text := amount(f.median(), noun)
	least, most := slices.Min(f), slices.Max(f)
	if math.Round(least) == math.Round(most) {
		return text
	}
	return text + " (" + showCount(least) + " to " + showCount(most) + ")"
}

// amount is "no write", "1 write" or "412 writes".
func amount(n float64, noun string) string {
	switch math.Round(n) {
	case 0:
		return "no " + noun
	case 1:
		return "1 " + noun
	}
	return showCount(n) + " " + plural(noun)
}

// plural is that of a noun.
func plural(noun string) string {
	stem, ok := strings.CutSuffix(noun, "y")
	if ok && !strings.HasSuffix(stem, "e") { // "delivery", but not "key"
		return stem + "ies"
	}
	return noun + "s"
}

// all is "all 412 writes", "the only write" or "no write", with the range of the rounds.
func (f perRound) all(noun string) string {
	switch {
	case f.zero():
		return "no " + noun
	case slices.Max(f) == 1:
		return "the only " + noun
	}
	return "all " + f.counted(noun)
}

// wasWere is the verb for a number of things.
func wasWere(n float64) string {
	if math.Round(n) > 1 {
		return "were"
	}
	return "was"
}

// list is "a", "a and b", or "a, b, and c". Parts that have commas of their own are always parted by one.
func list(parts []string) string {
	switch len(parts) {
	case 0:
		return ""
	case 1:
		return parts[0]
	case 2:
		if !strings.Contains(parts[0], ", ") {
			return parts[0] + " and " + parts[1]
		}
	}
	return strings.Join(parts[:len(parts)-1], ", ") + ", and " + parts[len(parts)-1]
}

// capital begins a sentence.
func capital(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:]
}

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
