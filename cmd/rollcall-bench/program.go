package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// version is set by the linker (Makefile).
var version = "unknown"

// server is the program whose clusters are measured.
type server struct{ path string }

func (s *server) addFlag(f *pflag.FlagSet) {
	f.StringVar(&s.path, "server", "", "the server's program (default: the rollcall beside this program)")
}

// find completes the path if the flag was not given.
func (s *server) find() error {
	if s.path != "" {
		return nil
	}
	own, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	s.path = filepath.Join(filepath.Dir(own), "rollcall")
	if _, err := os.Stat(s.path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no %s; name the server's program by --server", s.path)
	}
	return nil
}

// serverDefaults are server settings that the baselines share, because they are not part of the comparison.
type serverDefaults struct {
	GC struct {
		Percent int `yaml:"percent"`
	} `yaml:"gc"`
	Test struct {
		CommitTimeout time.Duration `yaml:"commit-timeout"`
	} `yaml:"test"`
}

// defaults asks the server's program for them.
func (s *server) defaults(ctx context.Context) (d serverDefaults, err error) {
	text, err := exec.CommandContext(ctx, s.path, "config", "show", "--effective", "--data-dir", "unused").Output()
	if err != nil {
		return d, fmt.Errorf("ask %s for its settings: %w", s.path, err)
	}
	if err := yaml.Unmarshal(text, &d); err != nil {
		return d, fmt.Errorf("read the settings of %s: %w", s.path, err)
	}
	if d.GC.Percent == 0 || d.Test.CommitTimeout == 0 {
		return d, fmt.Errorf("%s config show names no gc.percent or no test.commit-timeout", s.path)
	}
	return d, nil
}

// clearSettings keeps settings in the environment from the nodes: they are measured with the defaults. Variables that
// plant faults into a server stay.
func clearSettings() error {
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if !isSetting(name) {
			continue
		}
		if err := os.Unsetenv(name); err != nil {
			return err
		}
	}
	return nil
}

// isSetting reports whether an environment variable is a setting of Rollcall, or of a Java program or Spring's
// servers.
func isSetting(name string) bool {
	switch name {
	case "ROLLCALL_PLANTED", "ROLLCALL_PARENT_PIPE":
		return false
	case "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS":
		return true
	}
	return slices.ContainsFunc([]string{"ROLLCALL_", "EUREKA_", "SPRING_", "SERVER_", "MANAGEMENT_", "LOGGING_"}, func(prefix string) bool {
		return strings.HasPrefix(name, prefix)
	})
}
