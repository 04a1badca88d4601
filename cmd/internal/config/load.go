package config

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/setting"
)

// source is where a setting came from.
type source string

// Sources, strongest first.
const (
	fromFlag    source = "flag"
	fromEnv     source = "env"
	fromFile    source = "file"
	fromDefault source = "default"
)

// Loaded is a loaded configuration and where each of its settings came from.
type Loaded struct {
	*Config
	Cluster map[string]string // the cluster's settings, by key; nil if not known
	sources map[string]source // by key
}

// inputs are the places that settings are loaded from.
type inputs struct {
	flags *pflag.FlagSet               // with AddFlags
	env   func(string) (string, bool)  // os.LookupEnv
	read  func(string) ([]byte, error) // os.ReadFile
}

// FromProcess returns the inputs of this process.
func FromProcess(flags *pflag.FlagSet) inputs {
	return inputs{flags: flags, env: os.LookupEnv, read: os.ReadFile}
}

const configFlag = "config"

// AddFlags adds --config and one flag per setting. The flags hold text, which Load parses, so that all mistakes can
// be reported at once.
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

// textFlag is a flag whose text is parsed later. A list or map may be given in several parts.
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

// Load merges flags, environment, file and defaults, the strongest first, and validates the result. The error joins
// all mistakes.
func Load(in inputs) (Loaded, error) {
	s := Loaded{Config: Default(), sources: make(map[string]source)}
	file, err := readConfigFile(in)
	errs := []error{err}
	for _, each := range s.Config.Settings() {
		src := fromDefault
		var err error
		// An empty environment variable counts as not set, because container files cannot leave one out.
		if in.flags.Changed(each.Flag()) {
			src, err = fromFlag, prefix("flag --"+each.Flag(), each.Set(in.flags.Lookup(each.Flag()).Value.String()))
		} else if text, ok := in.env(each.Env()); ok && text != "" {
			src, err = fromEnv, prefix("environment variable "+each.Env(), each.Set(text))
		} else if v, ok := file[each.Key]; ok {
			src, err = fromFile, prefix(fmt.Sprintf("%s:%d: %s", v.file, v.line, each.Key), each.Set(v.within(each)))
		}
		s.sources[each.Key] = src
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		// Validating settings that were only partly understood would report false mistakes.
		return s, err
	}
	for _, each := range setting.Of(s.Config) {
		if s.EurekaCompat && strings.HasPrefix(each.Key, "eureka-compat.") && each.Kind() == "bool" {
			each.Value.SetBool(true)
		}
	}
	if s.Mode == AP && s.sources["reads.eureka"] == fromDefault {
		s.HTTPD.Reads = web.ReadsStale // mode ap offers no other
	}
	if s.sources["checks.allow-loopback"] == fromDefault {
		// only clients of this machine can register such checks then
		s.Checks.Rules.AllowLoopback = loopback(s.HTTP.Addr)
	}
	return s, s.placed(s.Validate(), in, file)
}

// placed adds to each mistake, which begins with its key, where the value came from; for a default, the file that
// could set it.
func (s Loaded) placed(err error, in inputs, file fileValues) error {
	if all, ok := err.(interface{ Unwrap() []error }); ok && err.Error() == errors.Join(all.Unwrap()...).Error() {
		var placed []error
		for _, each := range all.Unwrap() {
			placed = append(placed, s.placed(each, in, file))
		}
		return errors.Join(placed...)
	}
	if err == nil {
		return nil
	}
	key, _, _ := strings.Cut(err.Error(), ":")
	path, _ := in.flags.GetString(configFlag) // AddFlags has added it
	switch source := s.sources[key]; {
	case source == fromFlag:
		return fmt.Errorf("flag --%s: %w", setting.Setting{Key: key}.Flag(), err)
	case source == fromEnv:
		return fmt.Errorf("environment variable %s: %w", setting.Setting{Key: key}.Env(), err)
	case source == fromFile:
		return fmt.Errorf("%s:%d: %w", file[key].file, file[key].line, err)
	case path != "":
		return fmt.Errorf("%s: %w", path, err)
	}
	return err
}

// prefix adds to an error, if there is one, what it is about.
func prefix(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
