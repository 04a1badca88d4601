package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/cli"
)

// Exit codes of commands that run another one, which has nearly all codes for itself: those that
// timeout(1) and env(1) use, and one more.
const (
	exitLost        = 123 // the lock was lost, and the command was ended
	exitNotAcquired = 124 // the lock was not to be had in time
	exitGuard       = 125 // rollcall itself failed; the command was not run
	exitCannotRun   = 126 // the command was found, but cannot be run
	exitNoCommand   = 127 // there is no such command
	exitSignal      = 128 // plus the number of the signal that ended it
)

// guard is the flags of the commands that run another one while they hold something.
type guard struct {
	connection
	ttl, lockDelay, timeout, grace time.Duration
	try, foreground, verbose       bool
	recipe                         bool
	value                          string
}

func (g *guard) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	g.addServerFlags(f)
	f.DurationVar(&g.timeout, "timeout", 0, "give up after so long (default: never)")
	f.BoolVar(&g.try, "try", false, "do not wait at all")
	f.DurationVar(&g.ttl, "ttl", client.DefaultSessionTTL, "how long it is held without a renewal, which is sent three times as often")
	f.DurationVar(&g.lockDelay, "lock-delay", client.DefaultLockDelay, "for how long it stays unavailable if rollcall dies; at most 1m")
	f.StringVar(&g.value, "value", "", "what others are shown of the holder (default: USER@HOST:PID)")
	f.BoolVar(&g.recipe, "recipe", false, "keep it in keys, as Consul's clients do, so that they take part; there is no queue then")
	f.DurationVar(&g.grace, "grace", 5*time.Second, "time between SIGTERM and SIGKILL when it is lost")
	f.BoolVar(&g.foreground, "foreground", false, "let the command use the terminal; only it, not its children, is ended then")
	f.BoolVarP(&g.verbose, "verbose", "v", false, "say on standard error what is waited for, acquired and released")
}

func (g *guard) validate() error {
	errs := []error{checkSession(g.ttl, g.lockDelay)}
	if g.timeout < 0 {
		errs = append(errs, fmt.Errorf("--timeout: %v is negative", g.timeout))
	}
	if g.grace < 0 {
		errs = append(errs, fmt.Errorf("--grace: %v is negative", g.grace))
	}
	if g.try && g.timeout > 0 {
		errs = append(errs, errors.New("give --try or --timeout, and not both"))
	}
	if g.recipe && g.value != "" {
		errs = append(errs, errors.New("--value: is shown nowhere with --recipe; the keys say when it was acquired, and by which session"))
	}
	return errors.Join(errs...)
}

// commandArgs wants NAME -- COMMAND.
func commandArgs(cmd *cobra.Command, args []string) error {
	if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
		return cli.Usage(fmt.Errorf("write %s NAME [flags] -- COMMAND [ARG …]", cmd.CommandPath()))
	}
	return nil
}

// log says what happens on standard error: failures only, unless asked for more.
func (g *guard) log(w io.Writer) *slog.Logger {
	level := slog.LevelWarn
	if g.verbose {
		level = slog.LevelInfo
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// acquirer acquires what is to be held.
type acquirer func(context.Context, *client.Client, client.LockOptions) (*client.Held, error)

// run acquires name, runs the command and gives name back. variable is told the command as its name's.
func (g *guard) run(cmd *cobra.Command, args []string, variable string, acquire acquirer) error {
	if err := g.validate(); err != nil {
		return cli.Usage(err)
	}
	path, err := exec.LookPath(args[1])
	if err != nil {
		return cannotRun(err)
	}
	log := g.log(cmd.ErrOrStderr())
	cl, err := g.client(log)
	if err != nil {
		return err
	}
	// From here on a signal ends the wait or the command, and then this process, not the lock alone. A
	// stopped rollcall could not end the command, so Ctrl-Z does nothing.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, guardedSignals(g.foreground)...)
	defer signal.Stop(signals)
	held, err := g.acquire(cmd.Context(), cl, args[0], acquire)
	if err != nil {
		return g.notAcquired(cmd.Context(), signals, err)
	}
	log.Info("acquired", "name", args[0], "fence", held.Fence().Index, "session", held.Session())
	child := &guarded{held: held, grace: g.grace, group: !g.foreground, signals: signals, log: log}
	outcome := child.run(path, args[1:], cmd, append(os.Environ(),
		variable+"="+args[0], fmt.Sprintf("ROLLCALL_FENCE=%d", held.Fence().Index), "ROLLCALL_SESSION="+held.Session()))
	// The context of the command line may have ended by a signal.
	if err := held.Release(context.WithoutCancel(cmd.Context())); err != nil && !errors.Is(err, client.ErrLost) {
		log.Warn("not released, it will be free when its session has ended", "err", err)
	}
	return outcome
}

func (g *guard) acquire(ctx context.Context, cl *client.Client, name string, acquire acquirer) (*client.Held, error) {
	if g.timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, g.timeout)
		defer cancel()
		ctx = limited
	}
	value := g.value
	if value == "" {
		value = fmt.Sprintf("%s:%d", whoami(), os.Getpid())
	}
	return acquire(ctx, cl, client.LockOptions{
		Name: name, Value: []byte(value), TTL: g.ttl, LockDelay: noneIfZero(g.lockDelay), Try: g.try, Recipe: g.recipe,
	})
}

