package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// childAnswer is what a child says of one line: an answer of JSON, in which it may have failed.
type childAnswer interface{ failure() string }

// child is this test program as another process, which does what lines on its stdin say, answers each by a
// line of JSON, and can be paused.
type child[A childAnswer] struct {
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	answers chan A // closed at its end
}

// startChild starts a child as what a variable of the environment makes of it. It ends with the test, and
// with stop.
func startChild[A childAnswer](t *testing.T, variable, value string) *child[A] {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), variable+"="+value)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	need.OK(t, err)
	stdout, err := cmd.StdoutPipe()
	need.OK(t, err)
	need.OK(t, cmd.Start())
	c := &child[A]{cmd: cmd, stdin: stdin, answers: make(chan A)}
	go func() {
		defer close(c.answers)
		for d := json.NewDecoder(stdout); ; {
			var a A
			if d.Decode(&a) != nil {
				return
			}
			c.answers <- a
		}
	}()
	t.Cleanup(c.stop)
	return c
}

// stop ends the process as kill -9 does.
func (c *child[A]) stop() {
	_ = c.cmd.Process.Kill() // it may have ended already
	for range c.answers {
		// what nobody waited for
	}
	_ = c.cmd.Wait()
}

func (c *child[A]) signal(s syscall.Signal) error { return c.cmd.Process.Signal(s) }

// say sends a line of words; a paused child reads it when it wakes.
func (c *child[A]) say(words ...any) error {
	_, err := fmt.Fprintln(c.stdin, words...)
	return err
}

// hear waits for the answer to a line.
func (c *child[A]) hear(ctx context.Context) (a A, err error) {
	select {
	case a, ok := <-c.answers:
		switch {
		case !ok:
			return a, errors.New("the child has ended")
		case a.failure() != "":
			return a, errors.New(a.failure())
		}
		return a, nil
	case <-ctx.Done():
		return a, errors.New("the child does not answer")
	}
}

// ask is say and hear.
func (c *child[A]) ask(ctx context.Context, words ...any) (a A, err error) {
	if err := c.say(words...); err != nil {
		return a, err
	}
	return c.hear(ctx)
}
