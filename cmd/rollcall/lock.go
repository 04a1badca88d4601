package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
)

// holdingHelp is what lock and semaphore have in common.
const holdingHelp = `
The command has a process group of its own and gets the signals that rollcall gets. In its
environment ROLLCALL_SESSION is the session, and ROLLCALL_FENCE the fencing token, by which a write
depends on what is held (rollcall kv put --fence). What is held is lost if the cluster could not be
reached, or rollcall was paused, for --ttl. The command gets SIGTERM then, and SIGKILL after
--grace. On Linux it is killed if rollcall is.

Exit codes: the command's own (128+N if signal N ended it), or
  2    the command line is wrong
  123  what was held was lost, and the command was ended
  124  it was not acquired: another session has it (--try), or --timeout has passed
  125  the cluster could not be reached, or refused; the command was not run
  126  the command cannot be run
  127  there is no such command`

func newLockCommand() *cobra.Command {
	var h holding
	cmd := &cobra.Command{
		Use:   "lock NAME -- COMMAND [ARG ...]",
		Short: "Run a command while holding a lock (mode cp)",
		Long: "Waits for a lock in a queue, runs a command while holding it, and releases it to the next in the\n" +
			"queue. ROLLCALL_LOCK is its name.\n" + holdingHelp,
		Example: "  rollcall lock demo -- sleep 5\n" +
			"  rollcall lock nightly --try -- ./backup.sh --full\n" +
			"  rollcall lock db --timeout 1m --ttl 30s -- sh -c 'echo my token is $ROLLCALL_FENCE'",
		Args: commandArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return h.run(cmd, args, "ROLLCALL_LOCK", func(ctx context.Context, cl *client.Client, o client.LockOptions) (*client.Held, error) {
				return cl.AcquireLock(ctx, o)
			})
		},
	}
	h.addFlags(cmd)
	return cmd
}

func newSemaphoreCommand() *cobra.Command {
	var h holding
	var limit int
	cmd := &cobra.Command{
		Use:   "semaphore NAME --limit N -- COMMAND [ARG ...]",
		Short: "Run a command while holding one of N permits (mode cp)",
		Long: "Waits for one of the --limit permits of a semaphore in a queue, runs a command while holding it, and\n" +
			"releases it to the next in the queue. The first to acquire fixes the limit until the semaphore is\n" +
			"neither held nor waited for. ROLLCALL_SEMAPHORE is its name.\n" + holdingHelp,
		Example: "  rollcall semaphore reports --limit 3 -- ./report.sh\n" +
			"  rollcall semaphore reports --limit 3 --try -- ./report.sh",
		Args: commandArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return cli.Usage(errors.New("--limit: is required: how many may hold a permit at a time, at least 1"))
			}
			return h.run(cmd, args, "ROLLCALL_SEMAPHORE", func(ctx context.Context, cl *client.Client, o client.LockOptions) (*client.Held, error) {
				return cl.AcquireSemaphore(ctx, client.SemaphoreOptions{LockOptions: o, Limit: limit})
			})
		},
	}
	h.addFlags(cmd)
	cmd.Flags().IntVar(&limit, "limit", 0, "how many may hold a permit at a time (required)")
	return cmd
}

// holding has the flags of the commands that run another one while they hold something.
type holding struct {
	connection
	ttl, lockDelay, timeout, grace time.Duration
	try, foreground, verbose       bool
	value                          string
}

func (h *holding) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	h.addServerFlags(f)
	f.DurationVar(&h.timeout, "timeout", 0, "give up after so long (default: never)")
	f.BoolVar(&h.try, "try", false, "do not wait at all")
	f.DurationVar(&h.ttl, "ttl", client.DefaultSessionTTL, "how long it is held without a renewal, which is sent three times as often")
	f.DurationVar(&h.lockDelay, "lock-delay", client.DefaultLockDelay, "for how long it stays unavailable if rollcall dies; at most 1m")
	f.StringVar(&h.value, "value", "", "the text that others see as the holder (default: USER@HOST:PID)")
	f.DurationVar(&h.grace, "grace", 5*time.Second, "time between SIGTERM and SIGKILL when it is lost")
	f.BoolVar(&h.foreground, "foreground", false, "let the command use the terminal; only it, not its children, is ended then")
	f.BoolVarP(&h.verbose, "verbose", "v", false, "log waits, acquisitions and releases to standard error")
}

