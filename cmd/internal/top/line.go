package top

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/rivo/uniseg"

	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
)

// style is how a line stands out. Among those that rate something, a later one is worse.
type style int

const (
	plain style = iota
	head
	dim
	good
	warn
	bad
)

// line is one line of a frame.
type line struct {
	text  string
	style style
}

// printable is cli.Printable of a whole line, which may be empty.
func printable(text string) string {
	if text == "" {
		return ""
	}
	return cli.Printable(text)
}

// widestCell is how many columns a cell can have unless it is the last of its row.
const widestCell = 40

// align makes a line of each row, with columns of one width.
func align(rows [][]string) (texts []string) {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if row[i] = cli.Printable(cell); i < len(row)-1 {
				row[i] = clip(row[i], widestCell)
			}
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], uniseg.StringWidth(row[i]))
		}
	}
	for _, row := range rows {
		var b strings.Builder
		for i, cell := range row {
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-uniseg.StringWidth(cell)+2))
			}
		}
		texts = append(texts, b.String())
	}
	return texts
}

// wrap breaks a line between words into at most most lines.
func wrap(l line, width, most int) (lines []line) {
	text := ""
	for _, word := range strings.Fields(l.text) {
		longer := word
		if text != "" {
			longer = text + " " + word
		}
		if text != "" && uniseg.StringWidth(longer) > width && len(lines) < most-1 {
			lines = append(lines, line{text, l.style})
			longer = word
		}
		text = longer
	}
	return append(lines, line{text, l.style})
}

// clip cuts a text to a number of columns; 0 leaves it as it is.
func clip(text string, width int) string {
	if width <= 0 || uniseg.StringWidth(text) <= width {
		return text
	}
	const cut = "…"
	var b strings.Builder
	left := width - uniseg.StringWidth(cut)
	for g := uniseg.NewGraphemes(text); g.Next() && g.Width() <= left; left -= g.Width() {
		b.WriteString(g.Str())
	}
	return b.String() + cut
}

func clock(at time.Time) string { return at.UTC().Format("15:04:05Z") }

func milliseconds(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// seconds returns a duration in whole seconds.
func seconds(d time.Duration) string { return d.Round(time.Second).String() }

// shown returns a value, or a sign that it is not known.
func shown(known bool, value any) string {
	if !known {
		return "?"
	}
	return fmt.Sprint(value)
}

// decimal returns a number with at most one digit after the point, or a sign that it is not known (nil).
func decimal(x *float64) string {
	if x == nil {
		return "?"
	}
	return strconv.FormatFloat(math.Round(*x*10)/10, 'f', -1, 64)
}

// latency returns a time in seconds for people, or a sign that it is not known (nil).
func latency(s *float64) string {
	if s == nil {
		return "?"
	}
	return time.Duration(*s * float64(time.Second)).Round(100 * time.Microsecond).String()
}

func gigabytes(bytes int64) string { return fmt.Sprintf("%.1f GB", float64(bytes)/1e9) }
