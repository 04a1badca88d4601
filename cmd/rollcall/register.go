package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

func newRegisterCommand() *cobra.Command {
	var c connection
	var o registerOptions
	cmd := &cobra.Command{
		Use:   "register APP",
		Short: "Register an instance, and with --heartbeat keep it alive until Ctrl-C",
		Example: "  rollcall register orders --port 8080 --heartbeat\n" +
			"  rollcall register orders --id orders-1 --host orders-1.example.com --ip 10.0.0.11 --meta zone=a --lease 30s --interval 10s",
		Args: cli.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			instance, err := o.instance(args[0])
			if err != nil {
				return cli.Usage(err)
			}
			log := slog.New(slog.DiscardHandler)
			if o.heartbeat {
				log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			}
			cl, err := c.open(log)
			if err != nil {
				return err
			}
			if o.heartbeat {
				return keepAlive(cmd.Context(), cl, instance, cmd.OutOrStdout())
			}
			if err := cl.Register(cmd.Context(), instance); err != nil {
				return err
			}
			key := instance.Key()
			fmt.Fprintf(cmd.ErrOrStderr(), "it is gone in %v unless something renews its lease, as --heartbeat does\n", o.lease)
			return c.out.Print(cmd.OutOrStdout(), done{Done: "registered", App: key.App, ID: key.ID, Status: instance.Status.String()})
		},
	}
	c.addFlags(cmd)
	o.addFlags(cmd.Flags())
	return cmd
}

// cancelLimit bounds the cancel at the end of --heartbeat, all servers together.
const cancelLimit = 10 * time.Second

// keepAlive keeps the instance registered until ctx ends, and cancels it then. It returns at once if the cluster
// refuses the first registration as malformed or forbidden.
func keepAlive(ctx context.Context, cl *client.Client, instance *registry.Instance, out io.Writer) error {
	r, err := cl.StartRegistration(client.RegistrationConfig{Instance: instance})
	if err != nil {
		return cli.Usage(err)
	}
	registered := r.Registered(ctx)
	if registered == nil {
		fmt.Fprintf(out, "registered %s%s; its lease of %d s is renewed every %v, until Ctrl-C\n", instance.Key(), atNode(ctx, cl), instance.Duration, r.Interval())
		<-ctx.Done()
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelLimit)
	defer cancel()
	if err := errors.Join(registered, r.Deregister(bounded)); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "canceled %s\n", instance.Key())
	return err
}

// atNode names the node that a client talks to, or returns "" if that does not say, like a stock Eureka server.
func atNode(ctx context.Context, cl *client.Client) string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	status, err := cl.Status(ctx)
	if err != nil || status.Node == "" {
		return ""
	}
	return " at " + cli.Printable(status.Node)
}

// registerOptions are the flags of register.
type registerOptions struct {
	id, host, ip, vip string
	port              uint16
	status            string
	meta              map[string]string
	lease, interval   time.Duration
	heartbeat         bool
}

func (o *registerOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.id, "id", "", "instance id (default HOST:APP:PORT)")
	f.StringVar(&o.host, "host", "", "host name (default: this machine's)")
	f.StringVar(&o.ip, "ip", "", "IP address (default: this machine's first that is not loopback)")
	f.Uint16Var(&o.port, "port", 8080, "port of the service; 0: none")
	f.StringVar(&o.vip, "vip", "", "VIP address (default: APP in lower case)")
	f.StringVar(&o.status, "status", registry.Up.String(), enumerate(registry.StatusWords(), "or"))
	f.StringToStringVar(&o.meta, "meta", nil, "metadata, as key=value; may be repeated")
	f.DurationVar(&o.lease, "lease", registry.DefaultDuration*time.Second, "how long the instance lives after its last heartbeat")
	f.DurationVar(&o.interval, "interval", registry.DefaultRenewalInterval*time.Second, "time between two heartbeats")
	f.BoolVar(&o.heartbeat, "heartbeat", false, "keep the instance alive until Ctrl-C, then cancel it")
}

// instance returns the instance of the options, completed with the names of this machine.
func (o *registerOptions) instance(app string) (*registry.Instance, error) {
	status, err := parseStatus("--status", o.status)
	lease, err2 := seconds("--lease", o.lease)
	interval, err3 := seconds("--interval", o.interval)
	if err := errors.Join(err, err2, err3); err != nil {
		return nil, err
	}
	if o.heartbeat && interval >= lease {
		return nil, fmt.Errorf("--interval: %v is not shorter than --lease %v, which would end between two heartbeats; a third of it is usual", o.interval, o.lease)
	}
	i := client.NewInstance(app, o.port)
	if o.host != "" {
		i.InstanceID = o.host + strings.TrimPrefix(i.InstanceID, i.HostName)
		i.HostName = o.host
	}
	i.InstanceID = cmp.Or(o.id, i.InstanceID)
	i.IPAddr = cmp.Or(o.ip, i.IPAddr)
	i.VIP = cmp.Or(o.vip, i.VIP)
	i.Status, i.Duration, i.RenewalInterval = status, lease, interval
	i.Metadata = []registry.Pair{}
	for _, k := range slices.Sorted(maps.Keys(o.meta)) {
		i.Metadata = append(i.Metadata, registry.Pair{Key: k, Value: o.meta[k]})
	}
	i.LastDirty = time.Now().UnixMilli()
	return i, nil
}

// seconds refuses fractions of a second, which the protocol does not have.
func seconds(name string, d time.Duration) (int32, error) {
	if d < time.Second || d%time.Second != 0 || d/time.Second > math.MaxInt32 {
		return 0, fmt.Errorf("%s: %v is not a whole number of seconds", name, d)
	}
	return int32(d / time.Second), nil
}
