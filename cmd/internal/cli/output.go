package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Output is the format of a command's result: table or json.
type Output string

// Forms of output.
const (
	Table Output = "table"
	JSON  Output = "json"
)

// AddFlag adds -o, --output.
func (o *Output) AddFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP((*string)(o), "output", "o", string(Table), "form of the output: table or json")
}

// Validate refuses any other form, and names these.
func (o Output) Validate() error {
	return OneOf("--output", string(o), []string{string(Table), string(JSON)})
}

// Print writes value as JSON or as its table.
func (o Output) Print(w io.Writer, value Tabler) error {
	if o == JSON {
		return PrintJSON(w, value)
	}
	return PrintTable(w, value.Table())
}

// PrintJSON writes value indented, for people and scripts.
func PrintJSON(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(value)
}

// PrintLine writes value as one line of JSON.
func PrintLine(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(value)
}

// Tabler is a value that can be shown as a table: rows of cells, starting with the header. After an empty row another
// table follows, with columns of its own.
type Tabler interface{ Table() [][]string }

// Rows returns a table of a row for each element, below a header.
func Rows[T any](all []T, header []string, row func(T) []string) [][]string {
	rows := [][]string{header}
	for _, one := range all {
		rows = append(rows, row(one))
	}
	return rows
}

// PrintTable aligns the columns of rows.
func PrintTable(w io.Writer, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			row[i] = Printable(cell)
		}
		// A line without a tab ends the columns of those before it.
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	return tw.Flush()
}

// Printable replaces what cannot be seen: control characters, with which a service could drive the terminal or break
// the table, and marks that reverse the direction of the text or have no width. An empty cell becomes a dash, so that
// columns can be cut at white space.
func Printable(cell string) string {
	if cell == "" {
		return "-"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) && !order.Invisible(r) {
			return r
		}
		return '?'
	}, cell)
}

// IsTerminal reports whether a person reads what is written there.
func IsTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// YesNo returns a truth value as tables show it.
func YesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
