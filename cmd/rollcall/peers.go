package main

import (
	"cmp"
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

func newPeersCommand() *cobra.Command {
	cmd := newPeersStatusCommand("peers", "Show the replication to other servers, compare with one, or act on it")
	cmd.Example = "  rollcall peers\n  rollcall peers -o json"
	cmd.AddCommand(
		newPeersStatusCommand("status", "Show the replication to other servers"),
		newPeersDiffCommand(),
		newPeersRepairCommand(),
		newPeersPauseCommand(),
		newPeersResumeCommand(),
		newPeersForgetCommand(),
	)
	return cmd
}

func newPeersStatusCommand(use, short string) *cobra.Command {
	var c connection
	return c.command(&cobra.Command{
		Use:     use,
		Short:   short,
		Example: "  rollcall peers status",
	}, cobra.NoArgs, func(ctx context.Context, cl *client.Client, _ []string) (cli.Tabler, error) {
		found, err := cl.Peers(ctx)
		if err != nil {
			return nil, err
		}
		if found.Peers == nil {
			found.Peers = []client.Peer{} // JSON shows an empty list, not null
		}
		if found.Refused == nil {
			found.Refused = []client.RefusedItem{}
		}
		if found.Senders == nil {
			found.Senders = []client.PeerSender{}
		}
		return peerTables{found}, nil
	})
}

func newPeersDiffCommand() *cobra.Command {
	return newPeersCompareCommand(&cobra.Command{
		Use:     "diff NAME",
		Short:   "Show the instances that a peer has otherwise than it should",
		Example: "  rollcall peers diff dc2",
	}, (*client.Client).PeerDiff)
}

func newPeersRepairCommand() *cobra.Command {
	return newPeersCompareCommand(&cobra.Command{
		Use:   "repair NAME",
		Short: "Send a peer at once what it lacks",
		Long: "Compares with a peer, and sends it the instances that it lacks or has older and the removals of those\n" +
			"that it should not have. A Eureka server cannot be compared with, and is sent everything. Servers\n" +
			"repair by themselves; this command does it at once.",
		Example: "  rollcall peers repair dc2",
	}, (*client.Client).RepairPeer)
}

// newPeersCompareCommand completes a command that shows what differs.
func newPeersCompareCommand(cmd *cobra.Command, compare func(*client.Client, context.Context, string) (client.PeerDiff, error)) *cobra.Command {
	var c connection
	return c.command(cmd, cobra.ExactArgs(1), func(ctx context.Context, cl *client.Client, args []string) (cli.Tabler, error) {
		diff, err := compare(cl, ctx, args[0])
		if diff.Items == nil {
			diff.Items = []client.DiffedItem{}
		}
		return peerDiff{diff}, err
	})
}

func newPeersPauseCommand() *cobra.Command {
	return newPeersActCommand(&cobra.Command{
		Use:   "pause NAME",
		Short: "Send nothing to a peer until it is resumed",
		Long: "Stops sending to a peer. Nothing is lost: changes made meanwhile are sent after\n" +
			"`rollcall peers resume`. Changes from the peer are still accepted.",
		Example: `  rollcall peers pause dc2 --reason "its registry is being rebuilt"`,
	}, "paused", (*client.Client).PausePeer)
}

func newPeersResumeCommand() *cobra.Command {
	return newPeersActCommand(&cobra.Command{
		Use:     "resume NAME",
		Short:   "Go on sending to a peer",
		Example: "  rollcall peers resume dc2",
	}, "resumed", (*client.Client).ResumePeer)
}

func newPeersForgetCommand() *cobra.Command {
	return newPeersActCommand(&cobra.Command{
		Use:   "forget SENDER",
		Short: "Forget a sender's clock, so that its messages are accepted again",
		Long: "Forgets the clock of a server that sends to this one, as `rollcall peers` lists it. Its next message\n" +
			"counts as its first: none is late or ahead of time any more. In mode cp the whole cluster forgets the\n" +
			"clock, in mode ap the node at --addr. No registration changes.",
		Example: "  rollcall peers forget n2.902c570f70f5",
	}, "forgotten", (*client.Client).ForgetSender)
}

// newPeersActCommand completes a command that acts on a peer; did is what it prints afterwards.
func newPeersActCommand(cmd *cobra.Command, did string, act func(*client.Client, context.Context, string, registry.Act) error) *cobra.Command {
	var c connection
	var o operator
	o.addFlags(cmd)
	return c.command(cmd, cobra.ExactArgs(1), func(ctx context.Context, cl *client.Client, args []string) (cli.Tabler, error) {
		return done{Done: did, Peer: args[0]}, act(cl, ctx, args[0], o.act())
	})
}

// peerTables shows the state of replication as up to six tables: the peers, the servers that send, their clocks, the
// repairs, and what is refused.
type peerTables struct{ client.Peers }

func (p peerTables) Table() [][]string {
	rows := [][]string{{"NAME", "KIND", "STATE", "LAG(CHANGES)", "LAG(TIME)", "LAST SUCCESS", "REASON"}}
	for _, peer := range p.Peers.Peers {
		rows = append(rows, []string{
			peer.Name, peer.Kind, peer.State, strconv.FormatUint(peer.LagChanges, 10), duration(peer.LagMS), clockTime(peer.LastSuccess), peer.Reason,
		})
	}
	rows = append(rows, p.incoming()...)
	rows = append(rows, p.senders()...)
	rows = append(rows, p.repairs()...)
	return append(rows, p.refused()...)
}

// refused returns two tables of what is refused: here, and at peers.
func (p peerTables) refused() [][]string {
	here, there := [][]string{{}, {"REFUSED HERE", "FROM", "SINCE", "LAST", "TIMES", "WHY"}}, [][]string{{}, {"REFUSED BY", "INSTANCE", "SINCE", "LAST", "TIMES", "WHY"}}
	for _, r := range p.Refused {
		here = append(here, []string{r.What, cmp.Or(r.From, "a client"), clockTime(r.Since), clockTime(r.Last), strconv.FormatUint(r.Times, 10), r.Text})
	}
	for _, peer := range p.Peers.Peers {
		for _, r := range peer.Refused {
			there = append(there, []string{peer.Name, r.What + " of " + registry.NewKey(r.App, r.ID).String(), clockTime(r.Since), clockTime(r.Last), strconv.FormatUint(r.Times, 10), r.Text})
		}
	}
	return append(unlessEmpty(here), unlessEmpty(there)...)
}

// incoming returns a table of the datacenters and Eureka servers that send, if there are any.
func (p peerTables) incoming() [][]string {
	rows := [][]string{{}, {"FROM", "INSTANCES", "LAST HEARD", "LINK", "ON CUT", "KEPT"}}
	for _, peer := range p.Peers.Peers {
		in := peer.Incoming
		if in == nil {
			continue
		}
		lastHeard, link := "never", "up"
		if in.HeardMS != nil {
			lastHeard = duration(*in.HeardMS) + " ago"
		}
		if in.Cut {
			link = "cut"
		}
		rows = append(rows, []string{peer.Name, strconv.Itoa(in.Instances), lastHeard, link, in.OnCut, strconv.Itoa(in.Kept)})
	}
	return unlessEmpty(rows)
}

// senders returns a table of the servers whose clocks are known, and of their messages that came late or were refused.
func (p peerTables) senders() [][]string {
	rows := [][]string{{}, {"SENDER", "DATACENTER", "HEARD", "LATE BY", "LATE", "REFUSED"}}
	for _, s := range p.Senders {
		rows = append(rows, []string{
			s.Sender, s.Datacenter, duration(s.HeardMS) + " ago", duration(s.LateMS), strconv.FormatUint(s.Late, 10), strconv.FormatUint(s.Refused, 10),
		})
	}
	return unlessEmpty(rows)
}

// repairs returns a table of the last repair of each peer, if there was one.
func (p peerTables) repairs() [][]string {
	rows := [][]string{{}, {"REPAIRED", "TIME", "WHY", "SENT", "REMOVED"}}
	for _, peer := range p.Peers.Peers {
		if r := peer.LastRepair; r != nil {
			rows = append(rows, []string{peer.Name, clockTime(r.At), r.Reason, strconv.Itoa(r.Sent), strconv.Itoa(r.Removed)})
		}
	}
	return unlessEmpty(rows)
}

// peerDiff shows a comparison as two tables: the numbers, and the instances.
type peerDiff struct{ client.PeerDiff }

func (d peerDiff) Table() [][]string {
	rows := [][]string{
		{"APPS", "MISSING", "EXTRA"},
		{strconv.Itoa(d.Apps), strconv.Itoa(d.Missing), strconv.Itoa(d.Extra)},
	}
	items := [][]string{{}, {"INSTANCE", "THE PEER'S"}}
	for _, i := range d.Items {
		items = append(items, []string{registry.NewKey(i.App, i.ID).String(), i.What})
	}
	return append(rows, unlessEmpty(items)...)
}
