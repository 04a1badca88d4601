package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestLoadNamesThePlaceOfEveryMistake(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		env  map[string]string
		file string
		want []string // one per mistake
	}{
		{name: "unknown keys", file: "http:\n  adress: x\ndatta: {}\nraft: {timeout: 1s}\n", want: []string{"c.yaml:2: unknown key http.adress", "c.yaml:3: unknown key datta", "c.yaml:4: unknown key raft.timeout"}},
		{name: "key given twice", file: "http:\n  addr: a:1\n  addr: b:1\n", want: []string{"c.yaml:3: key http.addr is given twice"}},
		{name: "value for a section", file: "http: 8761\n", want: []string{"c.yaml:1: http is a section"}},
		{name: "list for a text", file: "http: {addr: [a]}\n", want: []string{"c.yaml:1: key http.addr wants a text"}},
		{name: "map for a list", file: "cluster: {join: {a: b}}\n", want: []string{"c.yaml:1: key cluster.join wants a list"}},
		{name: "list of lists", file: "cluster: {join: [[a]]}\n", want: []string{"c.yaml:1: key cluster.join wants plain"}},
		{name: "not a mapping", file: "- a\n", want: []string{"c.yaml:1: the file is a section"}},
		{name: "not YAML", file: "a: [\n", want: []string{"c.yaml: yaml:"}},
		{name: "two documents", file: "mode: cp\n---\nmode: ap\n", want: []string{"more than one YAML document"}},
		{name: "duration without a unit", file: "raft:\n  heartbeat-timeout: 5\n", want: []string{`c.yaml:2: raft.heartbeat-timeout: "5" is not a duration with its unit`}},
		{name: "threshold in percent", args: []string{"--self-preservation-renewal-percent-threshold=85"}, want: []string{`"85" is not a share between 0 and 1`}},
		{name: "negative threshold", args: []string{"--self-preservation-renewal-percent-threshold=-0.1"}, want: []string{`"-0.1" is not a share`}},
		{name: "threshold that is no number", args: []string{"--self-preservation-renewal-percent-threshold=NaN"}, want: []string{`"NaN" is not a share`}},
		{name: "negative population", args: []string{"--self-preservation-min-instances=-1"}, want: []string{`"-1" is not a number, zero or more`}},
		{name: "expectation of half a second", args: []string{"--eureka-compat-expected-client-renewal-interval=500ms"}, want: []string{`"500ms" is not a whole number of 1s`}},
		{name: "one in each source",
			args: []string{"--commit-in-flight=two"}, env: map[string]string{"ROLLCALL_HTTP_PLAIN": "perhaps"}, file: "test: {dial: nowhere}\n",
			want: []string{`environment variable ROLLCALL_HTTP_PLAIN: "perhaps" is not true or false`, `flag --commit-in-flight: "two" is not a number`, `c.yaml:1: test.dial: "nowhere" is not of the form name=address`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := loadWith(t, append(tc.args, "--data-dir=d"), tc.env, tc.file)
			need.That(t, err != nil, "no error")
			for _, want := range tc.want {
				expect.That(t, strings.Contains(err.Error(), want), "error does not say %q:\n%v", want, err)
			}
			got := len(strings.Split(err.Error(), "\n"))
			expect.That(t, got == len(tc.want), "%d mistakes reported, want %d:\n%v", got, len(tc.want), err)
		})
	}
}

func TestLoadNamesAMissingFile(t *testing.T) {
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(flags)
	missing := filepath.Join(t.TempDir(), "missing.yaml")
	need.OK(t, flags.Parse([]string{"--config", missing}))
	_, err := Load(Inputs{flags: flags, env: os.LookupEnv, read: os.ReadFile})
	expect.That(t, err != nil && strings.Contains(err.Error(), missing), "got %v, want an error that names %s", err, missing)
}