// notAcquired is the exit status of a wait that ended with nothing.
func (g *guard) notAcquired(ctx context.Context, signals <-chan os.Signal, err error) error {
	switch {
	case ctx.Err() != nil:
		return cli.ExitStatus{Code: signalCode(signals)}
	case errors.Is(err, client.ErrNotAcquired), errors.Is(err, context.DeadlineExceeded):
		return cli.ExitStatus{Code: exitNotAcquired, Err: err}
	}
	return cli.ExitStatus{Code: exitGuard, Err: err}
}

// signalCode is the exit code after the signal that ended the wait.
func signalCode(signals <-chan os.Signal) int {
	select {
	case s := <-signals:
		return exitSignal + int(s.(syscall.Signal))
	default:
		return exitSignal + int(syscall.SIGTERM)
	}
}

// cannotRun is the exit status of a command that cannot be started.
func cannotRun(err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return cli.ExitStatus{Code: exitNoCommand, Err: err}
	}
	return cli.ExitStatus{Code: exitCannotRun, Err: err}
}

// guarded is a command that runs while something is held.
type guarded struct {
	held    *client.Held
	grace   time.Duration // between SIGTERM and SIGKILL
	group   bool          // it has a process group of its own
	signals <-chan os.Signal
	log     *slog.Logger
	process *os.Process
}

// run starts the command and waits until it has ended, by itself or because what is held was lost. The
// error is its exit status, nil if that is 0.
func (c *guarded) run(path string, args []string, cmd *cobra.Command, env []string) error {
	child := exec.Command(path, args[1:]...)
	child.Args[0] = args[0]
	child.Env = env
	child.Stdin, child.Stdout, child.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	child.SysProcAttr = guardedAttributes(c.group)
	if !c.held.Valid() {
		return cli.ExitStatus{Code: exitLost, Err: c.held.Err()}
	}
	if err := child.Start(); err != nil {
		return cannotRun(err)
	}
	c.process = child.Process
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	return c.await(ended)
}

// await passes signals on until the command has ended, and ends it when what is held was lost.
func (c *guarded) await(ended <-chan error) error {
	lost := c.held.Context().Done()
	var overdue <-chan time.Time
	for {
		select {
		case err := <-ended:
			if c.held.Valid() {
				return statusOf(err)
			}
			c.sweep()
			return cli.ExitStatus{Code: exitLost, Err: fmt.Errorf("%w; the command was ended", c.held.Err())}
		case <-lost:
			lost, overdue = nil, time.After(c.grace)
			c.signal(syscall.SIGTERM)
		case <-overdue:
			c.signal(syscall.SIGKILL)
		case s := <-c.signals:
			if s != syscall.SIGTSTP {
				c.signal(s.(syscall.Signal))
			}
		}
	}
}

// sweep kills what the command has left behind in its group.
func (c *guarded) sweep() {
	if c.group {
		c.signal(syscall.SIGKILL)
	}
}

// signal reaches the whole process group, if the command has one, and wakes what is stopped, so that it
// can act. It may have ended meanwhile.
func (c *guarded) signal(s syscall.Signal) {
	target := c.process.Pid
	if c.group {
		target = -target
	}
	for _, each := range []syscall.Signal{s, syscall.SIGCONT} {
		if err := syscall.Kill(target, each); err != nil && !errors.Is(err, syscall.ESRCH) {
			c.log.Warn("signal not sent", "signal", each.String(), "err", err)
		}
	}
}

// guardedSignals are those that are passed on to the command. One that shares the terminal gets the
// terminal's own signals from there, and stops and goes on together with rollcall.
func guardedSignals(foreground bool) []os.Signal {
	if foreground {
		return []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}
	}
	return []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTSTP}
}

// statusOf is the exit status of a command that ended by itself; nil: 0.
func statusOf(err error) error {
	var failed *exec.ExitError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &failed):
		return cli.ExitStatus{Code: exitGuard, Err: err}
	}
	if status, ok := failed.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return cli.ExitStatus{Code: exitSignal + int(status.Signal())}
	}
	return cli.ExitStatus{Code: failed.ExitCode()}
}
