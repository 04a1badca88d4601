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

// plural is that of a noun, of which the first word may be followed by others ("read of an instance").
func plural(noun string) string {
	first, rest, _ := strings.Cut(noun, " of ")
	switch {
	case strings.HasSuffix(first, "y"):
		first = strings.TrimSuffix(first, "y") + "ies"
	default:
		first += "s"
	}
	if rest != "" {
		return first + " of " + rest
	}
	return first
}

// wasWere is the verb for a number of things.
func wasWere(n float64) string {
	if math.Round(n) > 1 {
		return "were"
	}
	return "was"
}

// list is "a", "a and b", or "a, b, and c".
func list(parts []string) string {
	switch len(parts) {
	case 0:
		return ""
	case 1:
		return parts[0]
	case 2:
		return parts[0] + " and " + parts[1]
	}
	return strings.Join(parts[:len(parts)-1], ", ") + ", and " + parts[len(parts)-1]
}

// capital begins a sentence.
func capital(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:]
}

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
