package golden

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Undocumented returns what a page lacks of a program's commands: each needs a section with its examples and flags.
// Flags that the page describes once for all commands are shared.
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

// Misused returns the commands of a program in README.md and the pages below docs that the program would refuse: one
// that it does not have, a flag that the command does not have, a value that cannot be read, and in blocks of shell a
// wrong number of arguments. A word in capitals, or a variable, stands for any value. It also returns how many
// commands there are.
func Misused(files fs.FS, newProgram func() *cobra.Command) (faults []string, commands int, err error) {
	program := newProgram().Name()
	err = fs.WalkDir(files, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(file) != ".md" || file != "README.md" && !strings.HasPrefix(file, "docs/") {
			return err
		}
		text, err := fs.ReadFile(files, file)
		look := func(line string, inBlock bool) {
			for _, words := range commandsIn(line, program) {
				commands++
				if err := accepts(newProgram(), words, inBlock); err != nil {
					faults = append(faults, fmt.Sprintf("%s: %s: %v", file, strings.TrimSpace(line), err))
				}
			}
		}
		for _, block := range codeBlock.FindAllStringSubmatch(string(text), -1) {
			if block[1] != "" && block[1] != "sh" {
				continue
			}
			for line := range strings.Lines(strings.ReplaceAll(block[2], "\\\n", " ")) {
				look(line, true)
			}
		}
		for _, code := range inlineCode.FindAllStringSubmatch(codeBlock.ReplaceAllString(string(text), ""), -1) {
			look(code[1], false)
		}
		return err
	})
	return faults, commands, err
}

var (
	codeBlock  = regexp.MustCompile("(?ms)^ *```(\\w*)(?: \\w+)?\n(.*?)^ *```$")
	inlineCode = regexp.MustCompile("`([^`\n]+)`")

	// shellToken is a comment, an operator, a redirection or a word.
	shellToken  = regexp.MustCompile(`#.*|&&|[;|&()]|\d?(?:>>|>|<)(?:&\d)?|(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s;|&()<>'"\\])+`)
	shellQuote  = regexp.MustCompile(`'([^']*)'|"((?:\\.|[^"\\])*)"`)
	placeholder = regexp.MustCompile(`^(\$\w+|[A-Z][A-Z_-]*)$`)
	assignment  = regexp.MustCompile(`^\w+=`)
)

// commandsIn returns the arguments of each call of a program in a line of shell.
func commandsIn(line, program string) (calls [][]string) {
	var words []string // of the command being read
	skip := false      // the next word is a file
	for _, token := range shellToken.FindAllString(line, -1) {
		switch {
		case strings.HasPrefix(token, "#"):
		case strings.ContainsAny(token[:1], ";|&()"):
			calls = append(calls, callsOf(words, program)...)
			words, skip = nil, false
		case strings.ContainsAny(token[:min(2, len(token))], "<>"):
			skip = !strings.Contains(token, "&")
		case skip:
			skip = false
		default:
			words = append(words, shellQuote.ReplaceAllString(token, "$1$2"))
		}
	}
	return append(calls, callsOf(words, program)...)
}

// callsOf returns the calls in one command: itself, what it runs behind "--", and what sh -c runs.
func callsOf(words []string, program string) (calls [][]string) {
	for len(words) != 0 && (words[0] == "$" || words[0] == "sudo" || assignment.MatchString(words[0])) {
		words = words[1:]
	}
	switch {
	case len(words) > 2 && words[0] == "sh" && words[1] == "-c":
		return commandsIn(words[2], program)
	case len(words) > 1 && path.Base(words[0]) == program:
		calls = append(calls, words[1:])
	}
	if i := slices.Index(words, "--"); i >= 0 {
		calls = append(calls, callsOf(words[i+1:], program)...)
	}
	return calls
}

// accepts returns an error if the program would refuse the words. A command that is not complete may lack arguments,
// and a flag its value.
func accepts(program *cobra.Command, words []string, complete bool) error {
	program.InitDefaultHelpCmd()
	program.InitDefaultCompletionCmd()
	cmd, words, err := program.Find(words)
	if err != nil {
		return err
	}
	cmd.InitDefaultHelpFlag()
	for i, word := range words[min(1, len(words)):] {
		if flag := cmd.Flag(strings.TrimPrefix(words[i], "--")); flag != nil && placeholder.MatchString(word) {
			words[i+1] = flag.DefValue
		}
	}
	noValue := (*pflag.ValueRequiredError)(nil)
	if err := cmd.ParseFlags(words); err != nil && !errors.Is(err, pflag.ErrHelp) && (complete || !errors.As(err, &noValue)) {
		return err
	}
	if complete || cmd.HasSubCommands() && !placeholder.MatchString(cmd.Flags().Arg(0)) {
		return errors.Join(cmd.ValidateArgs(cmd.Flags().Args()), cmd.ValidateRequiredFlags(), cmd.ValidateFlagGroups())
	}
	return nil
}
