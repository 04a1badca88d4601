package golden

import (
	"testing"
	"testing/fstest"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// program has a command with flags and one argument, and one that runs another.
func program() *cobra.Command {
	do := func(*cobra.Command, []string) error { return nil }
	get := &cobra.Command{Use: "get KEY", Args: cobra.ExactArgs(1), RunE: do}
	get.Flags().Uint("fence", 0, "")
	get.Flags().String("reason", "", "")
	lock := &cobra.Command{Use: "lock NAME -- COMMAND", Args: cobra.MinimumNArgs(2), RunE: do}
	kv := &cobra.Command{Use: "kv", Args: cobra.NoArgs, RunE: do}
	kv.AddCommand(get)
	root := &cobra.Command{Use: "prog", Args: cobra.NoArgs, RunE: do}
	root.AddCommand(kv, lock)
	return root
}

func TestMisusedFindsWhatTheProgramWouldRefuse(t *testing.T) {
	for _, c := range []struct {
		name, text string
		commands   int
		want       string // the fault; "" for a command without one
	}{
		{"a command", "```\nbin/prog kv get a --fence 3 --reason 'a b' # prog nonsense\n```\n", 1, ""},
		{"placeholders", "```sh\nprog kv get KEY --fence $FENCE\n```\n", 1, ""},
		{"several, and files", "```\nX=1 prog kv get a > file 2>&1 && sudo prog kv get b | cat & echo prog\n```\n", 2, ""},
		{"a line that goes on", "```\nprog kv \\\n  get a\n```\n", 1, ""},
		{"what another one runs", "```\nprog lock x -- sh -c 'prog kv get a'\nkubectl exec pod -- prog kv get b\n```\n", 3, ""},
		{"what no shell runs", "```yaml\nprog nonsense\n```\n\nprog nonsense\n\n```\nThe prog nonsense\n```\n", 0, ""},
		{"a name in a sentence", "Call `prog kv get`, `prog kv get a b --fence N`, `prog kv get --fence`, or `prog COMMAND --help`.\n", 4, ""},

		{"an unknown command", "```\nprog vk\n```\n", 1, `docs/a.md: prog vk: unknown command "vk" for "prog"`},
		{"an unknown command of a group", "```\nprog kv put a\n```\n", 1, `docs/a.md: prog kv put a: unknown command "put" for "prog kv"`},
		{"a block for one place", "```sh clone\nprog kv get a\n```\n\n```sh\nprog kv put a\n```\n", 2, `docs/a.md: prog kv put a: unknown command "put" for "prog kv"`},
		{"an unknown flag", "```\nprog kv get a --fance 3\n```\n", 1, `docs/a.md: prog kv get a --fance 3: unknown flag: --fance`},
		{"a value that cannot be parsed", "```\nprog kv get a --fence blue\n```\n", 1, `docs/a.md: prog kv get a --fence blue: invalid argument "blue" for "--fence" flag: strconv.ParseUint: parsing "blue": invalid syntax`},
		{"an argument too many", "```\nprog kv get a b\n```\n", 1, `docs/a.md: prog kv get a b: accepts 1 arg(s), received 2`},
		{"an argument too few", "  ```\n  prog kv get\n  ```\n", 1, `docs/a.md: prog kv get: accepts 1 arg(s), received 0`},
		{"within another one", "```\nprog lock x -- sh -c 'echo; prog kv get'\n```\n", 2, `docs/a.md: prog lock x -- sh -c 'echo; prog kv get': accepts 1 arg(s), received 0`},
		{"an unknown flag in a sentence", "Call `prog kv get --fance N`.\n", 1, `docs/a.md: prog kv get --fance N: unknown flag: --fance`},
		{"an unknown command in a sentence", "Call `prog kv put`.\n", 1, `docs/a.md: prog kv put: unknown command "put" for "prog kv"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			faults, commands, err := Misused(fstest.MapFS{"docs/a.md": {Data: []byte(c.text)}, "other/b.md": {Data: []byte("`prog nonsense`")}}, program)
			need.OK(t, err)
			expect.Equal(t, commands, c.commands, "commands")
			var want []string
			if c.want != "" {
				want = []string{c.want}
			}
			expect.Slice(t, faults, want, "faults")
		})
	}
}
