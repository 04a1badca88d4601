package dashboard

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	g "maragu.dev/gomponents"

	"github.com/seed-20419f34/rollcall/fsm/order"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// el, attr and text are called through variables: if they were inlined, each call would bring its own closures, 130 kB
// of program.
var (
	el       = g.El
	attr     = g.Attr
	verbatim = g.Text
)

// text shows words, with a mark for each invisible character: an old name may turn the direction of the text after it.
func text(words string) g.Node {
	return verbatim(strings.Map(func(r rune) rune {
		if order.Invisible(r) {
			return utf8.RuneError
		}
		return r
	}, words))
}

// name shows a name in a list, very long ones cut off.
func name(words string) g.Node { return text(order.CutText(words, 100)) }

func class(name string) g.Node { return attr("class", name) }

// section has a heading and, in small letters beside it, its subject.
func section(title, aside string, content ...g.Node) g.Node {
	return el("section", el("h2", text(title), g.If(aside != "", el("small", text(aside)))), g.Group(content))
}

// table shows rows, or none's words if there are no rows; without words it shows nothing. The title of a column of
// numbers begins with #. It scrolls sideways on its own where the window is narrow.
func table[T any](none string, titles []string, rows []T, of func(T) row) g.Node {
	switch {
	case len(rows) > 0:
		columns := el("tr", g.Map(titles, func(title string) g.Node {
			title, numbers := strings.CutPrefix(title, "#")
			return el("th", attr("scope", "col"), g.If(numbers, class("number")), text(title))
		}))
		return el("div", class("scroll"), attr("tabindex", "0"), attr("role", "region"), attr("aria-label", strings.TrimPrefix(titles[0], "#")+" table"),
			el("table", el("thead", columns), el("tbody", g.Map(rows, func(r T) g.Node { return of(r).under(titles) }))))
	case none != "":
		return el("p", class("empty"), text(none))
	default:
		return g.Group{}
	}
}

// row is a table row: its attributes and its cells.
type row []g.Node

func tr(nodes ...g.Node) row { return nodes }

// under returns the row below titles: where the window is too narrow for columns, each cell shows its own title.
func (r row) under(titles []string) g.Node {
	nodes, column := make(g.Group, len(r)), 0
	for i, n := range r {
		nodes[i] = n
		c, is := n.(tableCell)
		if !is {
			continue
		}
		if c.element == "td" { // a cell that names the row needs no title
			nodes[i] = el("td", attr("data-label", strings.TrimPrefix(titles[column], "#")), c.content)
		}
		column++
	}
	return el("tr", nodes)
}

// tableCell is a cell of a table.
type tableCell struct {
	element string // td, or th for the cell that names the row
	content g.Group
}

// Render implements gomponents.Node, for a cell outside a row.
func (t tableCell) Render(w io.Writer) error { return el(t.element, t.content).Render(w) }

func td(content ...g.Node) g.Node { return tableCell{"td", content} }

func cell(style, words string) g.Node { return td(g.If(style != "", class(style)), text(words)) }

// named returns a cell that names the row.
func named(content ...g.Node) g.Node {
	return tableCell{"th", append(g.Group{attr("scope", "row")}, content...)}
}

func number(n any) g.Node { return cell("number", fmt.Sprint(n)) }

// status shows a word in a color that fits its meaning.
func status(style, words string) g.Node {
	return el("span", class("status "+style), text(words))
}

func soft(words string) g.Node {
	return g.If(words != "", el("span", class("soft"), text(words)))
}

func more(n int) g.Node {
	return g.If(n > 0, el("p", class("soft"), g.Textf("and %d more", n)))
}

func link(path, words string) g.Node { return el("a", attr("href", path), text(words)) }

// hidden carries a field of a form.
func hidden(name, value string) g.Node {
	return el("input", attr("type", "hidden"), attr("name", name), attr("value", value))
}

func code(words string) g.Node { return el("code", text(words)) }

// moment shows a time, ms since the epoch, in the server's words, in UTC; a script replaces it by the reader's time. 0
// means no time.
func moment(wall int64) g.Node {
	if wall == 0 {
		return text("–")
	}
	at := timeOf(wall)
	return stamp(at, at.Format(time.DateTime))
}

// stamp shows a time in words that a script replaces by the reader's.
func stamp(at time.Time, words string) g.Node {
	return el("time", attr("datetime", at.UTC().Format("2006-01-02T15:04:05.000Z")), text(words))
}

// copied shows a command line or a document, with a button that copies it.
func copied(id, words string) g.Node {
	return el("div", class("copied"), el("pre", attr("id", id), attr("tabindex", "0"), verbatim(words)),
		el("button", attr("type", "button"), class("copy"), attr("data-copy", id), text("Copy")))
}

// plural returns a number with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// agree returns the form of a verb that agrees with a number.
func agree(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// sentence ends words with a full stop.
func sentence(words string) string {
	if words == "" || strings.HasSuffix(words, ".") {
		return words
	}
	return words + "."
}

// dash replaces missing words by a dash.
func dash(words string) string { return cmp.Or(words, "–") }

// command is a call of our command line: its verb, its object, its flags, and the shell's words before it, which
// provide its input.
type command struct {
	verb         string
	names, flags []string
	input        string
}

// commandLine returns a command, quoted for a shell. A name that begins like a flag goes after all flags.
func commandLine(server string, c command) string {
	flags := append(slices.Clip(c.flags), "--addr", server)
	words := append(slices.Clip(c.names), flags...)
	if slices.ContainsFunc(c.names, func(name string) bool { return name != "-" && strings.HasPrefix(name, "-") }) {
		words = append(append(flags, "--"), c.names...)
	}
	line := c.input + "rollcall " + c.verb
	for _, word := range words {
		line += " " + quoted(word)
	}
	return line
}

func quoted(word string) string {
	plain := func(r rune) bool {
		return r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_./:=,@%+", r))
	}
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool { return !plain(r) }) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// fact is a row of two cells.
type fact struct {
	name  string
	value g.Node
}

func factsTable(rows []fact) g.Node {
	return el("table", class("facts"), el("tbody", g.Map(rows, func(f fact) g.Node { return el("tr", named(text(f.name)), td(f.value)) })))
}

func shownBytes(n int64) string {
	const kib = 1024
	x, unit := float64(n), 0
	for x >= kib && unit < 4 {
		x, unit = x/kib, unit+1
	}
	return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64) + " " + []string{"B", "KiB", "MiB", "GiB", "TiB"}[unit]
}

// shortened returns a name that fits into a drawing.
func shortened(name string) string {
	const most = 24
	if runes := []rune(name); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return name
}

func decimal(x float64) string { return strconv.FormatFloat(x, 'f', 2, 64) }

// withQuery adds parameters to a path, leaving out empty ones.
func withQuery(path string, pairs ...string) string {
	path, query, _ := strings.Cut(path, "?")
	values, _ := url.ParseQuery(query) // cannot fail: it is our own
	setGiven(values, pairs...)
	if len(values) == 0 {
		return path
	}
	return path + "?" + values.Encode()
}

// setGiven sets parameters in pairs of a name and a value, leaving out empty ones.
func setGiven(values url.Values, pairs ...string) {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			values.Set(pairs[i], pairs[i+1])
		}
	}
}

// shownStatus shows an instance's status; lists show none for one in quarantine.
func shownStatus(l *registry.Lease) g.Node {
	if l.Quarantine != nil {
		return status("quarantined", "quarantined")
	}
	return status(l.Instance.Status.String(), l.Instance.Status.String())
}

// maxShown bounds the rows of a table without pages.
const maxShown = 100