func (h *holding) validate() error {
	errs := []error{checkSession(h.ttl, h.lockDelay)}
	if h.timeout < 0 {
		errs = append(errs, fmt.Errorf("--timeout: %v is negative", h.timeout))
	}
	if h.grace < 0 {
		errs = append(errs, fmt.Errorf("--grace: %v is negative", h.grace))
	}
	if h.try && h.timeout > 0 {
		errs = append(errs, errors.New("give --try or --timeout, and not both"))
	}
	return errors.Join(errs...)
}

// commandArgs checks for NAME -- COMMAND.
func commandArgs(cmd *cobra.Command, args []string) error {
	if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
		return cli.Usage(fmt.Errorf("write %s NAME [flags] -- COMMAND [ARG …]", cmd.CommandPath()))
	}
	return nil
}

// log returns a logger to standard error, only of failures unless --verbose is given.
func (h *holding) log(w io.Writer) *slog.Logger {
	level := slog.LevelWarn
	if h.verbose {
		level = slog.LevelInfo
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// acquirer acquires the lock or permit that the command runs under.
type acquirer func(context.Context, *client.Client, client.LockOptions) (*client.Held, error)

// run acquires what the first argument names, runs the command and releases it. variable is the environment variable
// for the name.
func (h *holding) run(cmd *cobra.Command, args []string, variable string, acquire acquirer) error {
	if err := h.validate(); err != nil {
		return cli.Usage(err)
	}
	path, err := exec.LookPath(args[1])
	if err != nil {
		return cannotRun(err)
	}
	log := h.log(cmd.ErrOrStderr())
	cl, err := h.client(log)
	if err != nil {
		return err
	}
	// From here on a signal ends the wait or the command, and then this process. Ctrl-Z does nothing, because a
	// stopped rollcall could not end the command.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, forwardedSignals(h.foreground)...)
	defer signal.Stop(signals)
	held, err := h.acquire(cmd.Context(), cl, args[0], acquire)
	if err != nil {
		return h.notAcquired(cmd.Context(), signals, err)
	}
	log.Info("acquired", "name", args[0], "fence", held.Fence().Index, "session", held.Session())
	c := &child{held: held, grace: h.grace, group: !h.foreground, signals: signals, log: log}
	outcome := c.run(path, args[1:], cmd, append(os.Environ(),
		variable+"="+args[0], fmt.Sprintf("ROLLCALL_FENCE=%d", held.Fence().Index), "ROLLCALL_SESSION="+held.Session()))
	// A signal may have ended the context of the command line.
	if err := held.Release(context.WithoutCancel(cmd.Context())); err != nil && !errors.Is(err, client.ErrLost) {
		log.Warn("not released, it will be free when its session has ended", "err", err)
	}
	return outcome
}

func (h *holding) acquire(ctx context.Context, cl *client.Client, name string, acquire acquirer) (*client.Held, error) {
	if h.timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, h.timeout)
		defer cancel()
		ctx = limited
	}
	value := h.value
	if value == "" {
		value = fmt.Sprintf("%s:%d", whoami(), os.Getpid())
	}
	return acquire(ctx, cl, client.LockOptions{
		Name: name, Value: []byte(value), TTL: h.ttl, LockDelay: noneIfZero(h.lockDelay), Try: h.try,
	})
}

// notAcquired returns the exit status of a wait that ended without a lock.
func (h *holding) notAcquired(ctx context.Context, signals <-chan os.Signal, err error) error {
	switch {
	case ctx.Err() != nil:
		select {
		case s := <-signals: // which ended the wait
			return cli.ExitStatus{Code: exitSignal + int(s.(syscall.Signal))}
		default:
			return cli.ExitStatus{Code: exitSignal + int(syscall.SIGTERM)}
		}
	case errors.Is(err, client.ErrNotAcquired), errors.Is(err, context.DeadlineExceeded):
		return cli.ExitStatus{Code: exitNotAcquired, Err: err}
	}
	return cli.ExitStatus{Code: exitRollcall, Err: err}
}
