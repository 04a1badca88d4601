package config

import (
	"crypto/tls"
	"crypto/x509"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/certfiles"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/link"
)

func writeNodes(dir string, forProduction bool, args ...string) error {
	nodes, err := ParseNodes(args)
	if err != nil {
		return err
	}
	return WriteNodes(dir, nodes, forProduction)
}

func tree(t *testing.T, dir string) (files []string) {
	t.Helper()
	need.OK(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			info := need.Got(d.Info())(t)
			files = append(files, strings.TrimPrefix(path, dir+"/")+" "+info.Mode().String())
		}
		return err
	}))
	return files
}

func TestWriteNodesMakesFoldersThatWorkWhereTheyAreCopiedTo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	need.OK(t, writeNodes(dir, false, "n1=10.0.0.1", "n2=10.0.0.2,fd00::2", "n3=db.example.org"))
	files := []string{"authority.crt -rw-r--r--", "authority.key -rw-------"}
	for _, name := range []string{"n1", "n2", "n3"} {
		files = append(files, name+"/authority.crt -rw-r--r--", name+"/node.crt -rw-r--r--", name+"/node.key -rw-------", name+"/rollcall.yaml -rw-r-----")
	}
	expect.Deep(t, tree(t, dir), files, "files")
	for name, want := range map[string]struct {
		addr, advertise string
		hosts           []string
	}{
		"n1": {"10.0.0.1", "", []string{"10.0.0.1"}},
		"n2": {"", "10.0.0.2", []string{"10.0.0.2", "fd00::2"}},
		"n3": {"", "db.example.org", []string{"db.example.org"}},
	} {
		there := filepath.Join(t.TempDir(), "rollcall")
		need.OK(t, os.Rename(filepath.Join(dir, name), there))
		c := need.Got(loadFile(filepath.Join(there, NodeFile)))(t)
		advertised := func(port string) string {
			if want.advertise == "" {
				return ""
			}
			return want.advertise + port
		}
		got := []string{c.NodeName, c.Store.DataDir, c.HTTP.Addr, c.HTTP.Advertise, c.Store.ClusterAddr, c.Store.ClusterAdvertise, strings.Join(c.Store.Join, " ")}
		expect.Deep(t, got, []string{name, filepath.Join(there, "data"), want.addr + ":8761", advertised(":8761"), want.addr + ":7761", advertised(":7761"), "10.0.0.1:7761 10.0.0.2:7761 db.example.org:7761"}, name)
		expect.Equal(t, c.Store.BootstrapExpect, 3, "founders")
		crt, key, ca := filepath.Join(there, "node.crt"), filepath.Join(there, "node.key"), filepath.Join(there, "authority.crt")
		expect.Deep(t, []string{c.HTTP.TLS.Cert, c.HTTP.TLS.Key, c.HTTP.TLS.ClientCA}, []string{crt, key, ""}, "HTTP")
		expect.Deep(t, []string{c.Store.TLS.Cert, c.Store.TLS.Key, c.Store.TLS.CA}, []string{crt, key, ca}, "node-to-node")
		expect.Deep(t, []string{c.Replication.TLS.Cert, c.Replication.TLS.Key, c.Replication.TLS.CA}, []string{crt, key, ca}, "replication")
		pair := need.Got(tls.LoadX509KeyPair(crt, key))(t)
		roots := need.Got(certfiles.ReadPool(ca))(t)
		for _, host := range append(want.hosts, name, "localhost", "127.0.0.1", "::1") {
			for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
				_, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}})
				expect.OKf(t, err, "%s for %s, usage %v", name, host, usage)
			}
		}
		_, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: "n4", Roots: roots})
		expect.That(t, err != nil, "%s has a certificate for n4", name)
	}
}

func TestWriteNodesForProductionKeepsDataElsewhere(t *testing.T) {
	dir := t.TempDir()
	need.OK(t, writeNodes(dir, true, "n1=10.0.0.1"))
	c := need.Got(loadFile(filepath.Join(dir, "n1", NodeFile)))(t)
	expect.Deep(t, []string{c.Store.DataDir, c.LogFormat, c.Store.TLS.Cert, strings.Join(c.Store.Join, " ")},
		[]string{"/var/lib/rollcall", "json", filepath.Join(dir, "n1", "node.crt"), "10.0.0.1:7761"}, "settings")
}

