package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// server is the program whose clusters are measured.
type server struct{ path string }

func (s *server) addFlag(f *pflag.FlagSet) {
	f.StringVar(&s.path, "server", "", "the server's program (default: the rollcall beside this program)")
}

// find completes the path where the flag was not given.
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

// serverDefaults are settings of a server that the baselines share, because they are not what is compared.
type serverDefaults struct {
	GC struct {
		Percent int `yaml:"percent"`
	} `yaml:"gc"`
	Raft struct {
		CommitTimeout time.Duration `yaml:"commit-timeout"`
	} `yaml:"raft"`
}

// defaults asks the program.
func (s *server) defaults(ctx context.Context) (d serverDefaults, err error) {
	text, err := exec.CommandContext(ctx, s.path, "config", "show", "--effective", "--data-dir", "unused").Output()
	if err != nil {
		return d, fmt.Errorf("ask %s for its settings: %w", s.path, err)
	}
	if err := yaml.Unmarshal(text, &d); err != nil {
		return d, fmt.Errorf("read the settings of %s: %w", s.path, err)
	}
	if d.GC.Percent == 0 || d.Raft.CommitTimeout == 0 {
		return d, fmt.Errorf("%s config show names no gc.percent or no raft.commit-timeout", s.path)
	}
	return d, nil
}

// clearSettings keeps the environment's settings from the nodes: they are measured with the defaults. What plants
// faults into a server stays.
func clearSettings() error {
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "ROLLCALL_") && name != "ROLLCALL_PLANTED" && name != "ROLLCALL_PARENT_PIPE" {
			if err := os.Unsetenv(name); err != nil {
				return err
			}
		}
	}
	return nil
}
