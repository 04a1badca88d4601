package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/internal/certfiles"
)

func newTLSCommand() *cobra.Command {
	return cli.Group("tls", "Issue certificates by a cluster's own authority", newTLSIssueCommand())
}

const day = 24 * time.Hour

func newTLSIssueCommand() *cobra.Command {
	var out cli.Output
	var authority, dir string
	var hosts []string
	var days int
	cmd := &cobra.Command{
		Use:   "issue NAME",
		Short: "Issue a certificate for one more name by the authority that config init --tls made",
		Long: "Writes NAME.crt and NAME.key (mode 0600): a certificate by the authority in --authority, the folder that\n" +
			"rollcall config init --tls wrote. With --hosts it is one of a server and client at these addresses, such as a\n" +
			"node whose certificate ends; without, of a client alone, such as a peer or a program that calls the cluster.\n" +
			"It ends with the authority's at the latest. Nothing is overwritten.",
		Example: "  rollcall tls issue ci --authority cluster --days 90 --out ci\n" +
			"  rollcall tls issue n1 --authority cluster --hosts 10.0.0.1,n1.internal --out renewed",
		Args: cli.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.Validate(); err != nil {
				return cli.Usage(err)
			}
			if days < 1 || days > maxDays {
				return cli.Usage(fmt.Errorf("--days: %d is not between 1 and %d", days, maxDays))
			}
			name, err := config.ParseName(args[0], hosts)
			if err != nil {
				return cli.Usage(err)
			}
			made, err := config.IssueCertificate(authority, name, time.Duration(days)*day, dir)
			if err != nil {
				return err
			}
			return out.Print(cmd.OutOrStdout(), issued{made})
		},
	}
	out.AddFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&authority, "authority", ".", "folder with the authority's certificate and key, "+config.AuthorityFile+" and "+config.AuthorityKey)
	f.StringSliceVar(&hosts, "hosts", nil, "IP addresses and DNS names of a server (default: it is a client's)")
	f.IntVar(&days, "days", int(certfiles.CertificateLife/day), "how long it holds")
	f.StringVar(&dir, "out", ".", "folder to write into; it is made if it is not there")
	return cmd
}

// maxDays is the lifetime of an authority.
const maxDays = 3650

// issued is a certificate that was issued.
type issued struct{ config.Issued }

func (i issued) Table() [][]string {
	return [][]string{
		{"CERTIFICATE", "KEY", "ENDS", "TRUSTED BY"},
		{i.Cert, i.Key, i.Ends.UTC().Format(time.RFC3339), i.CA},
	}
}
