package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// output is the form in which a command prints what it found: table or json.
type output string

// The forms.
const (
	asTable output = "table"
	asJSON  output = "json"
)

func (o *output) addFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP((*string)(o), "output", "o", string(asTable), "form of the output: table or json")
}

func (o output) validate() error {
	return oneOf("--output", string(o), []string{string(asTable), string(asJSON)})
}

// print writes value as JSON, or as the table that it knows how to make.
func (o output) print(w io.Writer, value tabler) error {
	if o == asJSON {
		return printJSON(w, value)
	}
	return printTable(w, value.table())
}

func printJSON(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(value)
}

// tabler is what can be shown as a table: rows of cells, the first of them the head. An empty row
// ends a table; what follows is another one, with columns of its own.
type tabler interface{ table() [][]string }

func printTable(w io.Writer, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			row[i] = printable(cell)
		}
		// A line without a tab ends the columns of those before it.
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	return tw.Flush()
}

// printable keeps what services put into the registry from driving the terminal or breaking the
// table; an empty cell becomes a dash, so that columns can be cut by white space.
func printable(cell string) string {
	if cell == "" {
		return "-"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, cell)
}