func TestWriteNodesAddsANodeByTheSameAuthority(t *testing.T) {
	dir := t.TempDir()
	need.OK(t, writeNodes(dir, false, "n1=10.0.0.1", "n2=10.0.0.2", "n3=10.0.0.3"))
	before := need.Got(os.ReadFile(filepath.Join(dir, AuthorityFile)))(t)
	need.OK(t, writeNodes(dir, false, "n4=10.0.0.4"))
	need.OK(t, writeNodes(dir, false, "n5=10.0.0.5"))
	for _, at := range []string{"", "n4", "n5"} {
		expect.Equal(t, string(need.Got(os.ReadFile(filepath.Join(dir, at, AuthorityFile)))(t)), string(before), "authority")
	}
	c := need.Got(loadFile(filepath.Join(dir, "n5", NodeFile)))(t)
	expect.Equal(t, strings.Join(c.Store.Join, " "), "10.0.0.1:7761 10.0.0.2:7761 10.0.0.3:7761 10.0.0.4:7761 10.0.0.5:7761", "n5 joins")
	expect.Equal(t, c.Store.BootstrapExpect, 3, "founders")
	leaf := need.Got(tls.LoadX509KeyPair(c.Store.TLS.Cert, c.Store.TLS.Key))(t).Leaf
	_, err := leaf.Verify(x509.VerifyOptions{DNSName: "n5", Roots: need.Got(certfiles.ReadPool(filepath.Join(dir, "n1", AuthorityFile)))(t)})
	expect.OKf(t, err, "n5 for n1")
}

func TestNodesThatCannotBeWrittenAreRefusedAndNothingIsLeft(t *testing.T) {
	for _, tc := range []struct {
		name  string
		there func(t *testing.T, dir string) // nil: one node, n1
		args  []string
		want  string
	}{
		{name: "none", want: "no node is named"},
		{name: "no name", args: []string{"=10.0.0.9"}, want: `"" is not a name`},
		{name: "no address", args: []string{"n9"}, want: `"" is not an IP address or DNS name`},
		{name: "no name of a node", args: []string{"n 9=10.0.0.9"}, want: `"n 9" is not a name`},
		{name: "a path", args: []string{"../n9=10.0.0.9"}, want: `"../n9" is not a name`},
		{name: "a port", args: []string{"n9=10.0.0.9:8761"}, want: "without a port"},
		{name: "no address that is one", args: []string{"n9=10.0.0.999"}, want: `"10.0.0.999" is not an IP address`},
		{name: "all interfaces", args: []string{"n9=0.0.0.0"}, want: `"0.0.0.0" is not an IP address`},
		{name: "one of two", args: []string{"n9=10.0.0.9,"}, want: `"" is not an IP address`},
		{name: "twice", args: []string{"n9=10.0.0.9", "N9=10.0.0.8"}, want: "node N9 is given twice"},
		{name: "an address twice", args: []string{"n9=10.0.0.9", "n8=10.0.0.9"}, want: "n8=10.0.0.9: is an address of n9 already"},
		{name: "there", args: []string{"n8=10.0.0.8", "n1=10.0.0.9"}, want: "node n1 is there already"},
		{name: "an address that is there", args: []string{"n9=10.0.0.1"}, want: "is an address of n1 already"},
		{name: "a folder that is there", args: []string{"n8=10.0.0.8", "n9=10.0.0.9"}, want: "n9 is there already; it is not overwritten",
			there: func(t *testing.T, dir string) { need.OK(t, os.Mkdir(filepath.Join(dir, "n9"), 0o700)) }},
		{name: "without the authority's key", args: []string{"n9=10.0.0.9"}, want: "authority.key is not there",
			there: func(t *testing.T, dir string) {
				need.OK(t, writeNodes(dir, false, "n1=10.0.0.1"))
				need.OK(t, os.Remove(filepath.Join(dir, AuthorityKey)))
			}},
		{name: "with another authority's key", args: []string{"n9=10.0.0.9"}, want: "authority.key: ",
			there: func(t *testing.T, dir string) {
				need.OK(t, writeNodes(dir, false, "n1=10.0.0.1"))
				need.OK(t, os.Rename(filepath.Join(dir, "n1", "node.key"), filepath.Join(dir, AuthorityKey)))
				need.OK(t, os.WriteFile(filepath.Join(dir, "n1", "node.key"), nil, 0o600))
			}},
		{name: "without an authority", args: []string{"n9=10.0.0.9"}, want: "authority.crt: no such file",
			there: func(t *testing.T, dir string) {
				need.OK(t, writeNodes(dir, false, "n1=10.0.0.1"))
				need.OK(t, os.Remove(filepath.Join(dir, AuthorityKey)))
				need.OK(t, os.Remove(filepath.Join(dir, AuthorityFile)))
			}},
		{name: "beside a file with a mistake", args: []string{"n9=10.0.0.9"}, want: "unknown key nodee",
			there: func(t *testing.T, dir string) {
				need.OK(t, os.Mkdir(filepath.Join(dir, "n1"), 0o700))
				need.OK(t, os.WriteFile(filepath.Join(dir, "n1", NodeFile), []byte("nodee: x"), 0o600))
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			if tc.there == nil {
				tc.there = func(t *testing.T, dir string) { need.OK(t, writeNodes(dir, false, "n1=10.0.0.1")) }
			}
			tc.there(t, dir)
			before := tree(t, dir)
			err := writeNodes(dir, false, tc.args...)
			expect.That(t, err != nil && strings.Contains(err.Error(), tc.want), "got %v, want %q in it", err, tc.want)
			expect.Deep(t, tree(t, dir), before, "files afterwards")
		})
	}
}

