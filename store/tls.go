package store

import (
	"log/slog"

	"github.com/seed-20419f34/rollcall/internal/certfiles"
)

// TLSFiles are the PEM files of mutual TLS on the node-to-node port. The certificate must be usable for client and
// server authentication and must name the node (node.name as a DNS name of its subject alternative names), because a
// certificate proves the name of a node, not its address.
type TLSFiles struct {
	Cert string `key:"cluster.tls.cert" path:"yes" help:"PEM file with the node's certificate, for both directions; this file and the other two are reread when they change"`
	Key  string `key:"cluster.tls.key" path:"yes" help:"PEM file with its key; mode 0640 or stricter"`
	CA   string `key:"cluster.tls.ca" path:"yes" help:"PEM file with the authority (or several) that signs the nodes' certificates and nothing else"`
}

// Open reads the files. Nodes are dialled by address and known by name: the source's Mutual checks the chain, and
// Port.accepts in package port checks the name of the node at the other end, after the hello.
func (f TLSFiles) Open(log *slog.Logger) (*certfiles.Source, error) {
	return certfiles.Open(certfiles.Files{Cert: f.Cert, Key: f.Key, CA: f.CA, Keys: [3]string{"cluster.tls.cert", "cluster.tls.key", "cluster.tls.ca"}}, log)
}
