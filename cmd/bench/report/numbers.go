package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// showSeconds shows a span of seconds with three digits and the unit that suits it.
func showSeconds(s float64) string {
	switch {
	case s < 0 || math.IsInf(s, 1):
		return "never"
	case s == 0:
		return "0 s"
	case s < 1e-3:
		return threeDigits(s*1e6) + " µs"
	case s < 1:
		return threeDigits(s*1e3) + " ms"
	}
	return threeDigits(s) + " s"
}

// showShare shows a share as a percentage. Only all is 100 %, and only none is 0 %.
func showShare(share float64) string {
	percent := share * 100
	switch {
	case percent == 0 || percent == 100:
		return fmt.Sprintf("%.0f %%", percent)
	case percent < 0.01:
		return "< 0.01 %"
	case percent > 99.99:
		return "> 99.99 %"
	case percent < 1 || percent > 99:
		return fmt.Sprintf("%.2f %%", percent)
	}
	return fmt.Sprintf("%.1f %%", percent)
}

// showCount shows a number without decimals, in groups of three digits.
func showCount(n float64) string {
	digits := strconv.FormatFloat(math.Abs(math.Round(n)), 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	if n < 0 {
		return "−" + digits
	}
	return digits
}

// showBytes shows an amount of bytes with three digits and a decimal unit.
func showBytes(n float64) string {
	units := []string{"B", "kB", "MB", "GB", "TB"}
	for ; n >= 1000 && len(units) > 1; units = units[1:] {
		n /= 1000
	}
	return threeDigits(n) + " " + units[0]
}

func showBytesPerSecond(n float64) string { return showBytes(n) + "/s" }

// showSum shows a sum of instance-seconds, or another number that may be a fraction.
func showSum(n float64) string {
	if n >= 1000 {
		return showCount(n)
	}
	return threeDigits(n)
}

// threeDigits rounds to three significant digits and leaves no zeros behind a decimal point.
func threeDigits(n float64) string {
	if n == 0 {
		return "0"
	}
	decimals := max(0, 2-int(math.Floor(math.Log10(math.Abs(n)))))
	text := strconv.FormatFloat(n, 'f', min(decimals, 6), 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// inPlots is how many significant digits a plot can show.
const inPlots = 4

// significant rounds to so many significant digits.
func significant(n float64, digits int) float64 {
	if n == 0 || math.IsNaN(n) || math.IsInf(n, 0) {
		return n
	}
	scale := math.Pow(10, float64(digits-1)-math.Floor(math.Log10(math.Abs(n))))
	return math.Round(n*scale) / scale
}

// median is that of the values, which it sorts; of an even number the lower one, so that it is one that was measured.
func median(values []float64) float64 {
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

// showCores shows how many processors are busy.
func showCores(n float64) string {
	if n < 0.001 {
		return "< 0.001 cores"
	}
	if text := threeDigits(n); text != "1" {
		return text + " cores"
	}
	return "1 core"
}

// showInterval shows a span of whole seconds in the greatest unit that leaves no remainder.
func showInterval(seconds float64) string {
	whole := int(seconds)
	switch {
	case whole > 0 && whole%3600 == 0:
		return fmt.Sprintf("%d h", whole/3600)
	case whole > 0 && whole%60 == 0:
		return fmt.Sprintf("%d min", whole/60)
	}
	return showSeconds(seconds)
}

// inMarkdown keeps names out of files of scenarios from being markup.
func inMarkdown(text string) string {
	return markup.Replace(onOneLine(text))
}

var markup = strings.NewReplacer("\\", "\\\\", "|", "\\|", "<", "&lt;", "`", "\\`", "*", "\\*", "_", "\\_", "[", "\\[")

// inCode keeps a name within the code span that it stands in.
func inCode(text string) string { return strings.ReplaceAll(onOneLine(text), "`", "'") }

// onOneLine has no character that ends a line, or drives a terminal.
func onOneLine(text string) string {
	return Printable(strings.NewReplacer("\r\n", " ", "\n", " ", "\r", " ").Replace(text))
}

// Printable keeps what servers and files said from driving the terminal, or turning its text round.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return '?'
		}
		return r
	}, text)
}

// anchor is the id of a scenario's part of the page. Its prefix keeps names apart from the ids of other parts.
func anchor(name string) string { return "scenario-" + name }