// TestFolderThatCannotBeWrittenLeavesNothing has a file come between the look and the writing.
func TestFolderThatCannotBeWrittenLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	f := &folder{dir: dir}
	nodes := need.Got(ParseNodes([]string{"n1=10.0.0.1", "n2=10.0.0.2"}))(t)
	need.OK(t, f.openAuthority())
	for _, n := range nodes {
		need.OK(t, f.add(n, f.settings(n, nodes, false)))
	}
	need.OK(t, os.Mkdir(filepath.Join(dir, "n2"), 0o700))
	need.OK(t, os.WriteFile(filepath.Join(dir, "n2", NodeFile), []byte("mine"), 0o600))
	err := f.write()
	expect.That(t, err != nil, "a file was overwritten")
	expect.Deep(t, tree(t, dir), []string{"n2/rollcall.yaml -rw-------"}, "files afterwards")
	expect.Equal(t, string(need.Got(os.ReadFile(filepath.Join(dir, "n2", NodeFile)))(t)), "mine", "the file")
}

func TestRelativePathsOfAFileBeginAtItsFolder(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "rollcall.yaml")
	need.OK(t, os.WriteFile(file, []byte("data: {dir: ../state}\nbackup: {dir: /backups}\nreplication: {datacenters: {dc2: http://h:1}, token-files: {dc2: dc2.token}}\nnode: {zone: a/b}\nmode: ap\n"), 0o600))
	token := filepath.Join(dir, "dc2.token")
	need.OK(t, os.WriteFile(token, []byte("t"), 0o600))
	c := need.Got(loadFile(file))(t)
	expect.Deep(t, []string{c.Store.DataDir, c.Backup.Dir, c.NodeZone, c.Replication.TokenFiles["dc2"]}, []string{filepath.Join(filepath.Dir(dir), "state"), "/backups", "a/b", token}, "settings")
	t.Chdir(dir)
	c = need.Got(loadFile("rollcall.yaml"))(t)
	expect.Equal(t, c.Store.DataDir, filepath.Join(filepath.Dir(dir), "state"), "beside a file that is named without its folder")
	var paths []string
	for _, s := range Default().Settings() {
		if s.Path {
			paths = append(paths, s.Key)
		}
		named := strings.HasSuffix(s.Key, ".dir") || strings.Contains(s.Key, ".tls.") || strings.HasSuffix(s.Key, ".file") || strings.Contains(s.Key, "token-file") || s.Key == "restore-from"
		named = named && s.Key != "audit.file" // which is in data.dir
		expect.That(t, s.Path == named, "%s is a path: %v", s.Key, s.Path)
	}
	expect.That(t, slices.Contains(paths, "data.dir"), "paths: %v", paths)
}

