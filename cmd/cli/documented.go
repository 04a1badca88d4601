package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Undocumented says what a page lacks of a program's commands: a section with the examples and flags of each. Flags
// that the page describes once for all commands are shared. It is for the programs' tests.
func Undocumented(cmd *cobra.Command, page string, shared *pflag.FlagSet) (lacks []string) {
	for _, sub := range cmd.Commands() {
		lacks = append(lacks, Undocumented(sub, page, shared)...)
	}
	if cmd.Hidden || cmd.Example == "" && (!cmd.HasParent() || cmd.HasSubCommands()) {
		return lacks
	}
	_, section, ok := strings.Cut(page, "\n## "+cmd.CommandPath()+"\n")
	if !ok {
		return append(lacks, fmt.Sprintf("there is no section for %q", cmd.CommandPath()))
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(cmd.Example) {
		if !strings.Contains(section, strings.TrimSpace(line)) {
			lacks = append(lacks, fmt.Sprintf("the section of %q lacks the example %q", cmd.CommandPath(), strings.TrimSpace(line)))
		}
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if shared.Lookup(f.Name) == nil && !strings.Contains(section, "`--"+f.Name) {
			lacks = append(lacks, fmt.Sprintf("the section of %q lacks the flag --%s", cmd.CommandPath(), f.Name))
		}
	})
	return lacks
}
