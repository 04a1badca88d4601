package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// overlay is a directory with changed copies of files, and the list that tells the go command to use them.
type overlay struct{ dir string }

// plant changes files, by their paths, until the overlay is removed.
func plant(files map[string][]byte) (o overlay, err error) {
	if o.dir, err = os.MkdirTemp("", "plant"); err != nil {
		return o, err
	}
	replace := map[string]string{}
	for path, text := range files {
		absolute, err := filepath.Abs(path)
		if err != nil {
			return o, err
		}
		changed := filepath.Join(o.dir, fmt.Sprint(len(replace))+".go")
		if err := os.WriteFile(changed, text, 0o600); err != nil {
			return o, err
		}
		replace[absolute] = changed
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return o, err
	}
	return o, os.WriteFile(o.list(), b, 0o600)
}

func (o overlay) list() string { return filepath.Join(o.dir, "overlay.json") }

func (o overlay) remove() { _ = os.RemoveAll(o.dir) }

// command returns a program that runs with the changed files, as does every go command that it starts.
func (o overlay) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...)
	c.Env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+o.list()))
	return c
}

// run returns the output of a shell command, and its error.
func (o overlay) run(command string) (string, error) {
	var b bytes.Buffer
	c := o.command(context.Background(), "bash", "-c", command)
	c.Stdout, c.Stderr = &b, &b
	err := c.Run()
	return b.String(), err
}