func TestValidateNamesThePeer(t *testing.T) {
	tokenFile := filepath.Join(t.TempDir(), "token")
	need.OK(t, os.WriteFile(tokenFile, []byte("t"), 0o600))
	for _, tc := range []struct {
		name   string
		change func(*Config)
		want   string // "": valid
	}{
		{name: "everything", change: func(c *Config) {
			c.Replication.Datacenters = map[string]string{"dc2": "http://10.0.0.1:8761 https://10.0.0.2:8761/"}
			c.Replication.Eureka = map[string]string{"old": "http://user:pw@10.0.0.9:8761/eureka"}
			c.Store.Settings.OnCut = "dc2=keep-for:1h,old=expire"
			c.Replication.Rates = map[string]string{"dc2": "5000"}
			c.Replication.Timeouts = map[string]string{"old": "200ms"}
			c.Replication.Single = []string{"old"}
		}},
		{name: "nodes in mode cp", change: func(c *Config) { c.Replication.Nodes = []string{"http://10.0.0.1:8761"} }, want: "replication.nodes: is for mode ap"},
		{name: "nodes in mode ap", change: func(c *Config) {
			c.Mode, c.HTTPD.Reads, c.Replication.Nodes = AP, "stale", []string{"http://10.0.0.1:8761"}
			c.Replication.Rates = map[string]string{"10.0.0.1:8761": "1"}
		}},
		{name: "node with a path", change: func(c *Config) {
			c.Mode, c.HTTPD.Reads, c.Replication.Nodes = AP, "stale", []string{"http://10.0.0.1:8761/eureka"}
		}, want: "replication.nodes: \"http://10.0.0.1:8761/eureka\" has a path"},
		{name: "own datacenter", change: func(c *Config) { c.Replication.Datacenters = map[string]string{"dc1": "http://h:1"} }, want: "replication.datacenters: dc1: is this node's own datacenter"},
		{name: "no URL", change: func(c *Config) { c.Replication.Datacenters = map[string]string{"dc2": " "} }, want: "replication.datacenters: dc2: has no URL"},
		{name: "no scheme", change: func(c *Config) { c.Replication.Datacenters = map[string]string{"dc2": "h:1"} }, want: "replication.datacenters: dc2: is not a URL"},
		{name: "bad name", change: func(c *Config) { c.Replication.Eureka = map[string]string{"a.b": "http://h:1"} }, want: "replication.eureka: a.b: is not a name"},
		{name: "one name twice", change: func(c *Config) {
			c.Replication.Datacenters = map[string]string{"dc2": "http://h:1"}
			c.Replication.Eureka = map[string]string{"dc2": "http://h:2"}
		}, want: "replication.eureka: dc2: is the name of a datacenter too"},
		{name: "policy for no peer", change: func(c *Config) { c.Store.Settings.OnCut = "dc9=keep" }, want: "replication.on-cut: dc9: there is no peer of that name"},
		{name: "unknown policy", change: func(c *Config) {
			c.Replication.Datacenters = map[string]string{"dc2": "http://h:1"}
			c.Store.Settings.OnCut = "dc2=keep-for:ever"
		}, want: "replication.on-cut: dc2: \"keep-for:ever\" is none of"},
		{name: "rate that is none", change: func(c *Config) {
			c.Replication.Datacenters = map[string]string{"dc2": "http://h:1"}
			c.Replication.Rates = map[string]string{"dc2": "fast"}
		}, want: "replication.rates: dc2: \"fast\" is not a number"},
		{name: "queue below a batch", change: func(c *Config) { c.Replication.Queue = 10 }, want: "replication.queue: 10 is below replication.batch-size, 250"},
		{name: "batch too large", change: func(c *Config) { c.Replication.BatchSize = 5000 }, want: "replication.batch-size: 5000 is above 1000"},
		{name: "no time for the copy", change: func(c *Config) { c.Replication.CopyWait = 0 }, want: "replication.copy-wait: 0s is below 1ms"},
		{name: "token for no peer", change: func(c *Config) { c.Replication.TokenFiles = map[string]string{"dc9": tokenFile} }, want: "replication.token-files: dc9: there is no peer of that name"},
		{name: "token and password", change: func(c *Config) {
			c.Replication.Eureka = map[string]string{"old": "http://user:canary@h:1"}
			c.Replication.TokenFiles = map[string]string{"old": tokenFile}
		}, want: "replication.token-files: old: there is a password in the peer's URL"},
		{name: "token of nobody", change: func(c *Config) {
			c.Replication.Datacenters = map[string]string{"dc2": "http://h:1"}
			c.Replication.TokenFiles = map[string]string{"dc2": tokenFile + "x"}
		}, want: "replication.token-files: dc2: open "},
		{name: "tokens", change: func(c *Config) {
			c.Mode, c.HTTPD.Reads, c.Replication.Nodes = AP, "stale", []string{"http://10.0.0.1:8761"}
			c.Replication.Eureka = map[string]string{"old": "http://user@h:1"}
			c.Replication.TokenFiles = map[string]string{"old": tokenFile, "dc1": tokenFile}
		}},
		{name: "half a certificate", change: func(c *Config) { c.Replication.TLS.Cert = "/dev/null" }, want: "replication.tls: cert and key belong together"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := validConfig()
			tc.change(c)
			err := c.Validate()
			expect.That(t, (err != nil) == (tc.want != "") && (err == nil || strings.Contains(err.Error(), tc.want)),
				"got %v, want %q", err, tc.want)
		})
	}
}

