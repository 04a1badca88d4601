package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/golden"
	"github.com/seed-20419f34/rollcall/internal/need"
)

const (
	settings   = "../../docs/reference/settings.md"
	nodeDied   = "../../docs/run/node-died.md"
	cliPage    = "../../docs/reference/cli.md"
	tableStart = "<!-- settings: made by go test ./cmd/rollcall -run Reference -update -->\n"
	tableEnd   = "<!-- end of settings -->\n"
)

func document(t *testing.T, path string) string {
	t.Helper()
	b := need.Got(os.ReadFile(path))(t)
	return string(b)
}

func referenceTable() string {
	var b strings.Builder
	b.WriteString("| Key | Type | Default | Limits | Taken over | Meaning |\n|---|---|---|---|---|---|\n")
	for _, s := range config.Default().Settings() {
		value := s.String()
		if value != "" {
			value = "`" + value + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", s.Key, s.Kind(), value, s.Limits(), s.TakesEffect(), s.Help)
	}
	return b.String()
}

func TestReferenceOfSettingsIsComplete(t *testing.T) {
	golden.Part(t, settings, tableStart, tableEnd, referenceTable())
}

func TestDocumentsHaveEveryCommandWithItsExamplesAndFlags(t *testing.T) {
	shared := &cobra.Command{}
	new(connection).addFlags(shared)
	config.AddFlags(shared.Flags())
	for _, lack := range cli.Undocumented(newRootCommand(), document(t, cliPage), shared.Flags()) {
		t.Errorf("%s: %s", cliPage, lack)
	}
}

func TestDocumentsHaveEveryExitCode(t *testing.T) {
	for _, path := range []string{nodeDied, cliPage} {
		text := document(t, path)
		for _, code := range []int{cli.ExitOK, cli.ExitError, cli.ExitUsage, cli.ExitFatal} {
			expect.That(t, strings.Contains(text, fmt.Sprintf("\n| %d | ", code)), "%s has no row for exit code %d", path, code)
		}
	}
	for _, code := range []int{cli.ExitUsage, exitLost, exitNotAcquired, exitRollcall, exitCannotRun, exitNoCommand} {
		_, section, _ := strings.Cut(document(t, cliPage), "\n## rollcall lock\n")
		expect.That(t, strings.Contains(section, fmt.Sprintf("\n| %d | ", code)) && strings.Contains(holdingHelp, fmt.Sprintf("\n  %-3d  ", code)),
			"the section of lock in %s, or its help, has no row for exit code %d", cliPage, code)
	}
}

func TestCommandsInDocumentsAreThoseOfTheProgram(t *testing.T) {
	faults, commands, err := cli.Misused(os.DirFS("../.."), newRootCommand)
	need.OK(t, err)
	need.That(t, commands > 300, "the documents have %d commands", commands)
	for _, fault := range faults {
		t.Error(fault)
	}
}
