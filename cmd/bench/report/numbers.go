package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// unit says how a figure is shown, and its name in Go's benchmark format.
type unit struct {
	name string
	show func(float64) string
}

var (
	seconds         = unit{"sec", showSeconds}
	share           = unit{"share", showShare}
	count           = unit{"count", showCount}
	byteCount       = unit{"B", showBytes}
	instanceSeconds = unit{"sum", showSum}
)

// showSeconds formats a span of seconds with three digits and a suitable unit.
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

// showShare formats a share as a percentage. Only all is 100 %, and only none is 0 %.
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

// showCount formats a number without decimals, in groups of three digits.
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

// showBytes formats an amount of bytes with three digits and a decimal unit.
func showBytes(n float64) string {
	units := []string{"B", "kB", "MB", "GB", "TB"}
	for ; n >= 1000 && len(units) > 1; units = units[1:] {
		n /= 1000
	}
	return threeDigits(n) + " " + units[0]
}

// showSum formats a sum of instance-seconds, or another number that may be a fraction.
func showSum(n float64) string {
	if n >= 1000 {
		return showCount(n)
	}
	return threeDigits(n)
}

// threeDigits rounds to three significant digits, without trailing zeros after a decimal point.
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

// amount returns "no write", "1 write" or "412 writes".
func amount(n float64, noun string) string {
	switch math.Round(n) {
	case 0:
		return "no " + noun
	case 1:
		return "1 " + noun
	}
	return showCount(n) + " " + noun + "s"
}

// inMarkdown keeps names from scenario files from being markup.
func inMarkdown(text string) string { return markup.Replace(Printable(text)) }

var markup = strings.NewReplacer("\\", "\\\\", "|", "\\|", "<", "&lt;", "`", "\\`", "*", "\\*", "_", "\\_", "[", "\\[")

// Printable keeps text from servers and files on one line, and from driving the terminal or reversing its text
// direction.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r':
			return ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
			return '?'
		}
		return r
	}, text)
}