func TestPeersAreThoseOfTheSettingsWithoutTheNodeItself(t *testing.T) {
	c := validConfig()
	c.Mode = AP
	c.Replication.Nodes = []string{"http://10.0.0.1:8761", "http://10.0.0.2:8761/"}
	c.Replication.Datacenters = map[string]string{"dc2": "http://10.1.0.1:8761 http://10.1.0.2:8761"}
	c.Replication.Eureka = map[string]string{"old": "http://10.9.0.1:8761/eureka/"}
	c.Replication.Timeouts = map[string]string{"old": "200ms"}
	c.Replication.Single = []string{"old"}
	peers := c.Peers(nil, "10.0.0.1:8761")
	var names []string
	for _, p := range peers {
		names = append(names, p.Name+" "+strings.Join(p.URLs, " "))
	}
	want := []string{"10.0.0.2:8761 http://10.0.0.2:8761", "dc2 http://10.1.0.1:8761 http://10.1.0.2:8761", "old http://10.9.0.1:8761/eureka"}
	need.Deep(t, names, want, "got")
	dc2 := peers[1]
	expect.That(t, dc2.ReadTimeout == 5*time.Second && !dc2.Single, "dc2 is %+v", dc2)
	old := peers[2]
	expect.That(t, old.ReadTimeout == 200*time.Millisecond && old.Single && old.Kind == link.Eureka, "old is %+v", old)
}

func TestPeersHaveTheTokensOfTheirDatacenters(t *testing.T) {
	c := validConfig()
	c.Mode = AP
	c.Replication.Nodes = []string{"http://10.0.0.1:8761"}
	c.Replication.Datacenters = map[string]string{"dc2": "http://10.0.1.1:8761", "dc3": "http://10.0.2.1:8761"}
	c.Replication.TokenFiles = map[string]string{"dc1": "/nodes", "dc2": "/dc2"}
	got := map[string]string{}
	for _, p := range c.Peers(nil) {
		got[p.Name] = p.TokenFile
	}
	expect.Deep(t, got, map[string]string{"10.0.0.1:8761": "/nodes", "dc2": "/dc2", "dc3": ""}, "files by peer")
}
