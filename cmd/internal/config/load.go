package config

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/setting"
)

// source says where a setting came from.
type source string

// The sources, strongest first.
const (
	fromFlag    source = "flag"
	fromEnv     source = "env"
	fromFile    source = "file"
	fromDefault source = "default"
)

// Loaded is a loaded configuration and the source of each of its keys, by name.
type Loaded struct {
	*Config
	sources map[string]source
	Cluster map[string]string // what the cluster has, by key; nil: it was not asked
}

// inputs are the places that settings are loaded from.
type Inputs struct {
	flags *pflag.FlagSet               // with AddFlags
	env   func(string) (string, bool)  // os.LookupEnv
	read  func(string) ([]byte, error) // os.ReadFile
}

func FromProcess(flags *pflag.FlagSet) Inputs {
	return Inputs{flags: flags, env: os.LookupEnv, read: os.ReadFile}
}

const configFlag = "config"

// AddFlags adds --config and one flag per key. The flags hold text; Load parses it, so that
// all mistakes can be reported at once.
func AddFlags(flags *pflag.FlagSet) {
	flags.String(configFlag, "", "YAML file with settings; each of its keys is also a flag and an environment variable")
	for _, each := range Default().Settings() {
		v := &textFlag{kind: each.Kind(), text: each.String()}
		f := flags.VarPF(v, each.Flag(), "", each.Help)
		if v.kind == "bool" {
			f.NoOptDefVal = "true"
		}
	}
}

// textFlag is a flag whose text is parsed later. A list or map may be given in parts.
type textFlag struct {
	kind, text string
	given      bool
}

func (f *textFlag) String() string { return f.text }
func (f *textFlag) Type() string   { return f.kind }

func (f *textFlag) Set(text string) error {
	if f.given && (f.kind == "list" || f.kind == "map") {
		text = f.text + "," + text
	}
	f.text, f.given = text, true
	return nil
}

// Load merges flags, environment, file and defaults, in this order, and validates the result. The
// error joins every mistake found.
func Load(in Inputs) (Loaded, error) {
	s := Loaded{Config: Default(), sources: make(map[string]source)}
	var errs []error
	file, err := readConfigFile(in)
	if err != nil {
		errs = append(errs, err)
	}
	for _, each := range s.Config.Settings() {
		src, err := resolve(each, in, file)
		if err != nil {
			errs = append(errs, err)
		}
		s.sources[each.Key] = src
	}
	if len(errs) > 0 {
		// Validating what was only partly understood would report mistakes that nobody made.
		return s, errors.Join(errs...)
	}
	if s.EurekaCompat {
		s.turnOn("eureka-compat.")
	}
	if s.Mode == AP && s.sources["reads.eureka"] == fromDefault {
		s.HTTPD.Reads = httpd.ReadsStale // there is nothing else
	}
	if s.sources["checks.allow-loopback"] == fromDefault {
		s.Checks.Rules.AllowLoopback = loopback(s.HTTP.Addr) // clients of this machine alone may name it
	}
	return s, s.Validate()
}

// resolve sets one setting from its strongest source. An empty environment variable counts as not set,
// because container files cannot leave one out.
func resolve(s setting.Setting, in Inputs, file fileValues) (source, error) {
	if in.flags.Changed(s.Flag()) {
		return fromFlag, prefix("flag --"+s.Flag(), s.Set(in.flags.Lookup(s.Flag()).Value.String()))
	}
	if text, ok := in.env(s.Env()); ok && text != "" {
		return fromEnv, prefix("environment variable "+s.Env(), s.Set(text))
	}
	if v, ok := file[s.Key]; ok {
		return fromFile, prefix(v.place(s.Key), s.Set(v.text))
	}
	return fromDefault, nil
}

func prefix(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
