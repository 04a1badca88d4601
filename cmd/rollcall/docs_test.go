package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write the reference table of docs/operations.md anew")

const (
	operations = "../../docs/operations.md"
	cli        = "../../docs/cli.md"
	tableStart = "<!-- settings: made by go test ./cmd/rollcall -run Reference -update -->\n"
	tableEnd   = "<!-- end of settings -->\n"
)

func document(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// referenceTable lists every key with its type, default and meaning.
func referenceTable() string {
	var b strings.Builder
	b.WriteString("| Key | Type | Default | Meaning |\n|---|---|---|---|\n")
	defaults := defaultConfig()
	for _, k := range configKeys() {
		value := k.format(defaults)
		if value != "" {
			value = "`" + value + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.name, k.kind(), value, k.help)
	}
	return b.String()
}

func TestTheReferenceOfSettingsIsComplete(t *testing.T) {
	text := document(t, operations)
	before, rest, ok := strings.Cut(text, tableStart)
	table, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has no %q and %q", operations, tableStart, tableEnd)
	}
	want := referenceTable()
	if table == want {
		return
	}
	if !*update {
		t.Fatalf("the table of %s is not that of the program; run this test with -update. It should be\n%s", operations, want)
	}
	if err := os.WriteFile(operations, []byte(before+tableStart+want+tableEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestEveryCommandIsDocumentedWithItsExamplesAndFlags(t *testing.T) {
	text := document(t, cli)
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			check(sub)
		}
		if cmd.Hidden || cmd.Example == "" && (!cmd.HasParent() || cmd.HasSubCommands()) {
			return
		}
		_, section, ok := strings.Cut(text, "\n## "+cmd.CommandPath()+"\n")
		if !ok {
			t.Errorf("%s has no section for %q", cli, cmd.CommandPath())
			return
		}
		section, _, _ = strings.Cut(section, "\n## ")
		for line := range strings.Lines(cmd.Example) {
			if !strings.Contains(section, strings.TrimSpace(line)) {
				t.Errorf("the section of %q lacks the example %q", cmd.CommandPath(), strings.TrimSpace(line))
			}
		}
		for _, name := range ownFlags(cmd) {
			if !strings.Contains(section, "`--"+name) {
				t.Errorf("the section of %q lacks the flag --%s", cmd.CommandPath(), name)
			}
		}
	}
	check(newRootCommand())
}

// ownFlags are a command's flags without those that are described once for all commands.
func ownFlags(cmd *cobra.Command) []string {
	shared := &cobra.Command{}
	new(connection).addFlags(shared)
	addConfigFlags(shared.Flags())
	var names []string
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if shared.Flags().Lookup(f.Name) == nil {
			names = append(names, f.Name)
		}
	})
	return names
}

func TestEveryExitCodeIsDocumented(t *testing.T) {
	for _, path := range []string{operations, cli} {
		text := document(t, path)
		for _, code := range []int{exitOK, exitError, exitUsage, exitFatal} {
			if !strings.Contains(text, fmt.Sprintf("\n| %d | ", code)) {
				t.Errorf("%s has no row for exit code %d", path, code)
			}
		}
	}
	for _, code := range []int{exitUsage, exitLost, exitNotAcquired, exitGuard, exitCannotRun, exitNoCommand} {
		_, section, _ := strings.Cut(document(t, cli), "\n## rollcall lock\n")
		if !strings.Contains(section, fmt.Sprintf("\n| %d | ", code)) || !strings.Contains(guardHelp, fmt.Sprintf("\n  %-3d  ", code)) {
			t.Errorf("the section of lock in %s, or its help, has no row for exit code %d", cli, code)
		}
	}
}
