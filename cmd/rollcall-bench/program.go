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

// gcPercent asks the server's program for its setting of the garbage collector, which the bare handler shares: it is
// not part of the comparison.
func (s *server) gcPercent(ctx context.Context) (int, error) {
	text, err := exec.CommandContext(ctx, s.path, "config", "show", "--effective", "--data-dir", "unused").Output()
	if err != nil {
		return 0, fmt.Errorf("ask %s for its settings: %w", s.path, err)
	}
	var settings struct {
		GC struct {
			Percent int `yaml:"percent"`
		} `yaml:"gc"`
	}
	if err := yaml.Unmarshal(text, &settings); err != nil {
		return 0, fmt.Errorf("read the settings of %s: %w", s.path, err)
	}
	if settings.GC.Percent == 0 {
		return 0, fmt.Errorf("%s config show names no gc.percent", s.path)
	}
	return settings.GC.Percent, nil
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

// temporaryData makes a directory below data, and data if it is missing. remove removes the directories that it made,
// unless other files were put into them meanwhile.
func temporaryData(data string) (dir string, remove func(), err error) {
	made := absent(data)
	if err := os.MkdirAll(data, 0o700); err != nil {
		return "", nil, fmt.Errorf("--data: %w", err)
	}
	if dir, err = os.MkdirTemp(data, "run-"); err != nil {
		return "", nil, fmt.Errorf("--data: %w", err)
	}
	return dir, func() {
		os.RemoveAll(dir)
		for _, d := range made {
			os.Remove(d)
		}
	}, nil
}

// absent lists those of a directory and its parents that do not exist.
func absent(dir string) []string {
	var all []string
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			return all
		}
		all = append(all, dir)
	}
}
