package config

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/internal/certfiles"
)

// The files of a folder of nodes: those of the authority, and each node's own in a folder of its own.
const (
	NodeFile      = "rollcall.yaml"
	AuthorityFile = "authority.crt"
	AuthorityKey  = "authority.key"
	nodeCert      = "node.crt"
	nodeKey       = "node.key"
)

// dnsName is the form of a host's name.
var dnsName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$`)

// nodeAddress is a node's name with its hosts: IP addresses or DNS names, the first of which the other nodes dial.
type nodeAddress struct {
	Name  string
	Hosts []string
}

// ParseNodes reads arguments of the form NAME=ADDRESS or NAME=ADDRESS,ADDRESS, and reports all mistakes at once.
func ParseNodes(args []string) ([]nodeAddress, error) {
	var nodes []nodeAddress
	var errs []error
	for _, arg := range args {
		name, hosts, _ := strings.Cut(arg, "=")
		n := nodeAddress{name, strings.Split(hosts, ",")}
		if !nodeName.MatchString(name) {
			errs = append(errs, fmt.Errorf("%q: %q is not a name of 1 to 63 letters, digits, dashes and underscores that begins with a letter or digit; write NAME=ADDRESS, such as n1=10.0.0.1", arg, name))
		}
		for i, host := range n.Hosts {
			n.Hosts[i] = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
			if !dialled(n.Hosts[i]) {
				errs = append(errs, fmt.Errorf("%q: %q is not an IP address or DNS name, without a port, at which other machines reach the node, such as 10.0.0.1", arg, host))
			}
		}
		nodes = append(nodes, n)
	}
	if len(nodes) == 0 {
		errs = append(errs, errors.New("no node is named: write NAME=ADDRESS for each, such as n1=10.0.0.1"))
	}
	return nodes, errors.Join(errs...)
}

// dialled reports whether a text is a host that can be dialled. The last label of a DNS name is never a number: such
// a text is an IP address with a mistake.
func dialled(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return !ip.IsUnspecified() && !ip.IsMulticast() && ip.Zone() == ""
	}
	last := host[strings.LastIndex(host, ".")+1:]
	_, err := strconv.Atoi(last)
	return dnsName.MatchString(host) && len(host) <= 253 && err != nil
}

// folder is a folder of nodes in the making.
type folder struct {
	dir       string
	authority *certfiles.Authority
	there     []*Config // the nodes that it had before
	files     []newFile
}

// newFile is a file, or a new folder if text is empty.
type newFile struct {
	path string
	text []byte
	mode fs.FileMode
}

// WriteNodes writes a folder for each node into dir: its settings, a certificate for both sides of connections, and
// the authority that signed it, which is created if missing. Nodes are added to those that dir already has.
// Nothing is overwritten, and after an error nothing new is left.
func WriteNodes(dir string, nodes []nodeAddress, forProduction bool) error {
	f := &folder{dir: dir}
	if err := errors.Join(f.readNodes(), f.checkNew(nodes)); err != nil {
		return err
	}
	if err := f.openAuthority(); err != nil {
		return err
	}
	for _, n := range nodes {
		if err := f.add(n, f.settings(n, nodes, forProduction)); err != nil {
			return err
		}
	}
	return f.write()
}

// readNodes reads the settings of the existing nodes.
func (f *folder) readNodes() error {
	paths, err := filepath.Glob(filepath.Join(f.dir, "*", NodeFile))
	var errs []error
	for _, path := range paths {
		c, err := loadFile(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		f.there = append(f.there, c)
	}
	return errors.Join(append(errs, err)...)
}

// joinAddr returns where the other nodes reach a node.
func joinAddr(c *Config) string { return cmp.Or(c.Store.ClusterAdvertise, c.Store.ClusterAddr) }

// checkNew refuses names and addresses that are given twice, or that an existing node has. Names must differ in more
// than case: certificates hold them as DNS names.
func (f *folder) checkNew(nodes []nodeAddress) error {
	names, hosts := map[string]string{}, map[string]string{}
	for _, c := range f.there {
		host, _, _ := net.SplitHostPort(joinAddr(c))
		names[strings.ToLower(c.NodeName)], hosts[host] = "is there already", c.NodeName
	}
	var errs []error
	for _, n := range nodes {
		key := strings.ToLower(n.Name)
		folder := filepath.Join(f.dir, n.Name)
		switch _, err := os.Lstat(folder); {
		case names[key] != "":
			errs = append(errs, fmt.Errorf("node %s %s: each needs a name of its own, and nothing is overwritten", n.Name, names[key]))
		case err == nil:
			errs = append(errs, fmt.Errorf("%s already exists and is not overwritten: give another name, or move it away", folder))
		}
		names[key] = "is given twice"
		for _, host := range n.Hosts {
			if other := hosts[host]; other != "" {
				errs = append(errs, fmt.Errorf("%s=%s: is an address of %s already", n.Name, host, other))
			}
			hosts[host] = n.Name
		}
	}
	return errors.Join(errs...)
}

// openAuthority reads the existing authority, or creates one.
func (f *folder) openAuthority() error {
	certPath, keyPath := filepath.Join(f.dir, AuthorityFile), filepath.Join(f.dir, AuthorityKey)
	_, certErr := os.Stat(certPath)
	_, keyErr := os.Stat(keyPath)
	if errors.Is(certErr, fs.ErrNotExist) && errors.Is(keyErr, fs.ErrNotExist) && len(f.there) == 0 {
		made, pair, err := certfiles.NewAuthority("Rollcall nodes of "+filepath.Base(f.dir), time.Now())
		f.authority = made
		f.files = append(f.files, newFile{f.dir, nil, 0o700}, newFile{certPath, pair.Cert, 0o644}, newFile{keyPath, pair.Key, 0o600})
		return err
	}
	var err error
	if f.authority, err = readAuthority(f.dir); err != nil {
		return fmt.Errorf("a node is added by the authority of the others: %w", err)
	}
	return nil
}

// readAuthority reads the authority of a folder.
func readAuthority(dir string) (*certfiles.Authority, error) {
	certPath, keyPath := filepath.Join(dir, AuthorityFile), filepath.Join(dir, AuthorityKey)
	cert, certErr := os.ReadFile(certPath)
	key, keyErr := os.ReadFile(keyPath)
	if errors.Is(keyErr, fs.ErrNotExist) && certErr == nil {
		return nil, fmt.Errorf("%s is missing, and nothing can be signed without it: it stays where rollcall config init --tls made it, and is on none of the nodes", keyPath)
	}
	if err := errors.Join(certErr, keyErr); err != nil {
		return nil, fmt.Errorf("%s has no authority, as rollcall config init --tls makes one: %w", dir, err)
	}
	a, err := certfiles.ReadAuthority(certfiles.Pair{Cert: cert, Key: key})
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", certPath, keyPath, err)
	}
	return a, certfiles.CheckPrivate(keyPath)
}

// Issued is a certificate that was issued, and where it is.
type Issued struct {
	Cert string    `json:"cert"` // the file
	Key  string    `json:"key"`  // its key's
	CA   string    `json:"ca"`   // the authority's, which others trust
	Ends time.Time `json:"ends"`
}

// IssueCertificate writes NAME.crt and NAME.key into a folder, which it creates if needed: a certificate signed by
// the authority of another folder, for a server's hosts, or without hosts for a client. Nothing is overwritten, and
// after an error nothing new is left.
func IssueCertificate(authority string, n nodeAddress, life time.Duration, out string) (Issued, error) {
	a, err := readAuthority(authority)
	if err != nil {
		return Issued{}, err
	}
	pair, err := a.Issue(n.Name, n.Hosts, life, time.Now())
	if err != nil {
		return Issued{}, err
	}
	made, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return Issued{}, err
	}
	at := filepath.Join(out, n.Name)
	is := Issued{Cert: at + ".crt", Key: at + ".key", CA: filepath.Join(authority, AuthorityFile), Ends: made.Leaf.NotAfter}
	for _, path := range []string{is.Cert, is.Key} {
		if _, err := os.Lstat(path); err == nil {
			return Issued{}, fmt.Errorf("%s already exists and is not overwritten: give another --out, or move it away", path)
		}
	}
	f := &folder{files: []newFile{{out, nil, 0o700}, {is.Key, pair.Key, 0o600}, {is.Cert, pair.Cert, 0o644}}}
	return is, f.write()
}

// ParseName reads the name and the hosts for a new certificate, and reports all mistakes at once.
func ParseName(name string, hosts []string) (nodeAddress, error) {
	n := nodeAddress{name, hosts}
	var errs []error
	if !nodeName.MatchString(name) && !dnsName.MatchString(name) {
		errs = append(errs, fmt.Errorf("%q is not a name of letters, digits, dashes, underscores and dots that begins with a letter or digit", name))
	}
	for i, host := range n.Hosts {
		n.Hosts[i] = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
		if !dialled(n.Hosts[i]) {
			errs = append(errs, fmt.Errorf("--hosts: %q is not an IP address or DNS name, without a port", host))
		}
	}
	return n, errors.Join(errs...)
}

// settings returns the settings of a new node. Relative paths in a file are relative to the file's folder.
func (f *folder) settings(n nodeAddress, nodes []nodeAddress, forProduction bool) map[string]string {
	set := map[string]string{"data.dir": "data", "auth.mode": "log-only"}
	if forProduction {
		set = maps.Clone(production)
	}
	d := Default()
	expect := len(nodes)
	var join []string
	for _, c := range f.there {
		expect = c.Store.BootstrapExpect // the number of founders, who exist already
		join = append(join, joinAddr(c))
	}
	for _, other := range nodes {
		join = append(join, withPortOf(d.Store.ClusterAddr, other.Hosts[0]))
	}
	set["node.name"], set["cluster.join"], set["cluster.bootstrap-expect"] = n.Name, strings.Join(join, ","), strconv.Itoa(expect)
	for section, addr := range map[string]string{"http": d.HTTP.Addr, "cluster": d.Store.ClusterAddr} {
		reached := withPortOf(addr, n.Hosts[0])
		set[section+".addr"] = reached
		if _, err := netip.ParseAddr(n.Hosts[0]); err != nil || len(n.Hosts) > 1 {
			set[section+".addr"], set[section+".advertise"] = withPortOf(addr, ""), reached
		}
	}
	for _, section := range []string{"http", "cluster", "replication"} {
		set[section+".tls.cert"], set[section+".tls.key"] = nodeCert, nodeKey
	}
	set["cluster.tls.ca"], set["replication.tls.ca"] = AuthorityFile, AuthorityFile
	return set
}

// withPortOf returns a host with the port of an address.
func withPortOf(addr, host string) string {
	_, port, _ := net.SplitHostPort(addr)
	return net.JoinHostPort(host, port)
}

// add adds the files of a node.
func (f *folder) add(n nodeAddress, set map[string]string) error {
	pair, err := f.authority.Issue(n.Name, n.Hosts, certfiles.CertificateLife, time.Now())
	if err != nil {
		return err
	}
	at := func(name string) string { return filepath.Join(f.dir, n.Name, name) }
	f.files = append(f.files, newFile{at(""), nil, 0o700},
		newFile{at(NodeFile), []byte(template(set)), 0o640}, newFile{at(nodeCert), pair.Cert, 0o644},
		newFile{at(nodeKey), pair.Key, 0o600}, newFile{at(AuthorityFile), f.authority.PEM(), 0o644})
	return nil
}

// write writes all files, or none.
func (f *folder) write() error {
	var made []string
	for _, each := range f.files {
		isNew, err := each.write()
		if isNew {
			made = append(made, each.path)
		}
		if err != nil {
			for _, path := range slices.Backward(made) {
				err = errors.Join(err, os.Remove(path))
			}
			return err
		}
	}
	return nil
}

// write creates the file, or the folder, which may exist. It reports whether it created one.
func (n newFile) write() (isNew bool, err error) {
	if n.text == nil {
		err := os.Mkdir(n.path, n.mode)
		if errors.Is(err, fs.ErrExist) {
			return false, nil
		}
		return err == nil, err
	}
	file, err := os.OpenFile(n.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, n.mode)
	if err != nil {
		return false, err
	}
	_, err = file.Write(n.text)
	return true, errors.Join(err, file.Sync(), file.Close())
}
